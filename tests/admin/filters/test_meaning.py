"""The meaning of a filter equals a straightforward evaluation of what was written."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tidewheel.admin.filters import parse_filter
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.conditions import matches
from tidewheel.core.filter_pushdown import push_down
from tidewheel.core.fingerprints import job_fingerprint
from tidewheel.core.model import JobFilter, JobRecord, State
from tidewheel.stores.memory.job_queries import _matches
from tidewheel.testing.agreement.strategies import conditions

NOW = 2_000_000_000 * MICROSECONDS

records = st.builds(
    JobRecord,
    id=st.just(UUID(int=0)),
    number=st.just(1),
    tenant=st.sampled_from(["root", "other"]),
    topic=st.sampled_from(["a", "b", "c"]),
    task=st.sampled_from(["", "x"]),
    state=st.sampled_from(State),
    priority=st.sampled_from([-1, 0, 1, 5]),
    attempt=st.sampled_from([0, 1, 2]),
    max_attempts=st.sampled_from([None, 3]),
    created_at=st.sampled_from([NOW, NOW - 3600 * MICROSECONDS, NOW - 1, 0, 30 * MICROSECONDS]),
    run_at=st.sampled_from([NOW, NOW + 1, 60 * MICROSECONDS]),
    started_at=st.sampled_from([None, NOW]),
    finished_at=st.sampled_from([None, NOW]),
    worker=st.sampled_from([None, "anna"]),
    key=st.sampled_from([None, "k"]),
    correlation_id=st.sampled_from([None, "c"]),
    user_id=st.sampled_from([None, "u"]),
    limit_key=st.sampled_from([None, "l"]),
    error_summary=st.sampled_from([None, "boom: it broke"]),
    payload=st.sampled_from([b"{}", b'{"n":1}', b'{"n":"1","name":"hit"}']),
)

# What is written, and what anybody would take it for.
TERMS: dict[str, Any] = {
    "state:failed": lambda job: job.state is State.FAILED,
    "state:running,completed": lambda job: job.state in (State.RUNNING, State.COMPLETED),
    "state!=pending": lambda job: job.state is not State.PENDING,
    "topic:a": lambda job: job.topic == "a",
    "topic>a": lambda job: job.topic > "a",
    'task:""': lambda job: not job.task,
    "tenant:other": lambda job: job.tenant == "other",
    "key:*": lambda job: job.key is not None,
    "user!=u": lambda job: job.user_id != "u",
    "limit_key:l": lambda job: job.limit_key == "l",
    "worker~nn": lambda job: "nn" in (job.worker or ""),
    "priority>=1": lambda job: job.priority >= 1,
    "attempts<2": lambda job: job.attempt < 2,
    "max_attempts>1": lambda job: (job.max_attempts or 0) > 1,
    "max_attempts!=none": lambda job: job.max_attempts is not None,
    "started:*": lambda job: job.started_at is not None,
    "finished>1d": lambda job: job.finished_at not in (None, NOW),
    "finished<1d": lambda job: job.finished_at is not None,
    "age>=1h": lambda job: job.created_at <= NOW - 3600 * MICROSECONDS,
    "created>=1h": lambda job: job.created_at <= NOW - 3600 * MICROSECONDS,
    "created<1h": lambda job: job.created_at > NOW - 3600 * MICROSECONDS,
    "due<+1h": lambda job: job.run_at < NOW + 3600 * MICROSECONDS,
    "due>now": lambda job: job.run_at > NOW,
    'error:"it broke"': lambda job: job.error_summary is not None,
    'any_error:"it broke"': lambda job: job.error_summary is not None,
    f"fingerprint:{job_fingerprint('a', 'x', 'boom: it broke')}": lambda job: (
        (job.topic, job.task) == ("a", "x") and job.error_summary is not None
    ),
    "hit": lambda job: b"hit" in job.payload,
    "payload.n:1": lambda job: b'"n"' in job.payload,
    'payload.n:"1"': lambda job: b'"n":"1"' in job.payload,
    "payload.name:null": lambda job: b"name" not in job.payload,
}

terms: st.SearchStrategy[tuple[str, Any]] = st.sampled_from(list(TERMS.items()))


def _either(parts: list[tuple[str, Any]]) -> tuple[str, Any]:
    text = "(" + " OR ".join(part[0] for part in parts) + ")"
    return text, lambda job: any(part[1](job) for part in parts)


def _both(parts: list[tuple[str, Any]]) -> tuple[str, Any]:
    return "(" + " ".join(part[0] for part in parts) + ")", lambda job: all(part[1](job) for part in parts)


def _not(part: tuple[str, Any]) -> tuple[str, Any]:
    return f"NOT {part[0]}", lambda job: not part[1](job)


queries = st.recursive(
    terms,
    lambda part: st.one_of(
        part.map(_not),
        st.lists(part, min_size=1, max_size=3).map(_both),
        st.lists(part, min_size=1, max_size=3).map(_either),
    ),
    max_leaves=8,
)


@given(query=queries, job=records)
@settings(max_examples=max(300, settings().max_examples))
def test_a_filter_means_what_anybody_would_take_it_for(query: tuple[str, Any], job: JobRecord) -> None:
    """Term by term, joined as they are written; and the same after it was written anew."""
    text, expected = query
    parsed = parse_filter(text, now=NOW)
    assert matches(parsed.condition, job, NOW) == expected(job)
    assert matches(parse_filter(str(parsed), now=NOW).condition, job, NOW) == expected(job)


fields: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "topic": st.sampled_from(["a", "b"]),
        "task": st.sampled_from(["", "x"]),
        "state": st.sampled_from(State),
        "tenant": st.sampled_from(["root", "other"]),
        "key": st.just("k"),
        "created_after": st.sampled_from([0, NOW - 1, NOW]),
        "created_before": st.sampled_from([1, NOW, NOW + 1]),
    },
)


def _in(where: JobFilter, job: Any) -> bool:
    wanted = where.tenant in (None, job.tenant) and _matches(job, where, NOW)
    return wanted and (where.condition is None or matches(where.condition, job, NOW))


@given(condition=conditions, given_fields=fields, job=records)
@settings(max_examples=max(500, settings().max_examples))
def test_narrowing_changes_how_jobs_are_found_and_not_which(
    condition: Any, given_fields: dict[str, Any], job: JobRecord
) -> None:
    """Fields that indexes serve say what the condition said; contradictions leave nothing."""
    where = JobFilter(**given_fields)
    assert _in(push_down(where, condition), job) == (_in(where, job) and matches(condition, job, NOW))


def test_what_indexes_serve_becomes_fields() -> None:
    """Beside anything else, not under OR or NOT."""
    query = "topic:mail task:send state:failed tenant:acme key:k correlation:c created<=0d user:u"
    where = push_down(JobFilter(), parse_filter(query, now=NOW).condition)
    assert (where.topic, where.task, where.state, where.tenant) == ("mail", "send", State.FAILED, "acme")
    assert (where.key, where.correlation_id, where.created_after) == ("k", "c", NOW)
    assert where.condition == parse_filter("user:u", now=NOW).condition
    for query in ("topic:a OR topic:b", "-topic:a", 'key:""', "topic~a"):
        where = push_down(JobFilter(), parse_filter(query, now=NOW).condition)
        assert where == JobFilter(condition=where.condition)
        assert where.condition is not None
