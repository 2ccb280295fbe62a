"""Get, list, search and count jobs.

A search returns the newest jobs first and stops after about a second with a partial page. It compares columns
first, then texts and fingerprints, and reads payloads only if the condition needs them. Lists without such a
condition never read bodies. Where counters exist, a count comes from them, so its cost does not depend on the
number of jobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

from tidewheel.core import fingerprints
from tidewheel.core.conditions import (
    ALWAYS,
    NEVER,
    Compare,
    ComparePayload,
    Condition,
    ContainsText,
    HasFingerprint,
    InState,
    LastErrorContains,
    Leaf,
    compare_payload,
    evaluate,
    is_counted,
    leaves,
    necessary_condition,
    remaining_condition,
    simplify_for_state,
    unindexed_condition,
    uses_only_columns,
)
from tidewheel.core.model import BodyFormat, Count, JobFilter, JobRecord, Page, State
from tidewheel.stores.bounds import COLUMN_SEARCH_SECONDS, MAX_COUNT, SEARCH_SECONDS
from tidewheel.stores.condition_sql import condition_to_sql
from tidewheel.stores.postgres.condition_sql import AllJobsDialect, PostgresDialect
from tidewheel.stores.postgres.database import Database, Statements
from tidewheel.stores.postgres.query_plan import QueryPlanner, ScannedJob
from tidewheel.stores.postgres.row_mapping import FORMATS, STATES, full_record, record
from tidewheel.stores.query_plan import split_filter
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.postgres", "sql/job_queries.sql")

FIRST_BATCH: Final = 100
MAX_JOBS_PER_BATCH: Final = 2000
"""Jobs whose bodies are looked into by one statement."""
MAX_JOBS_PER_COLUMN_BATCH: Final = 20_000
"""Jobs of which a statement tells the columns only."""
BATCH_SECONDS: Final = 0.1
"""A statement should not take longer: the time is looked at between them."""
MAX_PAYLOAD_BYTES: Final = 4 * 1024 * 1024
"""Payloads brought here at once. A larger one comes alone."""


_DECIDED_BY_COLUMNS: Final = (Compare, InState)
_DECIDED_BY_SERVER: Final = (*_DECIDED_BY_COLUMNS, ContainsText, LastErrorContains)
_DECIDED_BEFORE_BODIES: Final = (*_DECIDED_BY_SERVER, HasFingerprint)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The numbers of jobs that meet the condition; the rest as in ``Page``."""

    numbers: list[int]
    cursor: int | None = None
    partial: bool = False
    searched_back_to: int | None = None


class _Candidate(NamedTuple):
    """What is known of a job before its payload has come: leaves that are told, and its size."""

    decided: dict[Leaf, bool]
    size: int


