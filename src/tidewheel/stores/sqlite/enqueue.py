"""Write new jobs of many callers in one transaction.

Keys are checked job by job, and topic limits call by call. All rows are then inserted together, with one pair
of statements for many jobs. A call with parents (``after=``) or with conditions on its key is written within
a savepoint, because it may have to be undone as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import Enqueued, NewDocument, NewJob, OnDuplicate
from tidewheel.core.topic_limits import NO_KEY
from tidewheel.errors import InvalidInput, KeyInUse, LimitExceeded, TidewheelError
from tidewheel.stores.enqueue import (
    Column,
    check_parents,
    check_store_limits,
    collapse_equal,
    column_in_microseconds,
    expand,
    jobs_to_columns,
    key_in_use_error,
)
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite import documents
from tidewheel.stores.sqlite.bulk_insert import to_blob, write_rows
from tidewheel.stores.sqlite.dependencies import add_parents, is_visible, release_dependents
from tidewheel.stores.sqlite.row_mapping import FORMAT_CODES, KEY_UNTIL
from tidewheel.stores.sqlite.tenant_scope import with_key_condition
from tidewheel.stores.sqlite.topic_limits import fair_topics
from tidewheel.stores.sqlite.write_transaction import (
    CounterDeltas,
    Metric,
    StateCode,
    WriteTransaction,
    savepoint,
)

_WAITING: Final = StateCode.WAITING.value
_READY: Final = StateCode.READY.value
_ENQUEUED: Final = Metric.ENQUEUED


NewJobRow = tuple[NewJob, int, int, int | None]
"""A job that is to be written with its number, when it is due and when it expires."""


def insert_jobs(transaction: WriteTransaction, rows: Sequence[NewJobRow]) -> None:
    """Write these jobs, count them, and remember whom to wake."""
    if not rows:
        return
    number = len(rows)
    jobs, numbers, due, expires_ats = zip(*rows, strict=True)
    of = jobs_to_columns(jobs)
    now = transaction.now
    run_ats = collapse_equal(due)
    states = [_WAITING if run_at > now else _READY for run_at in run_ats]
    write_rows(
        transaction.connection,
        "tidewheel_jobs",
        number,
        {
            "number": numbers,
            "id": [to_blob(job_id.bytes) for job_id in of["id"]],
            "state": states,
            "topic": of["topic"],
            "task": of["task"],
            "tenant": of["tenant"],
            "priority": of["priority"],
            "run_at": run_ats,
            "created_at": (now,),
            "max_attempts": of["max_attempts"],
            "timeout_us": column_in_microseconds(of["timeout"]),
            "lease_us": column_in_microseconds(of["lease_seconds"]),
            "retention_us": column_in_microseconds(of["retention"]),
            "retention_failed_us": column_in_microseconds(of["retention_failed"]),
            "expires_at": collapse_equal(expires_ats),
            "retry": of["retry"],
            "key": of["key"],
            "key_until": collapse_equal(
                [None if job.key is None else KEY_UNTIL[job.key_until] for job in jobs]
            ),
            "correlation_id": of["correlation_id"],
            "user_id": of["user_id"],
            "service_id": of["service_id"],
            "limit_key": _stored_limit_keys(transaction, of["topic"], of["limit_key"]),
            "headers": of["headers"],
        },
    )
    write_rows(
        transaction.connection,
        "tidewheel_bodies",
        number,
        {
            "number": numbers,
            "format": [FORMAT_CODES[body_format] for body_format in of["format"]],
            "payload": [to_blob(payload) for payload in of["payload"]],
        },
    )
    _count_new_jobs(transaction, number, of["tenant"], of["topic"], of["task"], states)


def _stored_limit_keys(transaction: WriteTransaction, topics: Column, limit_keys: Column) -> Column:
    """With an empty one for jobs of fair topics that have none."""
    fair = fair_topics(transaction.connection)
    if not fair or fair.isdisjoint(topics):
        return limit_keys
    number = max(len(topics), len(limit_keys))
    pairs = zip(expand(topics, number), expand(limit_keys, number), strict=True)
    return [NO_KEY if key is None and topic in fair else key for topic, key in pairs]


def _count_new_jobs(
    transaction: WriteTransaction, number: int, tenants: Column, topics: Column, tasks: Column, states: Column
) -> None:
    if len(tenants) == len(topics) == len(tasks) == len(states) == 1:
        lanes = {(tenants[0], topics[0], tasks[0], states[0]): number}
    else:
        columns = [expand(column, number) for column in (tenants, topics, tasks, states)]
        lanes = Counter(zip(*columns, strict=True))
    for (tenant, topic, task, state), n in lanes.items():
        transaction.counter_deltas.count_transition(tenant, topic, task, None, state, n)
        transaction.counter_deltas.count_event(transaction.now, _ENQUEUED, topic, task, n)
        # Also for delayed jobs: a sleeping worker has to learn when to get up.
        transaction.ready_topics.add(topic)


_sql = SqlFile("tidewheel.stores.sqlite", "sql/enqueue.sql")


def enqueue(
    transaction: WriteTransaction, calls: Sequence[Sequence[NewJob]]
) -> list[list[Enqueued] | TidewheelError]:
    """Every call's jobs, with one pair of statements for many of them."""
    rows: list[NewJobRow] = []
    number = transaction.reserve_sequence("number", sum(map(len, calls)))
    limited = transaction.limits.max_topics or transaction.limits.max_jobs_per_topic
    answers: list[list[Enqueued] | TidewheelError] = []
    for jobs in calls:
        if limited and (problem := _check_limits(transaction, jobs, rows)):
            answers.append(problem)
            continue
        if True in [job.after != () or (job.row_filter is not None and job.key is not None) for job in jobs]:
            insert_jobs(transaction, rows)
            rows.clear()
            answers.append(_enqueue_in_savepoint(transaction, jobs, number))
            number += len(jobs)
            continue
        answer: list[Enqueued] = []
        for job in jobs:
            answer.append(_add(transaction, job, number, rows))
            number += 1
        answers.append(answer)
    insert_jobs(transaction, rows)
    return answers


