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
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.enqueue import (
    Column,
    check_store_limits,
    collapse_equal,
    column_in_microseconds,
    count_new_jobs_by_topic,
    jobs_to_columns,
)
from tidewheel.stores.postgres import documents
from tidewheel.stores.postgres.condition_sql import VisibilityConditions
from tidewheel.stores.postgres.database import Database, Record, Statements
from tidewheel.stores.postgres.dependencies import dependency_arguments
from tidewheel.stores.postgres.row_mapping import FORMAT_CODES, KEY_UNTIL
from tidewheel.stores.sql_files import SqlFile

LARGE_BYTES: Final = 1000
"""A larger body is kept apart from its row, which is written anew with every change."""

_SHARED_FIELDS: Final = tuple(name for name in NewJob.__struct_fields__ if name not in ("id", "payload"))

PARAMETER_NAMES: Final = (
    *("now", "is_retry", "keyed", "large", "ids", "topics", "tasks", "tenants", "priorities", "run_ats"),
    *("delays_us", "expires_ats", "expires_in_us", "max_attempts", "timeouts_us", "leases_us"),
    *("retentions_us", "retentions_failed_us", "retries", "keys", "key_untils", "replaces"),
    *("correlation_ids", "user_ids", "service_ids", "limit_keys", "headers", "formats", "payloads", "raws"),
    *("separate_bodies", "children", "parents", "after_any", "conditions", "condition_values"),
)
"""What the ``enqueue`` function takes, by the names and in the order of its parameters."""


def enqueue_arguments(jobs: Sequence[NewJob], now: int | None, *, again: bool) -> tuple[Any, ...]:
    """The parameters of the ``enqueue`` statement, column by column; at least one job."""
    of = jobs_to_columns(jobs)
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
        _omit_empty(of["run_at"]),
        column_in_microseconds(of["delay"]),
        _omit_empty(of["expires_at"]),
        _omit_empty(column_in_microseconds(of["expires_in"])),
        _omit_empty(of["max_attempts"]),
        _omit_empty(column_in_microseconds(of["timeout"])),
        _omit_empty(column_in_microseconds(of["lease_seconds"])),
        _omit_empty(column_in_microseconds(of["retention"])),
        _omit_empty(column_in_microseconds(of["retention_failed"])),
        _omit_empty(of["retry"]),
        _omit_empty(keys),
        _omit_empty(collapse_equal([None if job.key is None else KEY_UNTIL[job.key_until] for job in jobs])),
        [choice is OnDuplicate.REPLACE for choice in of["on_duplicate"]],
        _omit_empty(of["correlation_id"]),
        _omit_empty(of["user_id"]),
        _omit_empty(of["service_id"]),
        _omit_empty(of["limit_key"]),
        _omit_empty(of["headers"]),
        [FORMAT_CODES[body_format] for body_format in of["format"]],
        texts,
        _omit_empty(collapse_equal(raws)),
        collapse_equal(aparts),
        *dependency_arguments(jobs),
        *_visibility_arguments(jobs, of),
    )


def _visibility_arguments(
    jobs: Sequence[NewJob], of: Mapping[str, Column]
) -> tuple[Column | None, Column | None]:
    """What other jobs have to meet that these may meet, as SQL and as its values; see ``meets_condition``."""
    if of["row_filter"] == (None,) or (of["key"] == (None,) and of["after"] == ((),)):
        return None, None
    views = [VisibilityConditions.to_sql(job.row_filter) for job in jobs]
    return collapse_equal([view for view, _ in views]), collapse_equal([values for _, values in views])


def uniform_arguments(jobs: Sequence[NewJob], now: int | None) -> tuple[Any, ...] | None:
    """The parameters of ``enqueue_uniform``; None for jobs that are not."""
    of = jobs_to_columns(jobs)
    if any(of[name] != (None,) for name in ("key", "expires_at", "expires_in", "limit_key")):
        return None
    if of["after"] != ((),):
        return None
    if any(len(of[name]) > 1 for name in _SHARED_FIELDS) or max(map(len, of["payload"])) > LARGE_BYTES:
        return None
    texts = [body_text(job.format, job.payload) for job in jobs]
    if None in texts:
        return None
    return (
        now,
        of["id"],
        texts,
        of["run_at"][0],
        *column_in_microseconds(of["delay"]),
        *[of[name][0] for name in ("topic", "task", "tenant", "priority", "max_attempts")],
        *column_in_microseconds(
            [of[name][0] for name in ("timeout", "lease_seconds", "retention", "retention_failed")]
        ),
        *[of[name][0] for name in ("retry", "correlation_id", "user_id", "service_id", "headers")],
    )


