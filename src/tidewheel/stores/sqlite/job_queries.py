"""Get, list, search and count jobs on a read-only connection.

A search returns the newest jobs first and stops after about a second with a partial page. SQLite compares
columns and texts; Python compares fingerprints and values inside payloads. Lists read bodies only if the
condition needs them.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final
from uuid import UUID

from msgspec import structs

from tidewheel.core import fingerprints
from tidewheel.core.conditions import (
    ALWAYS,
    NEVER,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    ContainsText,
    Field,
    HasFingerprint,
    InState,
    LastErrorContains,
    Leaf,
    all_of,
    compare_payload,
    evaluate,
    leaves,
    necessary_condition,
    remaining_condition,
    unindexed_condition,
    uses_only_columns,
)
from tidewheel.core.model import Count, JobFilter, JobRecord, Lease, Page, State, StepRecord
from tidewheel.stores.bounds import COLUMN_SEARCH_SECONDS, MAX_COUNT, SEARCH_SECONDS
from tidewheel.stores.condition_sql import condition_to_sql
from tidewheel.stores.query_plan import split_filter
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.condition_sql import SqliteDialect
from tidewheel.stores.sqlite.dependencies import parents_of
from tidewheel.stores.sqlite.query_plan import count_from_counters, created_number_range, plan_query
from tidewheel.stores.sqlite.row_mapping import FORMATS, STATES, full_record, record
from tidewheel.stores.sqlite.tenant_scope import execute_for_tenant

_sql = SqlFile("tidewheel.stores.sqlite", "sql/job_queries.sql")

_DECIDED_BY_SQLITE: Final = (Compare, InState, ContainsText, LastErrorContains)
_NUMBER: Final = itemgetter(0)


class JobSearch:
    """One walk through the jobs of a filter's fields.

    SQLite decides what it can of a condition; Python compares values inside of payloads and fingerprints.
    """

    def __init__(
        self, connection: sqlite3.Connection, where: JobFilter, condition: Condition, now: int
    ) -> None:
        self._total = count_from_counters(connection, where)
        # What no index is chosen by is asked like the condition: under WHERE the database could walk through
        # all jobs for it, and nobody would see the time.
        condition = all_of(_creation_condition(where), condition)
        self._connection = connection
        self._where = where
        self._now = now
        self._possible = necessary_condition(condition, *_DECIDED_BY_SQLITE)
        self._decided_by_python = remaining_condition(condition, *_DECIDED_BY_SQLITE)
        # What the rest asks beside payloads comes with each row.
        self._decided_by_sqlite = [
            leaf for leaf in leaves(self._decided_by_python) if isinstance(leaf, _DECIDED_BY_SQLITE)
        ]
        self._last: tuple[Any, ...] | None = None  # number and time of the last job that was looked at
        self._timed_out = False
        self._seconds = (
            min(SEARCH_SECONDS, COLUMN_SEARCH_SECONDS) if uses_only_columns(condition) else SEARCH_SECONDS
        )

    def page(self, *, limit: int, cursor: int | None, offset: int) -> Page:
        numbers, further = self.numbers(limit=limit, cursor=cursor, offset=offset)
        items = self._records(numbers)
        if self._timed_out and self._last is not None:
            return Page(items, cursor=self._last[0], partial=True, searched_back_to=self._last[1])
        return Page(items, cursor=items[-1].number if items and further else None)

    def numbers(self, *, limit: int, cursor: int | None = None, offset: int = 0) -> tuple[list[int], bool]:
        """Those of a page, falling, and whether there are or may be more."""
        wanted = offset + limit + 1  # one more than asked for, to know whether there is a next page
        if self._total is not None and (cursor is None or self._total == 0):
            # When all there are have been found, nobody has to walk on to see that.
            wanted = min(wanted, self._total)
        found = list(islice(self._matching(cursor), offset, max(offset, wanted)))
        return found[:limit], len(found) > limit or self._timed_out

    def count(self) -> Count:
        total = sum(1 for _ in islice(self._matching(None), MAX_COUNT + 1))
        return Count(min(total, MAX_COUNT), exact=total <= MAX_COUNT and not self._timed_out)

    def _matching(self, cursor: int | None) -> Iterator[int]:
        """Their numbers, falling, until the time is up."""
        deadline = time.monotonic() + self._seconds
        if self._possible == NEVER:
            return
        with ExitStack() as stack:
            # Or the connection would go on reading an old state of the file.
            ways = [stack.enter_context(closing(rows)) for rows in self._row_streams(cursor)]
            for row in ways[0] if len(ways) == 1 else merge(*ways, key=_NUMBER, reverse=True):
                if row[2] and (self._decided_by_python == ALWAYS or self._holds(row)):
                    yield row[0]
                if time.monotonic() > deadline:
                    self._last = row
                    self._timed_out = True
                    return

    def _row_streams(self, cursor: int | None) -> Iterator[sqlite3.Cursor]:
        """Each in falling order, and no job in two of them."""
        within = created_number_range(self._connection, self._where)
        values = SqliteDialect(self._now)
        parts = {"verdict": condition_to_sql(self._possible, values)}
        if self._decided_by_python != ALWAYS:
            into_payloads = any(isinstance(leaf, ComparePayload) for leaf in leaves(self._decided_by_python))
            parts["body"] = "b.format, b.payload" if into_payloads else "NULL, NULL"
            parts["bodies"] = _sql["bodies"] if into_payloads else ""
            parts["told"] = ", ".join(
                [condition_to_sql(leaf, values) for leaf in self._decided_by_sqlite] or ["NULL"]
            )
        statement = _sql["scan" if self._decided_by_python == ALWAYS else "scan_with_bodies"]
        for where in split_filter(self._where):
            source = plan_query(self._connection, where, self._now, cursor, within)
            parts |= {"hint": source.hint, "conditions": source.conditions}
            yield execute_for_tenant(
                self._connection, statement, where.tenant, (*source.values, *values.parameters), **parts
            )

    def _holds(self, row: tuple[Any, ...]) -> bool:
        topic, task, summary, body_format, body, *verdicts = row[3:]
        told = dict(zip(self._decided_by_sqlite, verdicts, strict=False))

        def tell(leaf: Leaf) -> bool:
            match leaf:
                case ComparePayload():
                    return compare_payload(leaf, FORMATS[body_format], body)
                case HasFingerprint(fingerprint):
                    return fingerprints.job_fingerprint(topic, task, summary) == fingerprint
                case _:
                    return bool(told[leaf])

        return evaluate(self._decided_by_python, tell)

    def _records(self, numbers: list[int]) -> tuple[JobRecord, ...]:
        """Read afresh: few of those that were looked at are shown. In the same snapshot, so all are there."""
        statement = _sql["by_numbers"].format(columns=_sql["columns"])
        rows = self._connection.execute(statement, (json.dumps(numbers),))
        return tuple(record(row) for row in rows)


def _creation_condition(where: JobFilter) -> Condition:
    """When a filter wants jobs to have been created."""
    bounds: list[Condition] = []
    if where.created_after is not None:
        bounds.append(Compare(Field.CREATED_AT, Comparison.AT_LEAST, where.created_after))
    if where.created_before is not None:
        bounds.append(Compare(Field.CREATED_AT, Comparison.LESS, where.created_before))
    return all_of(*bounds)


_settlements_sql = SqlFile("tidewheel.stores.sqlite", "sql/settlements.sql")


def get(connection: sqlite3.Connection, job_id: UUID, tenant: str | None) -> JobRecord | None:
    row = execute_for_tenant(
        connection, _sql["get"], tenant, (job_id.bytes,), columns=_sql["columns"]
    ).fetchone()
    if row is None:
        return None
    return read_full_record(connection, row)


def read_full_record(connection: sqlite3.Connection, row: tuple[Any, ...]) -> JobRecord:
    """A row of ``get``, with what is kept in other tables: its last columns say whether there is any."""
    number = row[1]
    attempts = connection.execute(_sql["attempts"], (number,)).fetchall() if row[-3] else []
    full = full_record(row, attempts, steps_of(connection, number) if row[-2] else ())
    if not row[-1]:
        return full
    after, after_any = parents_of(connection, number)
    return structs.replace(full, after=after, after_any=after_any)


def states(connection: sqlite3.Connection, job_ids: Sequence[UUID], tenant: str | None) -> list[State | None]:
    answers: list[State | None] = []
    for job_id in job_ids:
        row = execute_for_tenant(connection, _sql["state"], tenant, (job_id.bytes,)).fetchone()
        answers.append(None if row is None else STATES[row[0]])
    return answers


def finished_steps(connection: sqlite3.Connection, lease: Lease, now: int) -> tuple[StepRecord, ...] | None:
    # Nobody but the holder of the lease adds to them, so they may be read after it was found to hold.
    row = connection.execute(_settlements_sql["leased"], (lease.job_id.bytes, lease.fence, now)).fetchone()
    return None if row is None else steps_of(connection, row[0])


def steps_of(connection: sqlite3.Connection, number: int) -> tuple[StepRecord, ...]:
    return tuple([StepRecord(*row) for row in connection.execute(_sql["steps"], (number,))])


def cancel_requests(connection: sqlite3.Connection, leases: Sequence[Lease], now: int) -> list[Lease]:
    asked = {(row[0], row[1]) for row in connection.execute(_settlements_sql["cancel_requests"], (now,))}
    return [lease for lease in leases if (lease.job_id.bytes, lease.fence) in asked] if asked else []


def list_jobs(
    connection: sqlite3.Connection, where: JobFilter, *, limit: int, cursor: int | None, offset: int, now: int
) -> Page:
    if (condition := unindexed_condition(where)) is not None:
        looking = JobSearch(connection, where, condition, now)
        return looking.page(limit=limit, cursor=cursor, offset=offset)
    wanted = limit + 1  # one more than asked for, to know whether there is a next page
    if where.state is not None and (total := count_from_counters(connection, where)) is not None:
        # When all there are have been found, nobody has to walk on to see that.
        wanted = min(wanted, max(total - offset, 0)) if cursor is None or total == 0 else wanted
    source = plan_query(connection, where, now, cursor)
    parts = {"columns": _sql["columns"], "hint": source.hint, "conditions": source.conditions}
    rows = execute_for_tenant(
        connection, _sql["page"], where.tenant, (*source.values, wanted, offset), **parts
    ).fetchall()
    items = tuple(record(row) for row in rows[:limit])
    return Page(items, cursor=items[-1].number if len(rows) > limit else None)


def count(connection: sqlite3.Connection, where: JobFilter, now: int, *, beyond: bool) -> Count:
    total = count_from_counters(connection, where)
    if total is not None and beyond:
        return Count(total)
    if total is None:
        if (condition := unindexed_condition(where)) is not None:
            return JobSearch(connection, where, condition, now).count()
        source = plan_query(connection, where, now)
        parts = {"hint": source.hint, "conditions": source.conditions}
        values = (*source.values, MAX_COUNT + 1)
        [total] = execute_for_tenant(connection, _sql["count"], where.tenant, values, **parts).fetchone()
    return Count(min(total, MAX_COUNT), exact=total <= MAX_COUNT)
