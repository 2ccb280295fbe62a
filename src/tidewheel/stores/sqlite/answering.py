"""What operators ask: lanes, durations, failures, repeats, running jobs. All bounded."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from dataclasses import replace
from typing import Any
from uuid import UUID

from tidewheel.clock import seconds_to_microseconds
from tidewheel.conditions import asked
from tidewheel.findings import Failures, LaneDurations, RepeatGroup, Repeats, TaskStats
from tidewheel.model import JobFilter, JobRecord, State
from tidewheel.stores.grouping import (
    Alike,
    Failed,
    FailureGroups,
    Happened,
    LaneName,
    add_series,
    between_others,
    found_repeats,
    summarise_lanes,
    told_lanes,
    with_series,
)
from tidewheel.stores.protocol import (
    COMPARED_PAYLOAD_BYTES,
    LANE_MINUTES_KEPT_SECONDS,
    MAX_LOOKED_AT,
    TREND_PARTS,
)
from tidewheel.stores.queries import Queries
from tidewheel.stores.sqlite.looking import Looking
from tidewheel.stores.sqlite.recording import record
from tidewheel.stores.sqlite.scoping import find
from tidewheel.stores.sqlite.selecting import Source, select
from tidewheel.stores.sqlite.transaction import Code

_sql = Queries("tidewheel.stores.sqlite.sql", "answer.sql")
_BY_TENANT = {"index": "tidewheel_jobs_tenant"}
_read_sql = Queries("tidewheel.stores.sqlite.sql", "read.sql")


def lanes(
    connection: sqlite3.Connection, now: int, window_seconds: float, tenant: str | None
) -> list[TaskStats]:
    counts = _lane_counts(connection, now, tenant)
    if tenant is not None:
        return told_lanes(counts, None)
    since = now - seconds_to_microseconds(min(window_seconds, LANE_MINUTES_KEPT_SECONDS))
    happened = {
        (topic, task): Happened(*numbers)
        for topic, task, *numbers in connection.execute(_sql["happened"], (since,))
    }
    found = told_lanes(counts, happened)
    minutes: defaultdict[LaneName, dict[int, Happened]] = defaultdict(dict)
    wanted = json.dumps(with_series(found))
    for minute, topic, task, *events in connection.execute(_sql["minutes"], (since, wanted)):
        minutes[topic, task][minute] = Happened(*events)
    return add_series(found, minutes)


def _lane_counts(connection: sqlite3.Connection, now: int, tenant: str | None) -> dict[LaneName, TaskStats]:
    by_state: defaultdict[LaneName, list[int]] = defaultdict(lambda: [0] * len(Code))
    for topic, task, state, n in find(connection, _sql["lane_counts"], tenant):
        if n:
            by_state[topic, task][state] = n
    late: dict[LaneName, int] = {}
    if any(numbers[Code.WAITING] for numbers in by_state.values()):
        rows = find(connection, _sql["due_but_waiting"], tenant, (now, MAX_LOOKED_AT))
        late = {(topic, task): n for topic, task, n in rows}
    return {
        name: TaskStats(
            *name, waiting + ready, ready + late.get(name, 0), running, completed, failed, cancelled
        )
        for name, (waiting, ready, running, completed, failed, cancelled) in by_state.items()
    }


def durations(connection: sqlite3.Connection, tenant: str | None) -> list[LaneDurations]:
    statement, parts = _sql["durations"], {}
    if between_others(tenant):
        statement, parts = _sql["durations_of_tenant"], _BY_TENANT
    times: defaultdict[LaneName, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for topic, task, run_time, wait_time in find(connection, statement, tenant, (MAX_LOOKED_AT,), **parts):
        runs, waits = times[topic, task]
        runs.append(run_time)
        waits.append(wait_time)
    return summarise_lanes(times)


def find_failures(
    connection: sqlite3.Connection, where: JobFilter, now: int, *, window_seconds: float, limit: int
) -> Failures:
    where = replace(where, state=State.FAILED)
    window = seconds_to_microseconds(window_seconds)
    further = False
    if (condition := asked(where)) is not None:  # it may take a search
        looking = Looking(connection, where, condition, now)
        numbers, further = looking.numbers(limit=MAX_LOOKED_AT)
        source = Source("", _sql["these"], [json.dumps(numbers)])
    else:
        source = select(connection, where, now)
    since = now - window
    rows = find(
        connection,
        _sql["failures"],
        where.tenant,
        (
            *source.values,
            MAX_LOOKED_AT + 1,
            MAX_LOOKED_AT,
            since,
            since,
            TREND_PARTS,
            window,
            TREND_PARTS - 1,
        ),
        hint=source.hint,
        conditions=source.conditions,
    ).fetchall()
    groups = FailureGroups([Failed._make(row[:-1]) for row in rows], limit)
    ids = dict(connection.execute(_sql["ids"], (json.dumps(groups.numbers),)).fetchall())
    complete = not further and (not rows or not rows[0][-1])
    return groups.told({number: UUID(bytes=found) for number, found in ids.items()}, complete=complete)


def repeats(connection: sqlite3.Connection, limit: int, tenant: str | None) -> Repeats:
    statement, parts = _sql["repeated_payloads"], {}
    if between_others(tenant):
        statement, parts = _sql["repeated_payloads_of_tenant"], _BY_TENANT
    keyed = find(connection, _sql["repeated_keys"], tenant, (MAX_LOOKED_AT,)).fetchall()
    alike = find(connection, statement, tenant, (MAX_LOOKED_AT, COMPARED_PAYLOAD_BYTES), **parts).fetchall()
    counts = find(connection, _sql["lane_counts"], tenant).fetchall()
    return found_repeats(
        map(_alike, keyed),
        map(_alike, alike),
        limit,
        tenant=tenant,
        jobs=sum(n for _, _, _, n in counts),
        pending=sum(n for _, _, state, n in counts if state in (Code.WAITING, Code.READY)),
    )


def _alike(row: tuple[Any, ...]) -> Alike:
    number, count, tenant, topic, task, key, newest, oldest = row
    return Alike(number, RepeatGroup(tenant, topic, task, key, count, UUID(bytes=newest), UUID(bytes=oldest)))


def longest_running(connection: sqlite3.Connection, limit: int, tenant: str | None) -> list[JobRecord]:
    rows = find(connection, _sql["longest_running"], tenant, (limit,), columns=_read_sql["columns"])
    return [record(row) for row in rows]