def uniform_results(jobs: Sequence[NewJob], row: Record) -> list[Enqueued]:
    """The answers; jobs get their numbers in their order."""
    numbers, created_at, run_at = row
    return [Enqueued(job.id, number, created_at, run_at) for job, number in zip(jobs, numbers, strict=True)]


def _omit_empty(column: Column) -> Column | None:
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


def enqueue_results(jobs: Sequence[NewJob], rows: Sequence[Record]) -> list[Enqueued]:
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


_limits_sql = SqlFile("tidewheel.stores.postgres", "sql/store_limits.sql")
_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")
_log = logging.getLogger("tidewheel.postgres")
_tenant_of = operator.attrgetter("tenant")

WRITES_AT_ONCE: Final = 2
JOBS_PER_WRITE: Final = 2000
BYTES_PER_WRITE: Final = 8 * 2**20
"""Calls are joined up to this many jobs and bytes of bodies; a single call may be larger."""
RETRY_SECONDS: Final = 5.0
"""How long a call outlives a database that has gone away, before it is told."""
PAUSE_SECONDS: Final = 0.1


LimitQuery = Callable[..., Awaitable[list[Record]]]
"""How the limits ask: a statement and its arguments."""


@dataclass(slots=True)
class _Call:
    jobs: Sequence[NewJob]
    size: int  # bytes of all bodies
    answer: asyncio.Future[list[Enqueued]]


