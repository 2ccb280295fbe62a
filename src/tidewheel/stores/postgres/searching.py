"""Looking for jobs that meet a condition, newest first, for at most a second."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from tidewheel import fingerprints
from tidewheel.conditions import (
    NEVER,
    Compare,
    ComparePayload,
    Condition,
    HasFingerprint,
    HoldsText,
    InState,
    LastErrorHolds,
    Leaf,
    beyond,
    compare_payload,
    decide,
    leaves,
    necessary,
    of_columns,
)
from tidewheel.model import BodyFormat, JobFilter
from tidewheel.stores.alternatives import alternatives
from tidewheel.stores.compiling import to_sql
from tidewheel.stores.postgres.compiling import WordsOfAll
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.recording import FORMATS
from tidewheel.stores.postgres.selecting import Seen, Selecting
from tidewheel.stores.protocol import COLUMN_SEARCH_SECONDS, SEARCH_SECONDS
from tidewheel.stores.queries import Queries

_sql = Queries("tidewheel.stores.postgres.sql", "read.sql")

FIRST_BATCH: Final = 100
MOST_PER_BATCH: Final = 2000
"""Jobs whose bodies are looked into by one statement."""
MOST_COLUMNS: Final = 20_000
"""Jobs of which a statement tells the columns only."""
BATCH_SECONDS: Final = 0.1
"""A statement should not take longer: the time is looked at between them."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Payloads brought here at once. A larger one comes alone."""


_COLUMNS: Final = (Compare, InState)
_TOLD_BY_SERVER: Final = (*_COLUMNS, HoldsText, LastErrorHolds)
_TOLD_BEFORE_BODIES: Final = (*_TOLD_BY_SERVER, HasFingerprint)


@dataclass(frozen=True, slots=True)
class Found:
    """The numbers of jobs that meet the condition; the rest as in ``Page``."""

    numbers: list[int]
    cursor: int | None = None
    partial: bool = False
    searched_back_to: int | None = None


class _Closer(NamedTuple):
    """What is known of a job before its payload has come: leaves that are told, and its size."""

    told: dict[Leaf, bool]
    size: int


class Search:
    """One condition, told in up to three looks, each at what the one before left.

    Columns with the numbers themselves, texts by the server with what fingerprints are made of, which Python
    computes, and values inside of payloads by Python.
    """

    def __init__(
        self, database: Database, connection: Any, where: JobFilter, condition: Condition, now: int
    ) -> None:
        self._database = database
        self._connection = connection
        self._where = where
        self._now = now
        self._possible = necessary(condition, *_COLUMNS)
        self._after_texts = necessary(condition, *_TOLD_BY_SERVER)
        self._rest = beyond(condition, *_TOLD_BY_SERVER)
        self._before_bodies = necessary(self._rest, *_TOLD_BEFORE_BODIES)
        self._into_payloads = any(isinstance(leaf, ComparePayload) for leaf in leaves(condition))
        # What the rest asks beside payloads is told with their sizes.
        self._told = [leaf for leaf in leaves(self._rest) if isinstance(leaf, _TOLD_BY_SERVER)]
        self._fingerprints = [leaf for leaf in leaves(self._rest) if isinstance(leaf, HasFingerprint)]
        self._columns_only = of_columns(condition)
        self._seconds = min(SEARCH_SECONDS, COLUMN_SEARCH_SECONDS) if self._columns_only else SEARCH_SECONDS

    async def find(self, *, limit: int, cursor: int | None, offset: int) -> Found:
        """Batch after batch, by number."""
        deadline = time.monotonic() + self._seconds
        if NEVER in (self._possible, self._after_texts) or not alternatives(self._where):
            return Found([])
        selecting = Selecting(
            self._database, self._connection, self._where, self._now, possible=self._possible
        )
        selection = await selecting.select(MOST_PER_BATCH)
        found: list[int] = []
        batch = FIRST_BATCH
        most = MOST_COLUMNS if self._columns_only else MOST_PER_BATCH
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
        possible = [job.number for job in seen if job.possible]
        if self._columns_only or not possible:
            found += possible
            return seen[-1] if seen else None
        closer = await self._look_closer(possible)
        if not self._into_payloads:
            found += closer
            return seen[-1]
        for portion in _portions(closer):
            found += await self._decide(portion)
            if time.monotonic() > deadline:  # in the middle of a batch of large bodies
                last = next(reversed(portion))
                return next(job for job in seen if job.number == last)
        return seen[-1]

    async def _look_closer(self, numbers: list[int]) -> dict[int, _Closer]:
        """Those that texts and fingerprints do not rule out, in falling order."""
        values: list[object] = [numbers]

        def add(value: object, kind: str) -> str:
            values.append(value)
            return f"${len(values)}::{kind}"

        words = WordsOfAll(add, self._now)
        verdict = to_sql(self._after_texts, words)
        told = ", ".join(to_sql(leaf, words) for leaf in self._told)
        # Sizes are of use only for bodies that are going to be fetched.
        size, bodies = (_sql["size"], _sql["bodies"]) if self._into_payloads else ("0", "")
        statement = self._statement("look_into", verdict=verdict, told=told, size=size, bodies=bodies)
        rows = await self._connection.fetch(statement, *values)
        left: dict[int, _Closer] = {}
        for number, possible, verdicts, size, *error in rows:
            if not possible:
                continue
            known: dict[Leaf, bool] = dict(zip(self._told, verdicts, strict=True))
            if self._fingerprints:
                fingerprint = fingerprints.of_job(*error)
                known |= {leaf: leaf.fingerprint == fingerprint for leaf in self._fingerprints}
            if decide(self._before_bodies, known.__getitem__):
                left[number] = _Closer(known, size)
        return dict(sorted(left.items(), reverse=True))

    async def _decide(self, jobs: dict[int, _Closer]) -> list[int]:
        """Those that meet the condition, payloads and all."""
        found = []
        for number, format_, payload, raw in await self._connection.fetch(
            self._statement("with_bodies", bodies=_sql["bodies"]), list(jobs)
        ):
            body_format, body = FORMATS[format_], raw if payload is None else payload.encode()
            if decide(self._rest, partial(_tell, jobs[number].told, body_format, body)):
                found.append(number)
        return sorted(found, reverse=True)

    def _statement(self, name: str, **parts: str) -> str:
        # Not with ``qualify``, which remembers: there are as many statements as there are conditions.
        text = _sql[name].replace("{found}", _sql["found"]).replace("{looked_at}", _sql["looked_at"])
        for part, words in parts.items():
            text = text.replace(f"{{{part}}}", words)
        return text.replace("{schema}", self._database.schema)


def _tell(told: Mapping[Leaf, bool], body_format: BodyFormat, body: bytes, leaf: Leaf) -> bool:
    return compare_payload(leaf, body_format, body) if isinstance(leaf, ComparePayload) else told[leaf]


def _portions(jobs: dict[int, _Closer]) -> Iterator[dict[int, _Closer]]:
    """One after another, none with more bytes than come at once."""
    portion: dict[int, _Closer] = {}
    total = 0
    for number, closer in jobs.items():
        if portion and total + closer.size > MOST_BYTES:
            yield portion
            portion, total = {}, 0
        portion[number] = closer
        total += closer.size
    if portion:
        yield portion