class JobSearch:
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
        self._possible = necessary_condition(condition, *_DECIDED_BY_COLUMNS)
        self._after_texts = necessary_condition(condition, *_DECIDED_BY_SERVER)
        self._decided_by_python = remaining_condition(condition, *_DECIDED_BY_SERVER)
        self._before_bodies = necessary_condition(self._decided_by_python, *_DECIDED_BEFORE_BODIES)
        self._into_payloads = any(isinstance(leaf, ComparePayload) for leaf in leaves(condition))
        # What the rest asks beside payloads is told with their sizes.
        self._decided_by_server = [
            leaf for leaf in leaves(self._decided_by_python) if isinstance(leaf, _DECIDED_BY_SERVER)
        ]
        self._fingerprints = [
            leaf for leaf in leaves(self._decided_by_python) if isinstance(leaf, HasFingerprint)
        ]
        self._columns_only = uses_only_columns(condition)
        self._seconds = min(SEARCH_SECONDS, COLUMN_SEARCH_SECONDS) if self._columns_only else SEARCH_SECONDS

    async def find(self, *, limit: int, cursor: int | None, offset: int) -> SearchResult:
        """Batch after batch, by number."""
        deadline = time.monotonic() + self._seconds
        if NEVER in (self._possible, self._after_texts) or not split_filter(self._where):
            return SearchResult([])
        selecting = QueryPlanner(
            self._database, self._connection, self._where, self._now, column_condition=self._possible
        )
        selection = await selecting.plan(MAX_JOBS_PER_BATCH)
        found: list[int] = []
        batch = FIRST_BATCH
        most = MAX_JOBS_PER_COLUMN_BATCH if self._columns_only else MAX_JOBS_PER_BATCH
        while True:
            began = time.monotonic()
            seen = await selection.scan(batch, cursor)
            last = await self._filter_batch(seen, found, deadline)
            # One more than the page holds: only then is there something further.
            if len(found) > offset + limit:
                page = found[offset : offset + limit]
                return SearchResult(page, cursor=page[-1] if page else None)
            if last is None or (last is seen[-1] and len(seen) < batch):
                return SearchResult(found[offset:])
            cursor = last.number
            ended = time.monotonic()
            if ended > deadline:
                page = found[offset:]
                return SearchResult(page, cursor=cursor, partial=True, searched_back_to=last.created_at)
            batch = min(batch * 2, most) if ended - began < BATCH_SECONDS else max(batch // 2, 1)

    async def _filter_batch(
        self, seen: list[ScannedJob], found: list[int], deadline: float
    ) -> ScannedJob | None:
        """Add those that meet the condition; the last one that was looked at, None when there is none."""
        possible = [job.number for job in seen if job.possible]
        if self._columns_only or not possible:
            found += possible
            return seen[-1] if seen else None
        closer = await self._filter_by_text(possible)
        if not self._into_payloads:
            found += closer
            return seen[-1]
        for portion in _split_by_bytes(closer):
            found += await self._filter_by_payload(portion)
            if time.monotonic() > deadline:  # in the middle of a batch of large bodies
                last = next(reversed(portion))
                return next(job for job in seen if job.number == last)
        return seen[-1]

    async def _filter_by_text(self, numbers: list[int]) -> dict[int, _Candidate]:
        """Those that texts and fingerprints do not rule out, in falling order."""
        values: list[object] = [numbers]

        def add(value: object, kind: str) -> str:
            values.append(value)
            return f"${len(values)}::{kind}"

        words = AllJobsDialect(add, self._now)
        verdict = condition_to_sql(self._after_texts, words)
        told = ", ".join(condition_to_sql(leaf, words) for leaf in self._decided_by_server)
        # Sizes are of use only for bodies that are going to be fetched.
        size, bodies = (_sql["size"], _sql["bodies"]) if self._into_payloads else ("0", "")
        statement = self._statement("scan_texts", verdict=verdict, decided=told, size=size, bodies=bodies)
        rows = await self._connection.fetch(statement, *values)
        left: dict[int, _Candidate] = {}
        for number, possible, verdicts, size, *error in rows:
            if not possible:
                continue
            known: dict[Leaf, bool] = dict(zip(self._decided_by_server, verdicts, strict=True))
            if self._fingerprints:
                fingerprint = fingerprints.job_fingerprint(*error)
                known |= {leaf: leaf.fingerprint == fingerprint for leaf in self._fingerprints}
            if evaluate(self._before_bodies, known.__getitem__):
                left[number] = _Candidate(known, size)
        return dict(sorted(left.items(), reverse=True))

    async def _filter_by_payload(self, jobs: dict[int, _Candidate]) -> list[int]:
        """Those that meet the condition, payloads and all."""
        found = []
        for number, format_, payload, raw in await self._connection.fetch(
            self._statement("with_bodies", bodies=_sql["bodies"]), list(jobs)
        ):
            body_format, body = FORMATS[format_], raw if payload is None else payload.encode()
            if evaluate(
                self._decided_by_python, partial(_decide_leaf, jobs[number].decided, body_format, body)
            ):
                found.append(number)
        return sorted(found, reverse=True)

    def _statement(self, name: str, **parts: str) -> str:
        # Not with ``qualify``, which remembers: there are as many statements as there are conditions.
        text = (
            _sql[name]
            .replace("{by_numbers}", _sql["by_numbers"])
            .replace("{scanned_columns}", _sql["scanned_columns"])
        )
        for part, words in parts.items():
            text = text.replace(f"{{{part}}}", words)
        return text.replace("{schema}", self._database.schema)


def _decide_leaf(told: Mapping[Leaf, bool], body_format: BodyFormat, body: bytes, leaf: Leaf) -> bool:
    return compare_payload(leaf, body_format, body) if isinstance(leaf, ComparePayload) else told[leaf]


def _split_by_bytes(jobs: dict[int, _Candidate]) -> Iterator[dict[int, _Candidate]]:
    """One after another, none with more bytes than come at once."""
    portion: dict[int, _Candidate] = {}
    total = 0
    for number, closer in jobs.items():
        if portion and total + closer.size > MAX_PAYLOAD_BYTES:
            yield portion
            portion, total = {}, 0
        portion[number] = closer
        total += closer.size
    if portion:
        yield portion


_COUNTER_COLUMNS: Final = {
    State.PENDING: "j.waiting + j.ready",
    State.RUNNING: "j.running",
    State.COMPLETED: "j.completed",
    State.FAILED: "j.failed",
    State.CANCELLED: "j.cancelled",
}


async def count_from_counters(database: Database, connection: Any, where: JobFilter) -> int | None:
    """How many there are; None where no counters are kept of this."""
    if not is_counted(where):
        return None
    values: list[object] = [where.topic, where.task, where.tenant]
    placeholders: dict[object, str] = {}

    def add(value: object, kind: str) -> str:
        # Once for all states: a statement can have 32,767 of them.
        if value not in placeholders:
            values.append(value)
            placeholders[value] = f"${len(values)}::{kind}"
        return placeholders[value]

    words = PostgresDialect(add, 0)
    condition = unindexed_condition(where) or ALWAYS
    totals = []
    for state in State if where.state is None else (State(where.state),):
        # A state is a column here, so what is left of the condition asks for lanes and tenants only.
        left = simplify_for_state(condition, state)
        if left != NEVER:
            total = _sql["total"].replace("{columns}", _COUNTER_COLUMNS[state])
            totals.append(total.replace("{condition}", condition_to_sql(left, words)))
    if not totals:
        return 0
    # Not with ``qualify``, which remembers: there are as many statements as there are conditions.
    statement = (
        _sql["count_from_counters"]
        .replace("{total}", " + ".join(totals))
        .replace("{schema}", database.schema)
    )
    return int(await connection.fetchval(statement, *values))


_get = _sql["get"].replace("{columns}", _sql["columns"]).replace("{parents}", _sql["parents"])
_records = _sql["records"].replace("{columns}", _sql["columns"])


async def get(database: Statements, job_id: UUID, tenant: str | None) -> JobRecord | None:
    rows = await database.fetch_for(tenant, _get, job_id, tenant)
    return full_record(rows[0]) if rows else None


async def states(database: Database, job_ids: Sequence[UUID], tenant: str | None) -> list[State | None]:
    if not job_ids:
        return []
    rows = await database.fetch_for(tenant, _sql["states"], list(job_ids), tenant)
    return [None if row[0] is None else STATES[row[0]] for row in rows]


async def list_jobs(
    database: Database, where: JobFilter, *, limit: int, cursor: int | None, offset: int
) -> Page:
    async with database.transaction(where.tenant) as connection:
        now = await begin_snapshot(database, connection)
        if (condition := unindexed_condition(where)) is not None:
            search = JobSearch(database, connection, where, condition, now)
            found = await search.find(limit=limit, cursor=cursor, offset=offset)
        else:
            # One more than asked for, to know whether there is a next page.
            selecting = QueryPlanner(database, connection, where, now)
            selection = await selecting.plan(offset + limit + 1)
            numbers = await selection.numbers(limit + 1, cursor, offset)
            further = numbers[limit - 1] if 0 < limit < len(numbers) else None
            found = SearchResult(numbers[:limit], cursor=further)
        rows = await connection.fetch(database.qualify(_records), found.numbers) if found.numbers else []
    items = sorted((record(row) for row in rows), key=lambda item: item.number, reverse=True)
    return Page(tuple(items), found.cursor, found.partial, found.searched_back_to)


async def count(database: Database, where: JobFilter, *, beyond: bool) -> Count:
    async with database.transaction(where.tenant) as connection:
        now = await begin_snapshot(database, connection)
        total = await count_from_counters(database, connection, where)
        if total is not None and beyond:
            return Count(total)
        if total is None:
            if (condition := unindexed_condition(where)) is not None:
                search = JobSearch(database, connection, where, condition, now)
                found = await search.find(limit=MAX_COUNT, cursor=None, offset=0)
                return Count(len(found.numbers), exact=found.cursor is None)
            # Nothing is put in order, so one lane after another is read until there are enough.
            selection = await QueryPlanner(database, connection, where, now).plan(1)
            total = await selection.count(MAX_COUNT + 1)
    return Count(min(total, MAX_COUNT), exact=total <= MAX_COUNT)


async def begin_snapshot(database: Database, connection: Any) -> int:
    """Settings for this transaction, and its time."""
    return int(await connection.fetchval(database.qualify(_sql["begin_snapshot"]), database.now))
