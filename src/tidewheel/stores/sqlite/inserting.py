"""New jobs into their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from tidewheel.limits import NO_KEY
from tidewheel.model import BodyFormat, KeyLifetime, NewJob
from tidewheel.stores.columns import Column, columns_of, microseconds, shared, spread
from tidewheel.stores.sqlite.limiting import fair_topics
from tidewheel.stores.sqlite.rows import blob, write_rows
from tidewheel.stores.sqlite.transaction import Code, Metric, Transaction

KEY_UNTIL: Final = {KeyLifetime.PRUNED: 0, KeyLifetime.FINISHED: 1}
UNTIL_FINISHED: Final = KEY_UNTIL[KeyLifetime.FINISHED]
FORMAT_CODES: Final = {BodyFormat.JSON: 0, BodyFormat.BYTES: 1}
FORMATS: Final = {code: name for name, code in FORMAT_CODES.items()}

_WAITING: Final = Code.WAITING.value
_READY: Final = Code.READY.value
_ENQUEUED: Final = Metric.ENQUEUED


NewRow = tuple[NewJob, int, int, int | None]
"""A job that is to be written with its number, when it is due and when it expires."""


def insert(transaction: Transaction, rows: Sequence[NewRow]) -> None:
    """Write these jobs, count them, and remember whom to wake."""
    if not rows:
        return
    number = len(rows)
    jobs, numbers, due, expires_ats = zip(*rows, strict=True)
    of = columns_of(jobs)
    now = transaction.now
    run_ats = shared(due)
    states = [_WAITING if run_at > now else _READY for run_at in run_ats]
    write_rows(
        transaction.connection,
        "tidewheel_jobs",
        number,
        {
            "number": numbers,
            "id": [blob(job_id.bytes) for job_id in of["id"]],
            "state": states,
            "topic": of["topic"],
            "task": of["task"],
            "tenant": of["tenant"],
            "priority": of["priority"],
            "run_at": run_ats,
            "created_at": (now,),
            "max_attempts": of["max_attempts"],
            "timeout_us": microseconds(of["timeout"]),
            "lease_us": microseconds(of["lease_seconds"]),
            "retention_us": microseconds(of["retention"]),
            "retention_failed_us": microseconds(of["retention_failed"]),
            "expires_at": shared(expires_ats),
            "retry": of["retry"],
            "key": of["key"],
            "key_until": shared([None if job.key is None else KEY_UNTIL[job.key_until] for job in jobs]),
            "correlation_id": of["correlation_id"],
            "user_id": of["user_id"],
            "service_id": of["service_id"],
            "limit_key": _limit_keys(transaction, of["topic"], of["limit_key"]),
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
            "payload": [blob(payload) for payload in of["payload"]],
        },
    )
    _count(transaction, number, of["tenant"], of["topic"], of["task"], states)


def _limit_keys(transaction: Transaction, topics: Column, limit_keys: Column) -> Column:
    """With an empty one for jobs of fair topics that have none."""
    fair = fair_topics(transaction.connection)
    if not fair or fair.isdisjoint(topics):
        return limit_keys
    number = max(len(topics), len(limit_keys))
    pairs = zip(spread(topics, number), spread(limit_keys, number), strict=True)
    return [NO_KEY if key is None and topic in fair else key for topic, key in pairs]


def _count(
    transaction: Transaction, number: int, tenants: Column, topics: Column, tasks: Column, states: Column
) -> None:
    if len(tenants) == len(topics) == len(tasks) == len(states) == 1:
        lanes = {(tenants[0], topics[0], tasks[0], states[0]): number}
    else:
        columns = [spread(column, number) for column in (tenants, topics, tasks, states)]
        lanes = Counter(zip(*columns, strict=True))
    for (tenant, topic, task, state), n in lanes.items():
        transaction.tally.moved(tenant, topic, task, None, state, n)
        transaction.tally.happened(transaction.now, _ENQUEUED, topic, task, n)
        # Also for delayed jobs: a sleeping worker has to learn when to get up.
        transaction.ready_topics.add(topic)