class EnqueueBatcher:
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

    async def enqueue_with_document(
        self, document: NewDocument, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
        """A document and jobs, by one statement: no lock is held while this process might stand still."""
        if not jobs:
            return None if await documents.write_documents(self._database, [document]) == [None] else []
        if self._limits.max_topics or self._limits.max_jobs_per_topic:
            problem = await self._limit_problem(jobs, Counter())
            if problem is not None:
                found = await documents.read(self._database, document.kind, document.id)
                if document.expected_version in (None, 0 if found is None else found.version):
                    raise problem
                return None
        arguments = enqueue_arguments(jobs, self._database.now, again=False)
        place = (document.kind, document.id, document.body, document.expires_at, document.expected_version)
        try:
            rows = await self._database.fetch(_sql["enqueue_with"], *arguments, *place)
        except StoreUnavailable:
            raise
        except StoreError as error:
            raise _explain_error(error, jobs) from error
        return enqueue_results(jobs, rows) if rows else None

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
                    _fail_call(call, StoreUnavailable(f"writing was interrupted: {type(error).__name__}"))
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
            calls = await self._drop_over_limit(calls)
        # Callers that gave up waiting before anything was sent need not be served.
        calls = [call for call in calls if not call.answer.done()]
        if not calls:
            return
        if self._database.sees_one_tenant:  # calls that came together may be written in any order
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
                _fail_call(call, error)
        except (StoreError, ParentNotFound, KeyInUse) as error:
            if len(calls) == 1:
                _fail_call(calls[0], error)
                return
            for call in calls:  # one of them is to blame; the others must not suffer for it
                await self._write([call])
        except TidewheelError as error:  # not open, or not any more
            for call in calls:
                _fail_call(call, error)
        else:
            await self._on_written(jobs, answers)  # before the callers go on: one may block the event loop
            start = 0
            for call in calls:
                if not call.answer.done():
                    call.answer.set_result(answers[start : start + len(call.jobs)])
                start += len(call.jobs)

    async def _insert(self, jobs: list[NewJob]) -> list[Enqueued]:
        """Write these jobs once, even when the reply gets lost and they have to be sent again."""
        deadline = time.monotonic() + RETRY_SECONDS
        again = False
        while True:
            try:
                if not again and (answers := await self._insert_uniform(jobs)) is not None:
                    return answers
                if self._database.sees_one_tenant:
                    return enqueue_results(jobs, await self._insert_by_tenant(jobs, again=again))
                rows = await self._database.fetch(
                    _sql["enqueue"], *enqueue_arguments(jobs, self._database.now, again=again)
                )
                return enqueue_results(jobs, rows)
            except StoreUnavailable:
                if time.monotonic() > deadline:
                    raise
            except StoreError as error:
                # Sent again while the first try was still being committed: now it is there.
                if not again or not _is_duplicate_id(error) or time.monotonic() > deadline:
                    raise _explain_error(error, jobs) from error
            again = True
            await asyncio.sleep(PAUSE_SECONDS)

    async def _insert_uniform(self, jobs: list[NewJob]) -> list[Enqueued] | None:
        """The quick way, for most jobs; None where the function has to be called."""
        if self._database.pooled:  # where nothing stays prepared, planning it would cost more
            return None
        arguments = uniform_arguments(jobs, self._database.now)
        if arguments is None:
            return None
        if self._database.sees_one_tenant:
            rows = await self._database.fetch_for(jobs[0].tenant, _sql["enqueue_uniform"], *arguments)
            return uniform_results(jobs, rows[0]) if rows else None
        row = await self._database.fetchrow(_sql["enqueue_uniform"], *arguments)
        return None if row is None else uniform_results(jobs, row)

    async def _insert_by_tenant(self, jobs: Sequence[NewJob], *, again: bool) -> list[Record]:
        """All in one transaction: a call is all or nothing. A statement for each stretch of jobs of one
        tenant, because jobs get their numbers in their order.
        """
        now = self._database.now
        calls = [
            (tenant, enqueue_arguments(list(theirs), now, again=again))
            for tenant, theirs in groupby(jobs, key=_tenant_of)
        ]
        answers = await self._database.fetch_for_each(_sql["enqueue"], calls)
        return [row for rows in answers for row in rows]

    async def _drop_over_limit(self, calls: list[_Call]) -> list[_Call]:
        """Those of the calls that pass no limit; the others are told."""
        accepted: list[_Call] = []
        written: Counter[str] = Counter()
        for call in calls:
            try:
                problem = await self._limit_problem(call.jobs, written)
            except TidewheelError as error:
                _fail_call(call, error)
                continue
            if problem is not None:
                _fail_call(call, problem)
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
        self, jobs: Sequence[NewJob], written: Counter[str], look: LimitQuery | None = None
    ) -> LimitExceeded | None:
        look = look or functools.partial(self._read_limit_counts, jobs)
        keyed = [job for job in jobs if job.key is not None]
        taken = set()
        if keyed:
            rows = await look(
                _limits_sql["keys_taken"],
                [job.tenant for job in keyed],
                [job.task or job.topic for job in keyed],
                [job.key for job in keyed],
            )
            taken = {tuple(row) for row in rows}
        added = count_new_jobs_by_topic(jobs, taken)
        rows = await look(_limits_sql["jobs_by_topic"])
        known = {row[0] for row in rows} | written.keys()
        active = written.copy()
        for topic, number in rows:  # of two tenants one topic may come twice
            active[topic] += int(number)
        return check_store_limits(
            self._limits, added, topics=lambda: known, active=lambda topic: active[topic]
        )

    async def _read_limit_counts(
        self, jobs: Sequence[NewJob], statement: str, *arguments: Any
    ) -> list[Record]:
        """What the limits ask for: of everybody, or as much as the tenants of these jobs may see."""
        if not self._database.sees_one_tenant:
            return await self._database.fetch(statement, *arguments)
        calls = [(tenant, arguments) for tenant in sorted({job.tenant for job in jobs})]
        return [row for rows in await self._database.fetch_for_each(statement, calls) for row in rows]


def _is_keyed(call: _Call) -> bool:
    return any(job.key is not None for job in call.jobs)


def _fail_call(call: _Call, error: TidewheelError) -> None:
    if not call.answer.done():
        call.answer.set_exception(error)


def _is_duplicate_id(error: StoreError) -> bool:
    """Whether the id of a job was there already. Not by the message: that is in the server's language."""
    return isinstance(error.__cause__, asyncpg.UniqueViolationError)


def _explain_error(error: StoreError, jobs: Sequence[NewJob]) -> StoreError:
    if _is_duplicate_id(error):
        which = f"job id {jobs[0].id} is taken" if len(jobs) == 1 else "a job id is taken"
        return StoreError(f"{which}; every job needs an id of its own")
    return error
