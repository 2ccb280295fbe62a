"""``ctx.transaction``: the job's own database, in a transaction that ends with the job.

What a handler does there and the completion of its job are committed together, or neither is. It is opened by
its first use; a handler that raises, is stopped or dies has done nothing. Jobs that the handler enqueues
meanwhile are part of it, and so is what it reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

from tidewheel.core.model import Enqueued, JobRecord, NewJob, Report, Settlement
from tidewheel.errors import WrongState

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.stores.protocol import HandlerTransaction
    from tidewheel.tasks.context import Context

T = TypeVar("T")

current_handler: ContextVar[Context | None] = ContextVar("tidewheel_running", default=None)
"""The context of the handler that this code is called by, where it asked for one."""


class Transaction:
    """A handler's statements. Placeholders are the database's: ``?`` on SQLite, ``$1`` on PostgreSQL."""

    __slots__ = ("_begin", "_ended", "_loop", "_opening", "_reports")

    def __init__(
        self, begin: Callable[[], Awaitable[HandlerTransaction]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._begin = begin
        self._loop = loop  # the worker's; connections belong there
        self._opening: asyncio.Future[HandlerTransaction] | None = None
        self._ended = False
        self._reports: dict[str, Report] = {}  # by what they are about

    async def execute(self, statement: str, *values: Any) -> int:
        """Run a statement; how many rows it changed."""
        return await self._on_worker_loop(self._execute(statement, values))

    async def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement once for each row of values."""
        await self._on_worker_loop(self._execute_many(statement, [tuple(row) for row in rows]))

    async def fetch(self, statement: str, *values: Any) -> list[Any]:
        """All rows of a query; each is read by position and by name."""
        return await self._on_worker_loop(self._fetch(statement, values))

    async def fetchrow(self, statement: str, *values: Any) -> Any:
        """The first row; None when there is none."""
        rows = await self.fetch(statement, *values)
        return rows[0] if rows else None

    async def fetchval(self, statement: str, *values: Any) -> Any:
        """The first value of the first row; None when there is none."""
        row = await self.fetchrow(statement, *values)
        return None if row is None else row[0]

    async def connection(self) -> Any:
        """On PostgreSQL the driver's own connection (``asyncpg``), for what else it can do.

        It is inside the transaction, and must not end it. On SQLite ``WrongState``: all is said here.
        """
        return await self._on_worker_loop(self._raw())

    @property
    def is_open(self) -> bool:
        """Whether it has been used, and has not ended."""
        return self._opening is not None and not self._ended

    @property
    def is_waited_for(self) -> bool:
        """Whether it has not had its turn yet, so that nothing was done in it."""
        return self._opening is not None and not self._opening.done()

    def __repr__(self) -> str:
        return f"<Transaction, {'open' if self.is_open else 'not open'}>"

    # -- for the app and the worker -----------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Jobs that exist once the job at hand is completed."""
        return await self._on_worker_loop(self._enqueue(jobs))

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        """A job as seen from inside."""
        return await self._on_worker_loop(self._get(job_id, tenant))

    def keep_report(self, report: Report) -> None:
        """Write this with the end, where only the last about anything is of interest."""
        if report.step is not None:
            about = f"step {report.step.name}"
        else:
            about = "progress" if report.checkpoint is None else "checkpoint"
        self._reports[about] = report

    async def complete(self, settlement: Settlement) -> bool:
        """End the job and commit, all in one; False when its lease is no longer held."""
        transaction = await self._opened()  # at once: it was awaited by whatever was said in it
        self._ended = True  # what a task that the handler left behind enqueues now is no part of it
        return await transaction.complete(settlement, list(self._reports.values()))

    async def roll_back(self) -> None:
        """Undo everything."""
        self._ended = True
        opening = self._opening
        if opening is None:
            return
        if not opening.done():
            # Its handler was stopped while it waited for its turn.
            opening.cancel()
            await asyncio.wait((opening,))
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().roll_back()

    async def _opened(self) -> HandlerTransaction:
        opening = self._opening
        if opening is None:
            opening = self._opening = asyncio.ensure_future(self._begin())
            opening.add_done_callback(self._check_opening)
        # Shielded: of several who wait for it, one that gives up must not take it from the others.
        return await asyncio.shield(opening)

    def _check_opening(self, opening: asyncio.Future[HandlerTransaction]) -> None:
        """One that failed is told to whoever waits, and is none: the next statement tries again."""
        if opening.cancelled() or opening.exception() is not None:
            self._opening = None

    async def _execute(self, statement: str, values: Sequence[Any]) -> int:
        return await (await self._opened()).execute(statement, values)

    async def _execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        await (await self._opened()).execute_many(statement, rows)

    async def _fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        return await (await self._opened()).fetch(statement, values)

    async def _raw(self) -> Any:
        return (await self._opened()).connection

    async def _enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await (await self._opened()).enqueue(jobs)

    async def _get(self, job_id: UUID, tenant: str | None) -> JobRecord | None:
        return await (await self._opened()).get(job_id, tenant=tenant)

    async def _on_worker_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """On the worker's event loop, from whichever this is: blocking calls come from one of their own."""
        if asyncio.get_running_loop() is self._loop:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))


class BlockingTransaction:
    """The same for handlers that are plain functions: ``ctx.sync.transaction``."""

    __slots__ = ("_context", "_transaction")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._transaction = context.transaction

    def execute(self, statement: str, *values: Any) -> int:
        """See ``Transaction.execute``."""
        return self._context.wait_for(self._transaction.execute(statement, *values))

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """See ``Transaction.executemany``."""
        self._context.wait_for(self._transaction.executemany(statement, rows))

    def fetch(self, statement: str, *values: Any) -> list[Any]:
        """See ``Transaction.fetch``."""
        return self._context.wait_for(self._transaction.fetch(statement, *values))

    def fetchrow(self, statement: str, *values: Any) -> Any:
        """See ``Transaction.fetchrow``."""
        return self._context.wait_for(self._transaction.fetchrow(statement, *values))

    def fetchval(self, statement: str, *values: Any) -> Any:
        """See ``Transaction.fetchval``."""
        return self._context.wait_for(self._transaction.fetchval(statement, *values))


def current_transaction(app: Tidewheel) -> Transaction | None:
    """The open transaction that what this code does with ``app`` is part of."""
    context = current_handler.get()
    return None if context is None else context.transaction_for(app)


def refuse_in_transaction(app: Tidewheel, verb: str) -> None:
    """For verbs that cannot be part of a handler's transaction, and on SQLite would wait for its end."""
    if current_transaction(app) is not None:
        raise WrongState(
            f"{verb} cannot be part of this handler's open transaction; call it before ctx.transaction is "
            "first used, or from a job that is enqueued here"
        )
