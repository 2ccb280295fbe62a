"""Choose the index that serves a job filter, newest jobs first.

The filter and the counters decide, because the planner has no statistics and would guess. Bounds on the
creation time become ranges of job numbers, found by sampling some jobs.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidewheel.core.conditions import ALWAYS, is_counted, unindexed_condition
from tidewheel.core.model import ROOT_TENANT, DerivedState, JobFilter, State
from tidewheel.stores.condition_sql import condition_to_sql
from tidewheel.stores.query_plan import (
    SAMPLES_PER_ROUND,
    NumberRange,
    RangeSearch,
    Sample,
    SampleRequest,
    find_number_range,
)
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.condition_sql import SqliteDialect
from tidewheel.stores.sqlite.tenant_scope import execute_for_tenant

_sql = SqlFile("tidewheel.stores.sqlite", "sql/query_plan.sql")


def run_range_search(connection: sqlite3.Connection, asking: RangeSearch) -> NumberRange:
    """What it comes to, once everything it asks for was looked at."""
    try:
        wanted = next(asking)
        while True:
            wanted = asking.send(_read_samples(connection, wanted))
    except StopIteration as told:
        found: NumberRange = told.value
        return found


def _read_samples(connection: sqlite3.Connection, wanted: SampleRequest) -> list[Sample]:
    if wanted is None:
        rows = connection.execute(_sql["first_and_last"]).fetchall()
    else:
        first, last = wanted
        places = (first + (last - first) * i // (SAMPLES_PER_ROUND - 1) for i in range(SAMPLES_PER_ROUND))
        rows = [row for place in places for row in connection.execute(_sql["sample"], (place,))]
    return [Sample(*row) for row in rows]


MAX_SORTED_ROWS: Final = 10_000
"""So many jobs are put in order, rather than walking past others in theirs."""
COVERED_SPEEDUP: Final = 10
"""So many entries of an index that has the lanes are read in the time in which one job is looked up."""


@dataclass(slots=True)
class JobSource:
    """The jobs of a filter's fields as part of a statement; its condition and its tenant aside."""

    hint: str
    conditions: str
    values: list[object]


class _RowEstimates(NamedTuple):
    """How many jobs there are, whoever's they are."""

    topic: int
    pending: int
    waiting: int
    completed: int
    failed: int
    cancelled: int


def plan_query(
    connection: sqlite3.Connection,
    where: JobFilter,
    now: int,
    cursor: int | None = None,
    within: NumberRange | None = None,
) -> JobSource:
    """Where to look for them. Every value is a parameter; only fixed text is put together.

    ``within``: who has ``created_number_range`` already asks for the exact times by itself.
    """
    topic = where.topic
    if topic is None and where.task is not None:
        # A task nearly always lives in one topic, and topics are indexed.
        topics = [row[0] for row in connection.execute(_sql["topics_of_task"], (where.task,))]
        topic = topics[0] if len(topics) == 1 else None
    index = _choose_index(connection, where, topic)
    values = SqliteDialect(now)
    parts = _field_conditions(where, topic, values)
    if where.key is not None:
        parts.append(f"j.key = {values.add(where.key)}")
    if where.correlation_id is not None:
        parts.append(f"j.correlation_id = {values.add(where.correlation_id)}")
    if within is None:
        within = created_number_range(connection, where)
        if where.created_after is not None:
            parts.append(f"j.created_at >= {values.add(where.created_after)}")
        if where.created_before is not None:
            parts.append(f"j.created_at < {values.add(where.created_before)}")
    parts += [f"j.number < {values.add(below)}" for below in (cursor, within.below) if below is not None]
    if within.above is not None:
        parts.append(f"j.number > {values.add(within.above)}")
    return JobSource(f"INDEXED BY {index}" if index else "", " AND ".join(parts), values.parameters)


def created_number_range(connection: sqlite3.Connection, where: JobFilter) -> NumberRange:
    """The numbers of jobs that were created in the wanted time are between these."""
    if where.created_after is None and where.created_before is None:
        return NumberRange()
    return run_range_search(connection, find_number_range(where.created_after, where.created_before))


def count_from_counters(connection: sqlite3.Connection, where: JobFilter) -> int | None:
    """How many there are, from counters; None where none are kept of this."""
    if not is_counted(where):
        return None
    values = SqliteDialect(0)
    parts = [
        *_field_conditions(where, where.topic, values),
        condition_to_sql(unindexed_condition(where) or ALWAYS, values),
    ]
    statement, conditions = _sql["count_from_counters"], " AND ".join(parts)
    [total] = execute_for_tenant(
        connection, statement, where.tenant, values.parameters, conditions=conditions
    ).fetchone()
    return int(total)


def _field_conditions(where: JobFilter, topic: str | None, values: SqliteDialect) -> list[str]:
    """What jobs and their counters have in common."""
    parts = ["1"]
    if where.state is not None:
        parts.append(values.state(where.state))
    if topic is not None:
        parts.append(f"j.topic = {values.add(topic)}")
    if where.task is not None:
        parts.append(f"j.task = {values.add(where.task)}")
    return parts


def _choose_index(connection: sqlite3.Connection, where: JobFilter, topic: str | None) -> str | None:
    """What leaves few jobs is looked for first, whatever else they have to be; None is all of them.

    A tenant may have a million of them, and running ones are mostly old: walking from the newest would find
    them last.
    """
    if where.key is not None:
        return "tidewheel_jobs_key"
    if where.correlation_id is not None:
        return "tidewheel_jobs_correlation"
    if where.state in (State.RUNNING, DerivedState.CLAIMED):
        return "tidewheel_jobs_leased"
    of_tenant = where.tenant not in (None, ROOT_TENANT)
    if where.state is None and not of_tenant:
        return None if topic is None else "tidewheel_jobs_topic"
    crowds = _RowEstimates(*connection.execute(_sql["row_estimates"], (topic,)).fetchone())
    ways: list[tuple[int, str]] = []
    if where.state is not None:
        ways.append(_index_of_state(connection, where, where.state, crowds))
    if topic is not None:
        ways.append((crowds.topic, "tidewheel_jobs_topic"))
    if of_tenant:
        [crowd] = execute_for_tenant(connection, _sql["row_estimate_of_tenant"], where.tenant).fetchone()
        ways.append((crowd, "tidewheel_jobs_tenant"))
    return min(ways)[1]


def _index_of_state(
    connection: sqlite3.Connection, where: JobFilter, state: State | DerivedState, crowds: _RowEstimates
) -> tuple[int, str]:
    """How many jobs are in the index of this state, and its name."""
    match state:
        case State.COMPLETED:
            return crowds.completed, "tidewheel_jobs_completed"
        case State.FAILED | State.CANCELLED:
            crowd = crowds.failed if state is State.FAILED else crowds.cancelled
            by_lane = (where.topic, where.task) != (None, None)
            return crowd // COVERED_SPEEDUP if by_lane else crowd, "tidewheel_jobs_failed_or_cancelled"
        case DerivedState.RETRYING | DerivedState.BLOCKED:
            [found] = connection.execute(_sql[state], (MAX_SORTED_ROWS + 1,)).fetchone()
            return crowds.pending if found > MAX_SORTED_ROWS else found, f"tidewheel_jobs_{state}"
        case DerivedState.DELAYED if crowds.waiting <= MAX_SORTED_ROWS:
            return crowds.waiting, "tidewheel_jobs_waiting"
        case _:
            return crowds.pending, "tidewheel_jobs_pending"
