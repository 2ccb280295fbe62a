"""Looking for jobs that meet a condition, newest first, for at most a second."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final

from tidewheel import fingerprints
from tidewheel.conditions import (
    ALWAYS,
    NEVER,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    Field,
    HasFingerprint,
    HoldsText,
    InState,
    LastErrorHolds,
    Leaf,
    all_of,
    beyond,
    compare_payload,
    decide,
    leaves,
    necessary,
    of_columns,
)
from tidewheel.model import Count, JobFilter, JobRecord, Page
from tidewheel.stores.alternatives import alternatives
from tidewheel.stores.compiling import to_sql
from tidewheel.stores.protocol import COLUMN_SEARCH_SECONDS, COUNT_LIMIT, SEARCH_SECONDS
from tidewheel.stores.queries import Queries
from tidewheel.stores.sqlite.compiling import Values
from tidewheel.stores.sqlite.inserting import FORMATS
from tidewheel.stores.sqlite.recording import record
from tidewheel.stores.sqlite.scoping import find
from tidewheel.stores.sqlite.selecting import counted, created_within, select

_sql = Queries("tidewheel.stores.sqlite.sql", "read.sql")

_TOLD_BY_SQLITE: Final = (Compare, InState, HoldsText, LastErrorHolds)
_NUMBER: Final = itemgetter(0)


class Looking:
    """One walk through the jobs of a filter's fields.

    SQLite decides what it can of a condition; Python compares values inside of payloads and fingerprints.
    """

    def __init__(
        self, connection: sqlite3.Connection, where: JobFilter, condition: Condition, now: int
    ) -> None:
        self._total = counted(connection, where)
        # What no index is chosen by is asked like the condition: under WHERE the database could walk through
        # all jobs for it, and nobody would see the time.
        condition = all_of(_created(where), condition)
        self._connection = connection
        self._where = where
        self._now = now
        self._possible = necessary(condition, *_TOLD_BY_SQLITE)
        self._rest = beyond(condition, *_TOLD_BY_SQLITE)
        # What the rest asks beside payloads comes with each row.
        self._told = [leaf for leaf in leaves(self._rest) if isinstance(leaf, _TOLD_BY_SQLITE)]
        self._last: tuple[Any, ...] | None = None  # number and time of the last job that was looked at
        self._ran_out = False
        self._seconds = (
            min(SEARCH_SECONDS, COLUMN_SEARCH_SECONDS) if of_columns(condition) else SEARCH_SECONDS
        )

    def page(self, *, limit: int, cursor: int | None, offset: int) -> Page:
        numbers, further = self.numbers(limit=limit, cursor=cursor, offset=offset)
        items = self._records(numbers)
        if self._ran_out and self._last is not None:
            return Page(items, cursor=self._last[0], partial=True, searched_back_to=self._last[1])
        return Page(items, cursor=items[-1].number if items and further else None)

    def numbers(self, *, limit: int, cursor: int | None = None, offset: int = 0) -> tuple[list[int], bool]:
        """Those of a page, falling, and whether there are or may be more."""
        wanted = offset + limit + 1  # one more than asked for, to know whether there is a next page
        if self._total is not None and (cursor is None or self._total == 0):
            # When all there are have been found, nobody has to walk on to see that.
            wanted = min(wanted, self._total)
        found = list(islice(self._matching(cursor), offset, max(offset, wanted)))
        return found[:limit], len(found) > limit or self._ran_out

    def count(self) -> Count:
        total = sum(1 for _ in islice(self._matching(None), COUNT_LIMIT + 1))
        return Count(min(total, COUNT_LIMIT), exact=total <= COUNT_LIMIT and not self._ran_out)

    def _matching(self, cursor: int | None) -> Iterator[int]:
        """Their numbers, falling, until the time is up."""
        deadline = time.monotonic() + self._seconds
        if self._possible == NEVER:
            return
        with ExitStack() as stack:
            # Or the connection would go on reading an old state of the file.
            ways = [stack.enter_context(closing(rows)) for rows in self._ways(cursor)]
            for row in ways[0] if len(ways) == 1 else merge(*ways, key=_NUMBER, reverse=True):
                if row[2] and (self._rest == ALWAYS or self._holds(row)):
                    yield row[0]
                if time.monotonic() > deadline:
                    self._last = row
                    self._ran_out = True
                    return

    def _ways(self, cursor: int | None) -> Iterator[sqlite3.Cursor]:
        """Each in falling order, and no job in two of them."""
        within = created_within(self._connection, self._where)
        values = Values(self._now)
        parts = {"verdict": to_sql(self._possible, values)}
        if self._rest != ALWAYS:
            into_payloads = any(isinstance(leaf, ComparePayload) for leaf in leaves(self._rest))
            parts["body"] = "b.format, b.payload" if into_payloads else "NULL, NULL"
            parts["bodies"] = _sql["bodies"] if into_payloads else ""
            parts["told"] = ", ".join([to_sql(leaf, values) for leaf in self._told] or ["NULL"])
        statement = _sql["look" if self._rest == ALWAYS else "look_into"]
        for where in alternatives(self._where):
            source = select(self._connection, where, self._now, cursor, within)
            parts |= {"hint": source.hint, "conditions": source.conditions}
            yield find(self._connection, statement, where.tenant, (*source.values, *values.all), **parts)

    def _holds(self, row: tuple[Any, ...]) -> bool:
        topic, task, summary, body_format, body, *verdicts = row[3:]
        told = dict(zip(self._told, verdicts, strict=False))

        def tell(leaf: Leaf) -> bool:
            match leaf:
                case ComparePayload():
                    return compare_payload(leaf, FORMATS[body_format], body)
                case HasFingerprint(fingerprint):
                    return fingerprints.of_job(topic, task, summary) == fingerprint
                case _:
                    return bool(told[leaf])

        return decide(self._rest, tell)

    def _records(self, numbers: list[int]) -> tuple[JobRecord, ...]:
        """Read afresh: few of those that were looked at are shown. In the same snapshot, so all are there."""
        statement = _sql["found"].format(columns=_sql["columns"])
        rows = self._connection.execute(statement, (json.dumps(numbers),))
        return tuple(record(row) for row in rows)


def _created(where: JobFilter) -> Condition:
    """When a filter wants jobs to have been created."""
    bounds: list[Condition] = []
    if where.created_after is not None:
        bounds.append(Compare(Field.CREATED_AT, Comparison.AT_LEAST, where.created_after))
    if where.created_before is not None:
        bounds.append(Compare(Field.CREATED_AT, Comparison.LESS, where.created_before))
    return all_of(*bounds)
