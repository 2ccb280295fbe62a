"""Hypothesis strategies for the state machine: its arguments, and random conditions.

They draw from few names and round times, so that jobs collide. The conditions also serve tests that compare
the meaning of a condition in two places.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.conditions import (
    NEVER,
    AllOf,
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    ContainsText,
    Field,
    HasFingerprint,
    InState,
    LastErrorContains,
    Not,
)
from tidewheel.core.fingerprints import job_fingerprint
from tidewheel.core.model import (
    BodyFormat,
    Cancelled,
    Completed,
    DerivedState,
    Failed,
    FailureOrigin,
    JobError,
    KeyLifetime,
    Lane,
    NewDocument,
    NewJob,
    NewStep,
    OnDuplicate,
    Progress,
    Released,
    Retried,
    State,
    TopicHead,
    WorkerRecord,
)
from tidewheel.core.topic_limits import LimitsOrigin, Rate, TopicLimits

TIME_FIELDS = frozenset({Field.CREATED_AT, Field.RUN_AT, Field.STARTED_AT, Field.FINISHED_AT})
TEXT_FIELDS = sorted(field for field in Field if field.is_text)
NUMBER_FIELDS = sorted(field for field in Field if not field.is_text and field not in TIME_FIELDS)

comparisons = st.sampled_from(Comparison)
texts_compared = st.sampled_from(
    [
        None,
        "",
        "a",
        "b",
        "x",
        "y",
        "root",
        "other",
        "k",
        "c",
        "u",
        "s",
        "anna",
        "boom: it broke",
        "é",
        "Z",
        "🂡",
    ]
)
numbers_compared = st.sampled_from([None, -1, 0, 1, 2, 3, 5, 2**63 - 1, 2**63, -(2**63), -(2**80)])
seconds_compared = st.sampled_from([None, -3600, 0, 1, 30, 60, 90, 3600])

columns: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Compare, st.sampled_from(TEXT_FIELDS), comparisons, texts_compared),
    st.builds(Compare, st.sampled_from(NUMBER_FIELDS), comparisons, numbers_compared),
    st.builds(Compare, st.sampled_from(sorted(TIME_FIELDS)), comparisons, seconds_compared),
    st.builds(InState, st.sampled_from([*State, *DerivedState])),
)
"""What databases tell by themselves. Times are seconds since some start, see ``shift_times``."""

texts_searched = st.sampled_from(["hit", "é", "boom", "it broke", "nowhere", '"'])
compared_topics, compared_tasks = st.sampled_from(["a", "b"]), st.sampled_from(["", "x"])

bodies: st.SearchStrategy[Condition] = st.one_of(
    st.builds(
        ComparePayload,
        st.sampled_from([(), ("name",), ("n",), ("list", 0), ("list", 1, "name"), ("nowhere",)]),
        comparisons,
        st.sampled_from([None, "", "hit", "é", "1", 1, 1.0, 1.5, 0, True, False, 10**30]),
    ),
    st.builds(ContainsText, texts_searched, st.booleans()),
    st.builds(LastErrorContains, texts_searched),
    st.builds(
        HasFingerprint,
        st.builds(
            job_fingerprint, compared_topics, compared_tasks, st.sampled_from([None, "boom: it broke"])
        ),
    ),
)


def combined(leaf: st.SearchStrategy[Condition], most: int = 8) -> st.SearchStrategy[Condition]:
    """Leaves under NOT, AND and OR, with up to so many of them."""
    return st.recursive(
        leaf,
        lambda part: st.one_of(
            st.builds(Not, part),
            st.builds(AllOf, st.lists(part, max_size=3).map(tuple)),
            st.builds(AnyOf, st.lists(part, max_size=3).map(tuple)),
        ),
        max_leaves=most,
    )


column_conditions = combined(columns)
conditions = combined(st.one_of(columns, columns, bodies))


def shift_times(condition: Condition, start: int) -> Condition:
    """The same, its seconds as times after ``start``."""
    match condition:
        case Compare(field, comparison, int(seconds)) if field in TIME_FIELDS:
            return Compare(field, comparison, start + seconds_to_microseconds(seconds))
        case Not(part):
            return Not(shift_times(part, start))
        case AllOf(parts):
            return AllOf(tuple(shift_times(part, start) for part in parts))
        case AnyOf(parts):
            return AnyOf(tuple(shift_times(part, start) for part in parts))
        case _:
            return condition


compared_topics = st.sampled_from(["a", "b", "c"])
compared_tasks = st.sampled_from(["", "", "x", "y", "a"])  # "a" is a topic, too: keys of both meet
tenants = st.sampled_from(["root", "root", "other"])
some_tenant = st.sampled_from([None, None, None, "root", "other", "nobody"])
priorities = st.sampled_from([0, 0, 0, -1, 1, 5, -2000])
keys = st.sampled_from([None, None, None, "k", "m"])
delays = st.sampled_from([0.0, 0.0, 0.0, 1.0, 30.0, 60.0, 3600.0])
lease_lengths = st.sampled_from([5.0, 30.0, 60.0])
run_times = st.sampled_from([None, 0.0, 0.25, 7.5])
payloads = st.sampled_from(
    [
        b"{}",
        b'"hit"',
        b'{"name":"\xc3\xa9"}',
        b'{"n":1,"list":["hit",{"name":"1"}]}',
        b'{"n":1.5,"list":[null]}',
    ]
)
texts = st.sampled_from(["hit", "é", "boom", "worker_lost", "job_canceled: ", "expired", "nowhere"])
yes_or_no = st.booleans()
heads = st.sampled_from(TopicHead)
some_topics = st.one_of(st.none(), st.lists(st.sampled_from(["a", "b", "c", "nowhere"]), max_size=3))
windows = st.sampled_from([60.0, 3600.0, 72 * 3600.0])
limits = st.sampled_from([1, 2, 1000])

_of_user = Compare(Field.USER_ID, Comparison.EQUAL, "u")
row_filters = st.sampled_from([None, None, None, None, _of_user, Not(_of_user), NEVER])
"""About what no verb changes: within a call, stores may look at jobs before or after its own changes."""

_nobody = UUID(int=0)

new_jobs: st.SearchStrategy[NewJob] = st.builds(
    NewJob,
    id=st.just(_nobody),
    topic=compared_topics,
    task=compared_tasks,
    payload=payloads,
    format=st.sampled_from(BodyFormat),
    tenant=tenants,
    priority=priorities,
    delay=delays,
    max_attempts=st.sampled_from([1, 2, 3, None]),
    timeout=st.sampled_from([None, 1.5]),
    retry=st.sampled_from([None, '{"kind":"fixed"}']),
    lease_seconds=st.sampled_from([None, None, 10.0]),
    key=keys,
    key_until=st.sampled_from(KeyLifetime),
    on_duplicate=st.sampled_from(OnDuplicate),
    expires_in=st.sampled_from([None, None, None, 0.0, 20.0, 60.0]),
    retention=st.sampled_from([None, 0.0, 60.0, 3600.0]),
    retention_failed=st.sampled_from([None, 0.0, 60.0]),
    correlation_id=st.sampled_from([None, "c"]),
    user_id=st.sampled_from([None, "u"]),
    service_id=st.sampled_from([None, "s"]),
    limit_key=st.sampled_from([None, None, "a", "b"]),
    headers=st.sampled_from([None, "{}"]),
    row_filter=row_filters,
)
due_offsets = st.sampled_from([None, None, None, -60.0, 0.0, 30.0])
"""Seconds from now for ``run_at``; None leaves it to ``delay``."""

lanes = st.builds(Lane, compared_topics, st.sampled_from([None, None, "", "x", "y"]))
free_slots = st.sampled_from([None, None, None, 0, 1, 2])
_rates = st.sampled_from([None, None, Rate(1, 60, 1), Rate(3, 1.0, 2), Rate(10, 60)])
limits_of_topics = st.one_of(
    st.none(),
    st.builds(
        TopicLimits,
        concurrency=st.sampled_from([None, 2, 3]),
        rate=_rates,
        key_concurrency=st.sampled_from([None, 1]),
        key_rate=_rates,
        ordered=st.booleans(),
        fair=st.just(True),
        weights=st.sampled_from([{}, {"other": 2}]),
        origin=st.sampled_from(LimitsOrigin),
    ),
    st.builds(
        TopicLimits,
        concurrency=st.sampled_from([1, 2, 5]),
        key_concurrency=st.sampled_from([None, 1]),
        key_rate=_rates,
        ordered=st.booleans(),
        origin=st.sampled_from(LimitsOrigin),
    ),
)
topic_limits = st.dictionaries(compared_topics, st.sampled_from([0, 1, 2]), max_size=2)

errors = st.builds(
    JobError,
    code=st.sampled_from(["boom", "other"]),
    message=st.sampled_from(["it broke", 'a "quoted"\nline', "hit " * 80]),
    retryable=st.booleans(),
    details=st.sampled_from([None, {"at": [1, 2.5, None]}]),
    traceback=st.sampled_from([None, "line 1\nline 2"]),
)
outcomes = st.one_of(
    st.builds(Completed, st.sampled_from([None, b"null", b'"done"'])),
    st.builds(Retried, delays, errors),
    st.builds(Retried, st.just(0.0), errors),
    st.builds(Failed, errors, st.sampled_from(FailureOrigin), st.sampled_from([None, None, -1])),
    st.builds(Released, delays, st.sampled_from([None, None, 3]), st.booleans()),
    st.builds(Released, delays, st.none(), st.just(False), st.just(False)),
    st.builds(Cancelled, errors),
)
progresses = st.one_of(
    st.none(),
    st.builds(
        Progress,
        st.sampled_from([0.0, 33.3, 100.0]),
        st.sampled_from([None, "rendering"]),
        st.sampled_from([None, "two"]),
    ),
)
checkpoints = st.sampled_from([None, None, b"", b"page 3"])
steps = st.one_of(
    st.none(),
    st.builds(
        NewStep,
        st.sampled_from(["fetch", "store", "é"]),
        st.sampled_from([b"null", b"1", b'{"rows":[1,2]}']),
        st.sampled_from([0.0, 0.25]),
    ),
)

worker_names = st.sampled_from(["anna", "bert", "carl"])
worker_starts = st.sampled_from([1, 2])
workers = st.builds(
    WorkerRecord,
    name=worker_names,
    host=st.just("box"),
    pid=st.sampled_from([1, 4711]),
    version=st.just("0.1.0"),
    started_at=worker_starts,
    lanes=st.lists(lanes, max_size=2).map(tuple),
    running=st.sampled_from([0, 3]),
    stuck=st.sampled_from([0, 2]),
    loop_lag_seconds=st.sampled_from([0.0, 0.0125, 3.1]),
)

document_kinds = st.sampled_from(["note", "note", "other"])
document_ids = st.sampled_from(["a", "A", "é"])
documents = st.builds(
    NewDocument,
    kind=document_kinds,
    id=document_ids,
    body=st.sampled_from([b"{}", b"\x00\xff"]),
    expected_version=st.sampled_from([None, 0, 1, 2]),
)
document_lifetimes = st.sampled_from([None, None, 0.0, 30.0])
"""Seconds from now until one expires."""

filters: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "topic": compared_topics,
        "task": st.sampled_from(["", "x", "y", "unknown"]),
        "state": st.sampled_from([*State, *DerivedState]),
        "tenant": tenants,
        "key": st.sampled_from(["k", "m"]),
        "correlation_id": st.just("c"),
        "created_after": st.sampled_from([0.0, 30.0, 60.0, 90.0]),
        "created_before": st.sampled_from([30.0, 60.0, 90.0, 3600.0]),
        "text": texts,
        "condition": conditions,
    },
)
"""Of ``JobFilter``; times are seconds since the machine was started."""

time_steps = st.sampled_from([0.000001, 1.0, 4.999999, 5.0, 30.0, 60.0, 3600.0, 48 * 3600.0])
