"""A transaction lent to a handler: its own statements, and with them the end of its job.

The writing thread begins it on a connection made for it, and serves nobody else until it is over: there is
one write lock, and whoever waits for it in this process waits here, in the order they came. What the handler
says is done on that thread, one after another. When its time is over it is rolled back, whatever the handler
does.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import Enqueued, JobRecord, Lease, NewJob, Report, Settlement
from tidewheel.errors import LeaseLost, StoreError, TidewheelError, WrongState
from tidewheel.stores.sqlite import (
    dependencies,
    job_queries,
    settlements,
    write_transaction,
)
from tidewheel.stores.sqlite import (
    enqueue as enqueue_writes,
)
from tidewheel.stores.sqlite.connection import DECODE_ERRORS, translate_error
from tidewheel.stores.sqlite.location import Location
from tidewheel.stores.sqlite.write_transaction import WriteTransaction
from tidewheel.stores.terminal_errors import transaction_timeout_error

T = TypeVar("T")

OPCODES_BETWEEN_TIME_CHECKS: Final = 10_000
"""Steps of SQLite's machine between two looks at the time: a fraction of a millisecond."""

_HANDLER_SAVEPOINT: Final = "tidewheel_handler"
"""A savepoint: what the handler did can be undone, and something written in its place."""
_WRITES: Final = frozenset({sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE})
_SCHEMA_CHANGES: Final = frozenset(
    {
        sqlite3.SQLITE_ALTER_TABLE,
        sqlite3.SQLITE_CREATE_INDEX,
        sqlite3.SQLITE_CREATE_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,  # it would be taken for the real one
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
        sqlite3.SQLITE_CREATE_TRIGGER,
        sqlite3.SQLITE_CREATE_VIEW,
        sqlite3.SQLITE_DROP_INDEX,
        sqlite3.SQLITE_DROP_TABLE,
        sqlite3.SQLITE_DROP_TRIGGER,
    }
)
_FORBIDDEN_PRAGMAS: Final = frozenset(
    {"journal_mode", "locking_mode", "synchronous", "wal_autocheckpoint", "wal_checkpoint", "writable_schema"}
)
"""Pragmas that change how the file is written, which is not a handler's to decide."""


@dataclass(slots=True)
class _Request:
    work: Callable[[WriteTransaction], Any]
    answer: asyncio.Future[Any]
    is_store_verb: bool = True  # a verb of the store; not a statement of the handler's
    is_last: bool = False