def _enqueue_in_savepoint(
    transaction: WriteTransaction, jobs: Sequence[NewJob], number: int
) -> list[Enqueued] | TidewheelError:
    """Write a call that is undone as a whole if a job to run after is not there or a key is not to be met."""
    part = transaction.nested()
    rows: list[NewJobRow] = []
    try:
        with savepoint(transaction.connection, "tidewheel_after"):
            check_parents(jobs)
            answer = [_add(part, job, place, rows) for place, job in enumerate(jobs, number)]
            insert_jobs(part, rows)
            written = {one.job_id for one in answer if not one.duplicate}
            add_parents(part, [job for job in jobs if job.after and job.id in written])
            if part.parents_ended:
                release_dependents(part)
    except (InvalidInput, KeyInUse) as error:
        return error
    transaction.absorb(part)
    return answer


def enqueue_in_transaction(transaction: WriteTransaction, jobs: Sequence[NewJob]) -> list[Enqueued]:
    """One call's jobs, in a transaction that others have to do with; what is refused leaves it as it was."""
    part = transaction.nested()
    with savepoint(transaction.connection, "tidewheel_enqueue"):
        (answer,) = enqueue(part, [jobs])
        if isinstance(answer, TidewheelError):
            raise answer
        # At once: its owner may go back behind it, to a savepoint of their own, and the next one counts it.
        part.counter_deltas.write(transaction.connection)
        part.counter_deltas = CounterDeltas()
    transaction.absorb(part)
    return answer


def enqueue_with_document(
    transaction: WriteTransaction, call: tuple[NewDocument, Sequence[NewJob]]
) -> list[Enqueued] | None:
    """A document and jobs. What is raised here undoes both."""
    document, jobs = call
    if documents.write_documents(transaction, [document]) == [None]:
        return None
    (answer,) = enqueue(transaction, [jobs]) if jobs else ([],)
    if isinstance(answer, TidewheelError):
        raise answer
    return answer


def _add(transaction: WriteTransaction, job: NewJob, number: int, rows: list[NewJobRow]) -> Enqueued:
    now = run_at = transaction.now
    if job.run_at is not None:
        run_at = max(job.run_at, now)  # a past one means now: nobody has waited for a job before it existed
    elif job.delay:
        run_at += seconds_to_microseconds(job.delay)
    expires_at = job.expires_at
    if expires_at is None and job.expires_in is not None:
        expires_at = now + seconds_to_microseconds(job.expires_in)
    if job.key is not None:
        taken = (job.tenant, job.task or job.topic, job.key, number)
        if transaction.connection.execute(_sql["take_key"], taken).fetchone() is None:
            # The holder may be a job of this very transaction that is not written yet.
            insert_jobs(transaction, rows)
            rows.clear()
            return _duplicate(transaction, job, run_at, expires_at)
    rows.append((job, number, run_at, expires_at))
    return Enqueued(job.id, number, now, run_at)


def _duplicate(transaction: WriteTransaction, job: NewJob, run_at: int, expires_at: int | None) -> Enqueued:
    connection = transaction.connection
    key = (job.tenant, job.task or job.topic, job.key)
    holder = connection.execute(with_key_condition(_sql["key_holder"]), key).fetchone()
    number, id_bytes, state, created_at, held_run_at, attempt, tenant, topic, task, blocked = holder
    held = UUID(bytes=id_bytes)
    if not is_visible(transaction, job, held):
        raise key_in_use_error(job.key)
    if (
        job.on_duplicate is not OnDuplicate.REPLACE
        or state > StateCode.READY
        or attempt
        or connection.execute(_sql["has_saved"], {"number": number}).fetchone()[0]
    ):
        return Enqueued(held, number, created_at, held_run_at, duplicate=True)
    new_state = StateCode.WAITING if run_at > transaction.now or blocked else StateCode.READY
    connection.execute(_sql["replace_job"], (new_state.value, job.priority, run_at, expires_at, number))
    connection.execute(_sql["replace_body"], (FORMAT_CODES[job.format], job.payload, number))
    transaction.counter_deltas.count_transition(tenant, topic, task, state, new_state)
    transaction.ready_topics.add(topic)
    return Enqueued(held, number, created_at, run_at, duplicate=True, replaced=True)


def _check_limits(
    transaction: WriteTransaction, jobs: Sequence[NewJob], rows: list[NewJobRow]
) -> LimitExceeded | None:
    """Whether these jobs would pass a limit, counting what this transaction has not written yet."""
    limits, execute = transaction.limits, transaction.connection.execute
    added: Counter[str] = Counter()
    keys = set()
    for job in jobs:
        key = (job.tenant, job.task or job.topic, job.key)
        if job.key is not None:
            if key in keys or execute(with_key_condition(_sql["key_taken"]), key).fetchone()[0]:
                continue  # a duplicate adds nothing
            keys.add(key)
        added[job.topic] += 1
    unwritten = Counter(row[0].topic for row in rows)
    return check_store_limits(
        limits,
        added,
        topics=lambda: {row[0] for row in execute(_sql["topics_with_jobs"])} | unwritten.keys(),
        active=lambda topic: execute(_sql["count_active"], (topic,)).fetchone()[0] + unwritten[topic],
    )
