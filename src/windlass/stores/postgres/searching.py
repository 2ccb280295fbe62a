"""Looking for jobs that meet a condition, newest first, for at most a second."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

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
from windlass.model import JobFilter
from windlass.stores.compiling import to_sql
from windlass.stores.postgres.compiling import WordsOfAll
from windlass.stores.postgres.database import Database
from windlass.stores.postgres.recording import COLUMN_COUNT, FORMATS, attempt_records, record
from windlass.stores.postgres.selecting import Seen, Selecting
from windlass.stores.protocol import SEARCH_SECONDS
from windlass.stores.queries import Queries

_sql = Queries("windlass.stores.postgres.sql", "read.sql")

FIRST_BATCH: Final = 100
MOST_PER_BATCH: Final = 2000
"""Jobs whose bodies are looked into by one statement."""
MOST_COLUMNS: Final = 20_000
"""Jobs of which a statement tells the columns only."""
BATCH_SECONDS: Final = 0.1
"""A statement should not take longer: the time is looked at between them."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Payloads brought here at once. A larger one comes alone."""


@dataclass(frozen=True, slots=True)
class Found:
    """The numbers of jobs that meet the condition; the rest as in ``Page``."""

    numbers: list[int]
    cursor: int | None = None
    partial: bool = False
    searched_back_to: int | None = None


class Search:
    """One condition, told in up to three looks, each at what the one before left.

    Columns with the numbers themselves, texts by the server, values inside of payloads by Python.
    """

    def __init__(
        self, database: Database, connection: Any, where: JobFilter, condition: Condition, now: int
    ) -> None:
        self._database = database
        self._connection = connection
        self._where = where
        self._condition = condition
        self._now = now
        kinds = {type(leaf) for leaf in leaves(condition)}
        self._into_texts = HoldsText in kinds
        self._into_payloads = ComparePayload in kinds

    async def find(self, *, limit: int, cursor: int | None, offset: int) -> Found:
        """Batch after batch, by number."""
        deadline = time.monotonic() + SEARCH_SECONDS
        possible = necessary(self._condition, Compare, InState)
        if NEVER in (possible, self._condition):
            return Found([])
        selecting = Selecting(self._database, self._connection, self._where, self._now, possible=possible)
        selection = await selecting.select(MOST_PER_BATCH)
        found: list[int] = []
        batch = FIRST_BATCH
        most = MOST_PER_BATCH if self._into_texts or self._into_payloads else MOST_COLUMNS
        while True:
            began = time.monotonic()
            seen = await selection.seen(batch, cursor)
            last = await self._look_at(seen, found, deadline)
            # One more than the page holds: only then is there something further.
            if len(found) > offset + limit:
                page = found[offset : offset + limit]
                return Found(page, cursor=page[-1] if page else None)
            if last is None or (last is seen[-1] and len(seen) < batch):
                return Found(found[offset:])
            cursor = last.number
            ended = time.monotonic()
            if ended > deadline:
                page = found[offset:]
                return Found(page, cursor=cursor, partial=True, searched_back_to=last.created_at)
            batch = min(batch * 2, most) if ended - began < BATCH_SECONDS else max(batch // 2, 1)

    async def _look_at(self, seen: list[Seen], found: list[int], deadline: float) -> Seen | None:
        """Add those that meet the condition; the last one that was looked at, None when there is none."""
        possible = [job for job in seen if job.possible]
        if not self._into_texts and not self._into_payloads:
            found += [job.number for job in possible]
        elif possible:
            sizes = await self._sizes([job.number for job in possible])
            left = [job for job in possible if job.number in sizes]
            if not self._into_payloads:
                found += [job.number for job in left]
            else:
                for some in _portions(left, sizes):
                    found += await self._told_by_python([job.number for job in some])
                    if some[-1] is not left[-1] and time.monotonic() > deadline:
                        return some[-1]
        return seen[-1] if seen else None

    async def _sizes(self, numbers: list[int]) -> dict[int, int]:
        """Those that texts do not rule out, and how large their payloads are."""
        values: list[object] = [numbers]

        def add(value: object, kind: str) -> str:
            values.append(value)
            return f"${len(values)}::{kind}"

        told = to_sql(necessary(self._condition, Compare, InState, HoldsText), WordsOfAll(add, self._now))
        rows = await self._connection.fetch(self._statement("look_into", verdict=told), *values)
        return {number: size for number, holds_so_far, size in rows if holds_so_far}

    async def _told_by_python(self, numbers: list[int]) -> list[int]:
        attempts = _sql["attempts"] if self._into_texts else "NULL"
        statement = self._statement("with_bodies", columns=_sql["columns"], attempts=attempts)
        told = []
        for row in await self._connection.fetch(statement, numbers):
            format_, payload, raw, attempts = row[COLUMN_COUNT:]
            job = record(
                row,
                format=FORMATS[format_],
                payload=raw if payload is None else payload.encode(),
                attempts=attempt_records(attempts or ()),
            )
            if holds(self._condition, job, self._now):
                told.append(job.number)
        return sorted(told, reverse=True)

    def _statement(self, name: str, **parts: str) -> str:
        # Not with ``qualify``, which remembers: there are as many statements as there are conditions.
        text = _sql[name].replace("{found}", _sql["found"]).replace("{looked_at}", _sql["looked_at"])
        for part, words in parts.items():
            text = text.replace(f"{{{part}}}", words)
        return text.replace("{schema}", self._database.schema)


def _portions(jobs: list[Seen], sizes: dict[int, int]) -> Iterator[list[Seen]]:
    """One after another, none with more bytes than come at once."""
    portion: list[Seen] = []
    total = 0
    for job in jobs:
        size = sizes[job.number]
        if portion and total + size > MOST_BYTES:
            yield portion
            portion, total = [], 0
        portion.append(job)
        total += size
    if portion:
        yield portion