class SqliteHandlerTransaction:
    """One transaction, between the handler's event loop and the thread that writes."""

    def __init__(
        self,
        location: Location,
        lease: Lease,
        *,
        lease_seconds: float,
        seconds: float,
        on_timeout: Callable[[], None],
    ) -> None:
        self._location = location
        self._lease = lease
        self._lease_seconds = lease_seconds
        self._seconds = seconds
        self._on_timeout = on_timeout
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._began = 0  # by the store's clock
        self._ends_at = 0.0
        self._running_store_verb = False
        self._ended_with: TidewheelError | None = None
        self._thread_done = False  # the thread takes no more requests

    # -- on the event loop --------------------------------------------------------------------------------

    async def open(self) -> None:
        """Wait for the turn. Raises ``LeaseLost`` when the job is not this lease's any more."""
        try:
            await self._opened
        except asyncio.CancelledError:
            self._end(WrongState("the transaction was given up before it was opened"))
            self._requests.put(_Request(_nothing, self._loop.create_future(), is_last=True))
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        # Two threads with one connection of the driver's can wait for each other for ever, or crash.
        raise WrongState(
            "on SQLite the connection stays with the thread that writes; say statements with ctx.transaction "
            "itself: execute, executemany, fetch, fetchrow, fetchval"
        )

    async def execute(self, statement: str, values: Sequence[Any]) -> int:
        return await self._submit(lambda transaction: _execute(transaction, statement, values), ours=False)

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        await self._submit(lambda transaction: _execute_many(transaction, statement, rows), ours=False)

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        return await self._submit(lambda transaction: _fetch(transaction, statement, values), ours=False)

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        return await self._submit(
            lambda transaction: enqueue_writes.enqueue_in_transaction(transaction, jobs)
        )

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        return await self._submit(lambda transaction: job_queries.get(transaction.connection, job_id, tenant))

    async def complete(self, settlement: Settlement, reports: Sequence[Report]) -> bool:
        return await self._submit(lambda transaction: _complete(transaction, settlement, reports), ends=True)

    async def roll_back(self) -> None:
        if self._ended_with is None:
            await self._submit(_nothing, ends=True)

    async def _submit(
        self, work: Callable[[WriteTransaction], T], *, ours: bool = True, ends: bool = False
    ) -> T:
        if self._ended_with is not None:
            raise self._ended_with
        answer: asyncio.Future[T] = self._loop.create_future()
        self._requests.put(_Request(work, answer, ours, ends))
        if self._thread_done:  # the thread has turned away between our look and our asking
            self._refuse_requests(self._ended_with)
        return await answer

    # -- on the writer's thread ---------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._ended_with is None

    def serve(
        self,
        transaction: WriteTransaction,
        commit: Callable[[WriteTransaction], None],
        now: Callable[[], int],
    ) -> bool:
        """Do what is asked until it is over; whether it was committed. The write lock is held."""
        connection = transaction.connection
        self._began = transaction.now
        self._ends_at = time.monotonic() + self._seconds
        self._check_lease(transaction)
        connection.execute(f"SAVEPOINT {_HANDLER_SAVEPOINT}")
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._timed_out, OPCODES_BETWEEN_TIME_CHECKS)
        self._resolve(self._opened, None, None)
        while (request := self._next()) is not None:
            if request.answer.cancelled() and not request.is_last:
                continue  # a caller that gave up before its turn gets nothing written
            transaction.now = now()
            value, error = self._do(request, transaction)
            if request.is_last:
                return self._finish(transaction, request, value, error, commit)
            self._resolve(request.answer, value, error)
        transaction.now = now()
        self._undo(transaction)
        self._call_on_loop(self._on_timeout)
        return False

    def _next(self) -> _Request | None:
        """What is asked next; None when the time is over."""
        left = self._ends_at - time.monotonic()
        with contextlib.suppress(queue.Empty):
            if left > 0:
                return self._requests.get(timeout=left)
        self._end(transaction_timeout_error(self._seconds))
        return None

    def _finish(
        self,
        transaction: WriteTransaction,
        request: _Request,
        value: Any,
        error: BaseException | None,
        commit: Callable[[WriteTransaction], None],
    ) -> bool:
        """After the last request, whose value says whether to commit."""
        self._end(WrongState("the transaction has ended with its job"))
        if value is True:
            try:
                with self._allow_store_writes():
                    write_transaction.record_lock_pause(transaction.connection, self._began, transaction.now)
                    commit(transaction)
            except sqlite3.IntegrityError as failure:
                value, error = None, failure  # a constraint of the handler's tables that is checked last
            except BaseException as failure:
                value, error = None, self._translated(failure)
        if value is not True:
            self._undo(transaction)
        self._resolve(request.answer, value, error)
        return value is True

    def _undo(self, transaction: WriteTransaction) -> None:
        """Roll back. A gap is written down all the same, before anybody else gets the lock."""
        connection = transaction.connection
        # What cannot be done here goes with the connection, which is closed next.
        with self._allow_store_writes(), contextlib.suppress(sqlite3.Error):
            if connection.in_transaction and transaction.now - self._began >= write_transaction.MIN_PAUSE:
                connection.execute(f"ROLLBACK TO {_HANDLER_SAVEPOINT}")
                write_transaction.record_lock_pause(connection, self._began, transaction.now)
                connection.execute("COMMIT")
            elif connection.in_transaction:
                connection.execute("ROLLBACK")

    def _translated(self, error: BaseException) -> BaseException:
        if isinstance(error, (sqlite3.Error, *DECODE_ERRORS)):
            return translate_error(error, self._location)
        return error

    def fail_to_open(self, error: BaseException) -> None:
        """It could not be begun, or its writer is gone."""
        self._end(error if isinstance(error, TidewheelError) else StoreError(f"no transaction: {error!r}"))
        self._resolve(self._opened, None, error)
        self._refuse_requests(error)

    def detach(self, connection: sqlite3.Connection) -> None:
        """After the end: leave nothing that a handler could go on with."""
        connection.close()
        self._refuse_requests(self._ended_with)

    def _check_lease(self, transaction: WriteTransaction) -> None:
        """The lease must hold now, and then does until the end: nobody else can write meanwhile."""
        lease_us = seconds_to_microseconds(self._lease_seconds)
        if not settlements.extend_if_longer(transaction, self._lease, lease_us):
            raise LeaseLost(
                f"job {self._lease.job_id} is no longer held by this run (fence {self._lease.fence}); "
                "no transaction was begun"
            )

    def _do(self, request: _Request, transaction: WriteTransaction) -> tuple[Any, BaseException | None]:
        connection = transaction.connection
        if not connection.in_transaction:
            return None, StoreError(
                "the database has rolled the transaction back by itself, after an error or by ROLLBACK in a "
                "conflict clause; the job is tried again"
            )
        try:
            if not request.is_store_verb:
                return request.work(transaction), None
            with self._allow_store_writes():
                return request.work(transaction), None
        except BaseException as error:
            if request.is_store_verb:
                return None, self._translated(error)
            late = time.monotonic() >= self._ends_at
            return None, transaction_timeout_error(self._seconds) if late else error

    @contextlib.contextmanager
    def _allow_store_writes(self) -> Iterator[None]:
        """Verbs of the store may do what a handler may not."""
        self._running_store_verb = True
        try:
            yield
        finally:
            self._running_store_verb = False

    def _authorize(self, action: int, first: str | None, second: str | None, *_: str | None) -> int:
        """Asked by SQLite about every statement: nothing is prepared twice, so none goes by."""
        if self._running_store_verb:
            return sqlite3.SQLITE_OK
        if (
            action == sqlite3.SQLITE_TRANSACTION
            or (action in _WRITES and _is_store_table(first))
            or (action == sqlite3.SQLITE_SAVEPOINT and _is_store_table(second))
            or (action in _SCHEMA_CHANGES and (_is_store_table(first) or _is_store_table(second)))
            or (
                action == sqlite3.SQLITE_PRAGMA
                and second is not None
                and (first or "").lower() in _FORBIDDEN_PRAGMAS
            )
        ):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    def _timed_out(self) -> bool:
        return not self._running_store_verb and time.monotonic() >= self._ends_at

    # -- on any thread ------------------------------------------------------------------------------------

    def _end(self, why: TidewheelError) -> None:
        if self._ended_with is None:
            self._ended_with = why

    def _refuse_requests(self, error: BaseException | None) -> None:
        self._thread_done = True
        with contextlib.suppress(queue.Empty):
            while True:
                self._resolve(self._requests.get_nowait().answer, None, error)

    def _resolve(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._call_on_loop(lambda: _set(future, value, error))

    def _call_on_loop(self, function: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self._loop.is_closed():  # closed: nobody is left to tell
                raise


def _set(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
        future.exception()  # whoever gave up waiting for it does not look


def _is_store_table(table: str | None) -> bool:
    return table is not None and table.lower().startswith("tidewheel_")


def _nothing(transaction: WriteTransaction) -> None:  # noqa: ARG001 - a request like others
    return None


def _execute(transaction: WriteTransaction, statement: str, values: Sequence[Any]) -> int:
    cursor = transaction.connection.execute(statement, values)
    cursor.fetchall()  # a statement with RETURNING is done when its rows are read
    changed = cursor.rowcount
    cursor.close()
    return max(0, changed)


def _execute_many(transaction: WriteTransaction, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    transaction.connection.executemany(statement, rows).close()


def _fetch(transaction: WriteTransaction, statement: str, values: Sequence[Any]) -> list[Any]:
    cursor = transaction.connection.cursor()
    cursor.row_factory = sqlite3.Row
    try:
        return cursor.execute(statement, values).fetchall()
    finally:
        cursor.close()


_settle = dependencies.then_release_dependents(settlements.settle)


def _complete(transaction: WriteTransaction, settlement: Settlement, reports: Sequence[Report]) -> bool:
    settlements.save_reports(transaction, reports)
    (accepted,) = _settle(transaction, [settlement])
    return accepted
