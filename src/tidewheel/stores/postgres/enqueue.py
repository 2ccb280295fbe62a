"""Enqueue with group commit: callers share writes, and each waits until its own jobs are durable.

Calls that arrive during a write are joined into the next one, up to 2,000 jobs or 8 MiB of bodies. Two writes
run at a time, so that one is prepared while the other waits for the disk. Jobs are passed to the SQL function
``enqueue`` as one array per column.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import operator
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import eq
from typing import Any, Final
from uuid import UUID

import asyncpg

from tidewheel.core.model import BodyFormat, Enqueued, NewDocument, NewJob, OnDuplicate
from tidewheel.errors import (
    KeyInUse,
    LimitExceeded,
    ParentNotFound,
    StoreError,
    StoreUnavailable,
    TidewheelError,
)
from tidewheel.stores.enqueue import Column, added_by_topic, columns_of, limit_problem, microseconds, shared
from tidewheel.stores.postgres import documents
from tidewheel.stores.postgres.condition_sql import Views
from tidewheel.stores.postgres.database import Database, Record, Statements
from tidewheel.stores.postgres.dependencies import edges
from tidewheel.stores.postgres.row_mapping import FORMAT_CODES, KEY_UNTIL
from tidewheel.stores.protocol import StoreLimits
from tidewheel.stores.sql_files import Queries

LARGE_BYTES: Final = 1000
"""A larger body is kept apart from its row, which is written anew with every change."""

_ALIKE: Final = tuple(name for name in NewJob.__struct_fields__ if name not in ("id", "payload"))

PARAMETERS: Final = (
    *("now", "is_retry", "keyed", "large", "ids", "topics", "tasks", "tenants", "priorities", "run_ats"),
    *("delays_us", "expires_ats", "expires_in_us", "max_attempts", "timeouts_us", "leases_us"),
    *("retentions_us", "retentions_failed_us", "retries", "keys", "key_untils", "replaces"),
    *("correlation_ids", "user_ids", "service_ids", "limit_keys", "headers", "formats", "payloads", "raws"),
    *("separate_bodies", "children", "parents", "after_any", "conditions", "condition_values"),
)
"""What the ``enqueue`` function takes, by the names and in the order of its parameters."""


def enqueue_arguments(jobs: Sequence[NewJob], now: int | None, *, again: bool) -> tuple[Any, ...]:
    """The parameters of the ``enqueue`` statement, column by column; at least one job."""
    of = columns_of(jobs)
    keys = of["key"]
    texts = [body_text(job.format, job.payload) for job in jobs]
    raws = [job.payload if text is None else None for job, text in zip(jobs, texts, strict=True)]
    aparts = [len(job.payload) > LARGE_BYTES for job in jobs]
    return (
        now,
        again,
        keys != (None,),
        True in aparts,
        of["id"],
        of["topic"],
        of["task"],
        of["tenant"],
        of["priority"],
        _sent(of["run_at"]),
        microseconds(of["delay"]),
        _sent(of["expires_at"]),
        _sent(microseconds(of["expires_in"])),
        _sent(of["max_attempts"]),
        _sent(microseconds(of["timeout"])),
        _sent(microseconds(of["lease_seconds"])),
        _sent(microseconds(of["retention"])),
        _sent(microseconds(of["retention_failed"])),
        _sent(of["retry"]),
        _sent(keys),
        _sent(shared([None if job.key is None else KEY_UNTIL[job.key_until] for job in jobs])),
        [choice is OnDuplicate.REPLACE for choice in of["on_duplicate"]],
        _sent(of["correlation_id"]),
        _sent(of["user_id"]),
        _sent(of["service_id"]),
        _sent(of["limit_key"]),
        _sent(of["headers"]),
        [FORMAT_CODES[body_format] for body_format in of["format"]],
        texts,
        _sent(shared(raws)),
        shared(aparts),
        *edges(jobs),
        *_views(jobs, of),
    )


def _views(jobs: Sequence[NewJob], of: Mapping[str, Column]) -> tuple[Column | None, Column | None]:
    """What other jobs have to meet that these may meet, as SQL and as its values; see ``meets_condition``."""
    if of["only"] == (None,) or (of["key"] == (None,) and of["after"] == ((),)):
        return None, None
    views = [Views.of(job.only) for job in jobs]
    return shared([view for view, _ in views]), shared([values for _, values in views])


def alike_arguments(jobs: Sequence[NewJob], now: int | None) -> tuple[Any, ...] | None:
    """The parameters of ``enqueue_uniform``; None for jobs that are not."""
    of = columns_of(jobs)
    if any(of[name] != (None,) for name in ("key", "expires_at", "expires_in", "limit_key")):
        return None
    if of["after"] != ((),):
        return None
    if any(len(of[name]) > 1 for name in _ALIKE) or max(map(len, of["payload"])) > LARGE_BYTES:
        return None
    texts = [body_text(job.format, job.payload) for job in jobs]
    if None in texts:
        return None
    return (
        now,
        of["id"],
        texts,
        of["run_at"][0],
        *microseconds(of["delay"]),
        *[of[name][0] for name in ("topic", "task", "tenant", "priority", "max_attempts")],
        *microseconds(
            [of[name][0] for name in ("timeout", "lease_seconds", "retention", "retention_failed")]
        ),
        *[of[name][0] for name in ("retry", "correlation_id", "user_id", "service_id", "headers")],
    )


def alike_enqueued(jobs: Sequence[NewJob], row: Record) -> list[Enqueued]:
    """The answers; jobs get their numbers in their order."""
    numbers, created_at, run_at = row
    return [Enqueued(job.id, number, created_at, run_at) for job, number in zip(jobs, numbers, strict=True)]


def _sent(column: Column) -> Column | None:
    """Nothing at all is sent of a column that no job has a value in."""
    return None if len(column) == 1 and column[0] is None else column


def body_text(body_format: BodyFormat, payload: bytes) -> str | None:
    """A body people can read in the database; None for one that is kept as bytes."""
    if body_format is not BodyFormat.JSON or b"\x00" in payload:
        return None
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None


def enqueued(jobs: Sequence[NewJob], rows: Sequence[Record]) -> list[Enqueued]:
    """The answers, in the order of the jobs. The rows come in it, unless there were keys or a second try."""
    if len(rows) != len(jobs) or not all(map(eq, [row[0] for row in rows], [job.id for job in jobs])):
        by_id: dict[UUID, Record] = {}
        for row in rows:
            by_id.setdefault(row[0], row)
        rows = [by_id[job.id] for job in jobs]
    return [
        Enqueued(job.id, number, created_at, run_at)
        if holder is None
        else Enqueued(holder, number, created_at, run_at, duplicate=True, replaced=replaced)
        for job, (_, holder, number, created_at, run_at, replaced) in zip(jobs, rows, strict=True)
    ]


_sql = Queries("tidewheel.stores.postgres", "sql/store_limits.sql")
_verbs = Queries("tidewheel.stores.postgres", "sql/functions.sql")
_log = logging.getLogger("tidewheel.postgres")
_tenant_of = operator.attrgetter("tenant")

WRITES_AT_ONCE: Final = 2
JOBS_PER_WRITE: Final = 2000
BYTES_PER_WRITE: Final = 8 * 2**20
"""Calls are joined up to this many jobs and bytes of bodies; a single call may be larger."""
PATIENCE_SECONDS: Final = 5.0
"""How long a call outlives a database that has gone away, before it is told."""
PAUSE_SECONDS: Final = 0.1


Look = Callable[..., Awaitable[list[Record]]]
"""How the limits ask: a statement and its arguments."""


@dataclass(slots=True)
class _Call:
    jobs: Sequence[NewJob]
    size: int  # bytes of all bodies
    answer: asyncio.Future[list[Enqueued]]


class Writer:
    """Collects enqueue calls of one event loop and writes them together."""

    def __init__(
        self,
        database: Database,
        limits: StoreLimits,
        on_written: Callable[[Sequence[NewJob], Sequence[Enqueued]], Awaitable[None]],
    ) -> None:
        self._database = database
        self._limits = limits
        self._on_written = on_written
        self._waiting: deque[_Call] = deque()
        self._writing: set[asyncio.Task[None]] = set()

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        size = sum([len(job.payload) for job in jobs])
        call = _Call(jobs, size, asyncio.get_running_loop().create_future())
        self._waiting.append(call)
        # Not written at once: whoever calls in the same turn of the event loop shares this write.
        if len(self._writing) < WRITES_AT_ONCE:
            task = asyncio.create_task(self._write_waiting())
            self._writing.add(task)
            task.add_done_callback(self._writing.discard)
        return await call.answer

    async def enqueue_with(self, document: NewDocument, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        """A document and jobs, by one statement: no lock is held while this process might stand still."""
        if not jobs:
            return None if await documents.write(self._database, [document]) == [None] else []
        if self._limits.max_topics or self._limits.max_jobs_per_topic:
            problem = await self._limit_problem(jobs, Counter())
            if problem is not None:
                found = await documents.read(self._database, document.kind, document.id)
                if document.only_version in (None, 0 if found is None else found.version):
                    raise problem
                return None
        arguments = enqueue_arguments(jobs, self._database.now, again=False)
        place = (document.kind, document.id, document.body, document.expires_at, document.only_version)
        try:
            rows = await self._database.fetch(_verbs["enqueue_with"], *arguments, *place)
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise _explained(error, jobs) from error
        return enqueued(jobs, rows) if rows else None

    async def close(self) -> None:
        """Finish what was accepted."""
        while self._writing:
            await asyncio.wait(self._writing)

    async def _write_waiting(self) -> None:
        while self._waiting:
            calls = self._take()
            try:
                await self._write(calls)
            except BaseException as error:
                # Nobody else tells them: a call must never wait for an answer that cannot come.
                for call in calls:
                    _refuse(call, StoreUnavailable(f"writing was interrupted: {type(error).__name__}"))
                if not isinstance(error, Exception):
                    raise
                _log.exception("%d enqueues failed", len(calls))  # a bug; those who wait behind it go on

    def _take(self) -> list[_Call]:
        """The calls of one write, in the order they came."""
        calls = [self._waiting.popleft()]
        number, size = len(calls[0].jobs), calls[0].size
        while self._waiting:
            call = self._waiting[0]
            number, size = number + len(call.jobs), size + call.size
            if number > JOBS_PER_WRITE or size > BYTES_PER_WRITE:
                break
            calls.append(self._waiting.popleft())
        return calls

    async def _write(self, calls: list[_Call]) -> None:
        if self._limits.max_topics or self._limits.max_jobs_per_topic:
            calls = await self._within_limits(calls)
        # Callers that gave up waiting before anything was sent need not be served.
        calls = [call for call in calls if not call.answer.done()]
        if not calls:
            return
        if self._database.scoped:  # calls that came together may be written in any order
            calls.sort(key=lambda call: call.jobs[0].tenant)
        jobs = [job for call in calls for job in call.jobs]
        try:
            answers = await self._insert(jobs)
        except StoreUnavailable as error:
            if len(calls) > 1 and isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                # Somebody's open transaction has a key that one of them wants. The others must not suffer.
                await self._write([call for call in calls if not _is_keyed(call)])
                for call in filter(_is_keyed, calls):
                    await self._write([call])
                return
            for call in calls:
                _refuse(call, error)
        except (StoreError, ParentNotFound, KeyInUse) as error:
            if len(calls) == 1:
                _refuse(calls[0], error)
                return
            for call in calls:  # one of them is to blame; the others must not suffer for it
                await self._write([call])
        except TidewheelError as error:  # not open, or not any more
            for call in calls:
                _refuse(call, error)
        else:
            await self._on_written(jobs, answers)  # before the callers go on: one may block the event loop
            start = 0
            for call in calls:
                if not call.answer.done():
                    call.answer.set_result(answers[start : start + len(call.jobs)])
                start += len(call.jobs)

    async def _insert(self, jobs: list[NewJob]) -> list[Enqueued]:
        """Write these jobs once, even when the reply gets lost and they have to be sent again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        again = False
        while True:
            try:
                if not again and (answers := await self._insert_alike(jobs)) is not None:
                    return answers
                if self._database.scoped:
                    return enqueued(jobs, await self._insert_by_tenant(jobs, again=again))
                rows = await self._database.fetch(
                    _verbs["enqueue"], *enqueue_arguments(jobs, self._database.now, again=again)
                )
                return enqueued(jobs, rows)
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
            except StoreError as error:
                # Sent again while the first try was still being committed: now it is there.
                if not again or not _is_taken(error) or time.monotonic() > deadline:
                    raise _explained(error, jobs) from error
            again = True
            await asyncio.sleep(PAUSE_SECONDS)

    async def _insert_alike(self, jobs: list[NewJob]) -> list[Enqueued] | None:
        """The quick way, for most jobs; None where the function has to be called."""
        if self._database.pooled:  # where nothing stays prepared, planning it would cost more
            return None
        arguments = alike_arguments(jobs, self._database.now)
        if arguments is None:
            return None
        if self._database.scoped:
            rows = await self._database.fetch_for(jobs[0].tenant, _verbs["enqueue_uniform"], *arguments)
            return alike_enqueued(jobs, rows[0]) if rows else None
        row = await self._database.fetchrow(_verbs["enqueue_uniform"], *arguments)
        return None if row is None else alike_enqueued(jobs, row)

    async def _insert_by_tenant(self, jobs: Sequence[NewJob], *, again: bool) -> list[Record]:
        """All in one transaction: a call is all or nothing. A statement for each stretch of jobs of one
        tenant, because jobs get their numbers in their order.
        """
        now = self._database.now
        calls = [
            (tenant, enqueue_arguments(list(theirs), now, again=again))
            for tenant, theirs in groupby(jobs, key=_tenant_of)
        ]
        answers = await self._database.fetch_for_each(_verbs["enqueue"], calls)
        return [row for rows in answers for row in rows]

    async def _within_limits(self, calls: list[_Call]) -> list[_Call]:
        """Those of the calls that pass no limit; the others are told."""
        accepted: list[_Call] = []
        written: Counter[str] = Counter()
        for call in calls:
            try:
                problem = await self._limit_problem(call.jobs, written)
            except TidewheelError as error:
                _refuse(call, error)
                continue
            if problem is not None:
                _refuse(call, problem)
                continue
            written.update(job.topic for job in call.jobs)
            accepted.append(call)
        return accepted

    async def limit_problem(self, inside: Statements, jobs: Sequence[NewJob]) -> LimitExceeded | None:
        """Whether jobs of a handler's transaction would pass a limit; it sees what it has enqueued so far."""
        if not (self._limits.max_topics or self._limits.max_jobs_per_topic):
            return None
        return await self._limit_problem(jobs, Counter(), inside.fetch)

    async def _limit_problem(
        self, jobs: Sequence[NewJob], written: Counter[str], look: Look | None = None
    ) -> LimitExceeded | None:
        look = look or functools.partial(self._look, jobs)
        keyed = [job for job in jobs if job.key is not None]
        taken = set()
        if keyed:
            rows = await look(
                _sql["keys_taken"],
                [job.tenant for job in keyed],
                [job.task or job.topic for job in keyed],
                [job.key for job in keyed],
            )
            taken = {tuple(row) for row in rows}
        added = added_by_topic(jobs, taken)
        rows = await look(_sql["jobs_by_topic"])
        known = {row[0] for row in rows} | written.keys()
        active = written.copy()
        for topic, number in rows:  # of two tenants one topic may come twice
            active[topic] += int(number)
        return limit_problem(self._limits, added, topics=lambda: known, active=lambda topic: active[topic])

    async def _look(self, jobs: Sequence[NewJob], statement: str, *arguments: Any) -> list[Record]:
        """What the limits ask for: of everybody, or as much as the tenants of these jobs may see."""
        if not self._database.scoped:
            return await self._database.fetch(statement, *arguments)
        calls = [(tenant, arguments) for tenant in sorted({job.tenant for job in jobs})]
        return [row for rows in await self._database.fetch_for_each(statement, calls) for row in rows]


def _is_keyed(call: _Call) -> bool:
    return any(job.key is not None for job in call.jobs)


def _refuse(call: _Call, error: TidewheelError) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)


def _is_taken(error: StoreError) -> bool:
    """Whether the id of a job was there already. Not by the message: that is in the server's language."""
    return isinstance(error.__cause__, asyncpg.UniqueViolationError)


def _explained(error: StoreError, jobs: Sequence[NewJob]) -> StoreError:
    if _is_taken(error):
        which = f"job id {jobs[0].id} is taken" if len(jobs) == 1 else "a job id is taken"
        return StoreError(f"{which}; every job needs an id of its own")
    return error
