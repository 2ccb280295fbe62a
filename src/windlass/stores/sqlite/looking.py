"""Looking for jobs that meet a condition, newest first, for at most a second."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from windlass.conditions import (
    NEVER,
    Compare,
    ComparePayload,
    Condition,
    HoldsText,
    InState,
    holds,
    leaves,
    necessary,
)
from windlass.model import AttemptRecord, Count, JobFilter, JobRecord, Page
from windlass.stores.protocol import COUNT_LIMIT, SEARCH_SECONDS
from windlass.stores.queries import Queries
from windlass.stores.sqlite.compiling import verdict
from windlass.stores.sqlite.enqueueing import FORMATS
from windlass.stores.sqlite.recording import COLUMN_COUNT, attempt_records, record
from windlass.stores.sqlite.scoping import find
from windlass.stores.sqlite.selecting import conditions_of, hint

_sql = Queries("windlass.stores.sqlite.sql", "read.sql")
_VERDICT_COLUMNS = 3


class Looking:
    """One walk through the jobs of a filter's fields.

    SQLite says what it can of a condition; what is inside of payloads is told by Python.
    """

    def __init__(
        self, connection: sqlite3.Connection, where: JobFilter, condition: Condition, now: int
    ) -> None:
        self._connection = connection
        self._where = where
        self._condition = condition
        self._now = now
        self._into_payloads = any(isinstance(leaf, ComparePayload) for leaf in leaves(condition))
        self._into_errors = any(isinstance(leaf, HoldsText) for leaf in leaves(condition))
        self._last: tuple[Any, ...] | None = None  # number and time of the last job that was looked at
        self._ran_out = False

    def page(self, *, limit: int, cursor: int | None, offset: int) -> Page:
        # One more than asked for, to know whether there is a next page.
        found = list(islice(self._matching(cursor), offset, offset + limit + 1))
        items = self._records(found[:limit])
        if len(found) > limit:
            return Page(items, cursor=items[-1].number if items else None)
        if self._ran_out and self._last is not None:
            return Page(items, cursor=self._last[0], partial=True, searched_back_to=self._last[1])
        return Page(items)

    def count(self) -> Count:
        total = sum(1 for _ in islice(self._matching(None), COUNT_LIMIT + 1))
        return Count(min(total, COUNT_LIMIT), exact=total <= COUNT_LIMIT and not self._ran_out)

    def _matching(self, cursor: int | None) -> Iterator[int]:
        """Their numbers, falling, until the time is up."""
        deadline = time.monotonic() + SEARCH_SECONDS
        possible = necessary(self._condition, Compare, InState, HoldsText)
        if possible == NEVER:
            return
        rows = self._rows(possible, cursor)
        try:
            for row in rows:
                if row[2] and (not self._into_payloads or self._holds(row)):
                    yield row[0]
                if time.monotonic() > deadline:
                    self._last = row
                    self._ran_out = True
                    return
        finally:
            rows.close()  # or the connection would go on reading an old state of the file

    def _rows(self, possible: Condition, cursor: int | None) -> sqlite3.Cursor:
        conditions, values = conditions_of(self._connection, self._where, self._now)
        if cursor is not None:
            conditions += " AND j.number < ?"
            values.append(cursor)
        told, more = verdict(possible, self._now)
        parts = {"hint": hint(self._where), "conditions": conditions, "verdict": told}
        if self._into_payloads:
            statement, parts["columns"] = _sql["look_into"], _sql["columns"]
        else:
            statement = _sql["look"]
        return find(self._connection, statement, self._where.tenant, (*values, *more), **parts)

    def _holds(self, row: tuple[Any, ...]) -> bool:
        columns = row[_VERDICT_COLUMNS:]
        attempts: tuple[AttemptRecord, ...] = ()
        if self._into_errors:
            attempts = attempt_records(self._connection.execute(_sql["attempts"], (row[0],)))
        seen = record(
            columns,
            format=FORMATS[columns[COLUMN_COUNT]],
            payload=columns[COLUMN_COUNT + 1],
            attempts=attempts,
        )
        return holds(self._condition, seen, self._now)

    def _records(self, numbers: list[int]) -> tuple[JobRecord, ...]:
        """Read afresh: few of those that were looked at are shown. In the same snapshot, so all are there."""
        statement = _sql["found"].format(columns=_sql["columns"])
        rows = self._connection.execute(statement, (json.dumps(numbers),))
        return tuple(record(row) for row in rows)
