"""Run all writes on one thread, which commits many callers' operations together.

One fsync serves a batch, and the next batch gathers meanwhile: 100 concurrent callers pay 1/100 fsync each.
Callers that get their results together often call again at once; those calls are handed over in one piece,
because passing them singly would cost as much as writing them.

``commit_durably`` handles a failed sync. The pages of that commit stay complete in the log, and SQLite would
honour them after a crash. A small commit overwrites them before the callers get their error.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import operator
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar, cast

from tidewheel.core.clock import Clock
from tidewheel.core.clock_guard import ClockGuard
from tidewheel.core.model import RescuedJob
from tidewheel.errors import StoreError, StoreUnavailable, TidewheelError
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.sqlite.connection import (
    DECODE_ERRORS,
    ForkGuard,
    begin_immediate,
    connect,
    translate_error,
)
from tidewheel.stores.sqlite.file_identity import FileIdentity
from tidewheel.stores.sqlite.handler_transaction import SqliteHandlerTransaction
from tidewheel.stores.sqlite.location import Location
from tidewheel.stores.sqlite.wakeups import ProcessWakeup
from tidewheel.stores.sqlite.wal_checkpoint import Checkpointer
from tidewheel.stores.sqlite.write_transaction import (
    GrantedJobs,
    OptimisticWriteFailed,
    WriteTransaction,
    reserve_sequence,
    savepoint,
)
from tidewheel.stores.wakeups import LimitWakeups

# The commit's mark goes with the last page: whoever fails before it has left nothing to honour.
# A constraint is one of the user's tables, checked at the end (see ``handler_transaction``).
_BEFORE_THE_MARK = ("SQLITE_FULL", "SQLITE_BUSY", "SQLITE_IOERR_WRITE", "SQLITE_CONSTRAINT")


def commit_durably(
    connection: sqlite3.Connection, location: Location, request_lock: Callable[[], None]
) -> None:
    """COMMIT. When that fails, nothing of it is left, or the error says that nobody knows."""
    try:
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        if (getattr(error, "sqlite_errorname", "") or "").startswith(_BEFORE_THE_MARK):
            raise
        try:
            _overwrite_failed_commit(connection, location, request_lock)
        except (sqlite3.Error, StoreError):
            raise StoreUnavailable(
                f"{translate_error(error, location)}; whether this was written is not known, and will be "
                "seen when "
                "the file is opened again after a crash: look before trying again, or use a key"
            ) from error
        raise


def _overwrite_failed_commit(
    connection: sqlite3.Connection, location: Location, make_heard: Callable[[], None]
) -> None:
    """A commit that changes one page, in the place of the failed one's first."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    begin_immediate(connection, location, make_heard)
    reserve_sequence(connection, "number", 1)  # one that no job will have
    connection.execute("COMMIT")


A = TypeVar("A")
R = TypeVar("R")

# Takes the arguments of several callers at once; answers each with a result, or an error of its own.
Operation = Callable[[WriteTransaction, Sequence[A]], "Sequence[R | TidewheelError]"]

MAX_CALLS_PER_COMMIT = 2000
"""Most operations in one transaction: bounds how long the first caller waits for the last one's work."""


LOCK_YIELD_SECONDS = 0.001
"""How long the lock is left to another process that waits for it, which tries every half a millisecond."""

_operation_of = operator.attrgetter("operation")
_log = logging.getLogger("tidewheel.sqlite")


@dataclass(slots=True)
class _Call:
    operation: Operation[Any, Any]
    argument: Any
    future: asyncio.Future[Any] | None  # None: nobody waits for the answer
    durable: bool = True
    answer: Any = None
    error: BaseException | None = None


class Writer:
    """Owns the writing connection and its thread. Its callers are on the event loop that opened the store."""

    def __init__(
        self,
        location: Location,
        clock: Clock,
        limits: StoreLimits,
        doorbell: ProcessWakeup,
        loop: asyncio.AbstractEventLoop,
        rescued: Callable[[Sequence[RescuedJob]], None],
        afterwards: Operation[None, None],
    ) -> None:
        self._location = location
        self._release_operation = afterwards  # what goes on where a transaction has left more to do
        self._clock = clock
        self._limits = limits
        self.guard = ClockGuard(clock)
        self.guard.record(clock.now())
        self._grants = GrantedJobs()
        self._doorbell = doorbell
        self._calls: queue.SimpleQueue[list[_Call] | SqliteHandlerTransaction | None] = queue.SimpleQueue()
        self._next: SqliteHandlerTransaction | None = None  # its turn is after the calls just gathered
        self._loop = loop
        self._on_rescued = rescued
        self._gathered: list[_Call] | None = None  # while the turn is not over in which callers are told
        self._fork_guard = ForkGuard()
        self._limit_wakeups = LimitWakeups()
        self._closed = False
        self._connection = connect(location)
        self._syncs = location.synchronous == "FULL"
        self.file_identity = FileIdentity(location)
        self._checkpointer = Checkpointer(location, self._connection)
        self._thread = threading.Thread(target=self._run, name="tidewheel-sqlite-writer", daemon=True)
        self._thread.start()

    def run(
        self, operation: Operation[A, R], argument: A, *, coalesce: bool = False, durable: bool = True
    ) -> asyncio.Future[R]:
        """Have ``operation`` done in the next transaction; the answer comes once that is durable.

        Not ``lasting``: a power cut may undo it, as long as nothing came after it that is durable.

        ``with_others``: it may wait for the end of this turn of the event loop, to be handed over with what
        others say in it. Not for settlements: the next in this turn may be a handler that blocks the loop.
        """
        self._fork_guard.check()
        if self._closed:
            raise StoreError("the store is closed")
        future: asyncio.Future[R] = self._loop.create_future()
        call = _Call(operation, argument, future, durable)
        if coalesce and self._gathered is not None:
            self._gathered.append(call)
        else:
            self._calls.put([call])
        return future

    def post(self, operation: Operation[A, Any], argument: A) -> None:
        """Have it done without waiting, from any thread. For hints: nobody learns whether it failed."""
        if not self._fork_guard.forked and not self._closed:
            self._calls.put([_Call(operation, argument, None)])

    def run_handler_transaction(self, transaction: SqliteHandlerTransaction) -> None:
        """Have it begun when its turn comes, after what was asked for before it."""
        self._fork_guard.check()
        if self._closed:
            raise StoreError("the store is closed")
        self._calls.put(transaction)

    def close(self) -> None:
        """Finish every accepted call, then let go of the connection. Blocks; call it off the event loop."""
        if self._closed:
            return
        self._closed = True
        if self._fork_guard.forked:
            return  # the thread and its connection belong to the parent
        self._calls.put(None)
        self._thread.join()

    # -- on the callers' event loop -----------------------------------------------------------------------

    def _resolve_calls(self, calls: list[_Call]) -> None:
        """Give the callers their answers. They run next, one after the other, and then
        ``_submit_gathered``.
        """
        if self._gathered is None:
            self._gathered = []
        try:
            for call in calls:
                future = call.future
                if future is None or future.done():
                    continue
                if call.error is not None:
                    future.set_exception(call.error)
                else:
                    future.set_result(call.answer)
        finally:
            self._loop.call_soon(self._submit_gathered)

    def _submit_gathered(self) -> None:
        calls, self._gathered = self._gathered or [], None
        if self._closed:
            self._refuse(calls)
            return
        for start in range(0, len(calls), MAX_CALLS_PER_COMMIT):
            self._calls.put(calls[start : start + MAX_CALLS_PER_COMMIT])

    # -- on any thread ------------------------------------------------------------------------------------

    def _answer(self, calls: list[_Call]) -> None:
        """One message for all."""
        try:
            self._loop.call_soon_threadsafe(self._resolve_calls, calls)
        except RuntimeError:
            # The callers' loop was closed while they waited: nobody is left to answer.
            if not self._loop.is_closed():
                raise

    def _refuse(self, calls: list[_Call]) -> None:
        for call in calls:
            call.error = StoreError("the store was closed before this could be done")
        if calls:
            self._answer(calls)

    # -- on the writer's thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (work := self._next_work()) is not None:
                self._doorbell.lock_requested = False
                if isinstance(work, SqliteHandlerTransaction):
                    committed = self._serve_handler_transaction(work)
                else:
                    committed = self._write(work)
                    self._answer(work)
                if committed:
                    self._checkpoint()
                if self._doorbell.lock_requested:
                    time.sleep(LOCK_YIELD_SECONDS)
        finally:
            # Also when a bug ends this thread: nobody may wait for an answer that will not come.
            self._closed = True
            left: list[_Call] = []
            if self._next is not None:
                self._next.fail_to_open(StoreError("the store was closed before this could be done"))
            with contextlib.suppress(queue.Empty):
                while True:
                    more = self._calls.get_nowait()
                    if isinstance(more, SqliteHandlerTransaction):
                        more.fail_to_open(StoreError("the store was closed before this could be done"))
                    else:
                        left += more or ()
            self._refuse(left)
            self._notify_processes(self._limit_wakeups.pop_all_topics(), finished=False)
            self._checkpointer.close()
            self._connection.close()

    def _next_work(self) -> list[_Call] | SqliteHandlerTransaction | None:
        """What has come in; waits for the first. None when the store is being closed."""
        lent, self._next = self._next, None
        if lent is not None:
            return lent
        calls: list[_Call] = []
        more = self._wait()
        while more is not None:
            if isinstance(more, SqliteHandlerTransaction):
                if not calls:
                    return more
                self._next = more
                return calls
            # A caller that gave up before its turn gets nothing written.
            calls += [call for call in more if call.future is None or not call.future.cancelled()]
            if len(calls) >= MAX_CALLS_PER_COMMIT:
                return calls
            try:
                more = self._calls.get_nowait()
            except queue.Empty:
                return calls
        if calls:
            self._calls.put(None)  # after these
            return calls
        return None

    def _wait(self) -> list[_Call] | SqliteHandlerTransaction | None:
        """For the first to come in. Whoever else waits for room learns of it meanwhile."""
        while (seconds := self._limit_wakeups.due_in(time.monotonic())) is not None:
            try:
                return self._calls.get(timeout=seconds)
            except queue.Empty:
                self._notify_processes(self._limit_wakeups.pop_due_topics(time.monotonic()), finished=False)
        return self._calls.get()

    def _write(self, calls: list[_Call]) -> bool:
        """One transaction for all of them. What fails here fails for every caller, and left nothing.

        Where a failing disk makes that uncertain, the error says so.
        """
        connection = self._connection
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")  # an earlier one failed; what it left is nobody's
            self._choose_sync(connection, lasting=any(call.durable for call in calls))
            try:
                self._write_all(connection, calls, hopeful=True)
            except sqlite3.OperationalError:
                raise  # the database, not a caller: the whole transaction fails
            except Exception as error:
                if len(calls) == 1 and not isinstance(error, OptimisticWriteFailed):
                    raise  # there are no neighbours to protect
                self._write_all(connection, calls, hopeful=False)
        except (sqlite3.Error, *DECODE_ERRORS) as error:
            failure = translate_error(error, self._location)
            for call in calls:
                call.error = failure
            return False
        except BaseException as error:
            for call in calls:
                call.error = error
            return False
        return True

    def _write_all(self, connection: sqlite3.Connection, calls: list[_Call], *, hopeful: bool) -> None:
        """``hopeful``: nobody is protected from a neighbour's error, because there hardly ever is one."""
        transaction = self._begin(connection, hopeful=hopeful)
        try:
            for _, group in groupby(calls, key=_operation_of):
                if hopeful:
                    _run_operation(transaction, list(group))
                else:
                    self._run_guarded(transaction, list(group))
            self._commit(transaction)
        except BaseException:
            # After some errors (a full disk) SQLite has rolled back by itself.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _choose_sync(self, connection: sqlite3.Connection, *, lasting: bool) -> None:
        """Whether the next commit is synced. One that is takes all before it along: they are in one log."""
        if self._location.synchronous == "FULL" and lasting != self._syncs:
            connection.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
            self._syncs = lasting

    def _begin(self, connection: sqlite3.Connection, *, hopeful: bool = False) -> WriteTransaction:
        """Take the write lock."""
        begin_immediate(connection, self._location, self._request_lock)
        return WriteTransaction(
            connection, self._clock.now(), self._limits, self._grants, hopeful, guard=self.guard
        )

    def _commit(self, transaction: WriteTransaction) -> None:
        """What happened meanwhile is counted and made known; then it is durable."""
        transaction.counter_deltas.write(transaction.connection)
        # Before the commit, so that waking up takes no time of its own: a claim needs the write lock, and
        # gets it when the commit is done.
        self._notify_processes(
            transaction.ready_topics | self._notify_freed_slots(transaction), finished=False
        )
        self.file_identity.check(in_transaction=True)
        commit_durably(transaction.connection, self._location, self._request_lock)
        # After the commit: whoever waits for results only reads, and would find none yet.
        self._notify_processes(set(), finished=transaction.finished)
        if transaction.rescued:
            self._on_rescued(transaction.rescued)
        if transaction.releases_pending:
            self.post(self._release_operation, None)

    def _notify_freed_slots(self, transaction: WriteTransaction) -> set[str]:
        """Who is here learns at once of what came free; the topics that others are to be told of."""
        now = time.monotonic()
        if transaction.freed_slots:
            self._limit_wakeups.add_freed_slots(transaction.freed_slots, now)
            freed = {topic for topic, places in transaction.freed_slots.items() if places > 0}
            if freed:
                self._doorbell.notify_this_process(freed)
        return self._limit_wakeups.pop_due_topics(now)

    def _serve_handler_transaction(self, lent: SqliteHandlerTransaction) -> bool:
        """Begin a handler's own transaction, and serve nobody else until it is over; whether it committed."""
        if not lent.is_open:
            return False
        connection: sqlite3.Connection | None = None
        try:
            connection = connect(self._location, for_handler=True)
            return lent.serve(self._begin(connection), self._commit, self._clock.now)
        except BaseException as error:
            lent.fail_to_open(
                translate_error(error, self._location) if isinstance(error, sqlite3.Error) else error
            )
            return False
        finally:
            if connection is not None:
                lent.detach(connection)

    def _request_lock(self) -> None:
        try:
            self._doorbell.request_lock(self._connection)
        except sqlite3.Error as error:
            _log.debug("nobody could be asked for the write lock: %s", error)

    def _notify_processes(self, ready_topics: set[str], *, finished: bool) -> None:
        try:
            self._doorbell.notify(self._connection, ready_topics, finished=finished)
        except Exception as error:
            # Nobody's work may fail for it, and this thread must live: the next commit gives one again.
            self._checkpointer.failed(error)

    def _checkpoint(self) -> None:
        """After everybody has their answer: a checkpoint takes longer than a commit."""
        try:
            self._checkpointer.after_commit()
        except Exception as error:
            self._checkpointer.failed(error)  # likewise

    def _run_guarded(self, transaction: WriteTransaction, group: list[_Call]) -> None:
        """Run one operation for several callers; if it raises, find out whose fault it was."""
        connection = transaction.connection
        part = transaction.nested()
        try:
            with savepoint(connection, "tidewheel_group"):
                _run_operation(part, group)
        except sqlite3.OperationalError:
            raise  # the database, not a caller: the whole transaction fails
        except Exception as error:
            if not connection.in_transaction:
                raise  # SQLite rolled everything back by itself: there is nothing left to save
            if len(group) == 1:
                damage = isinstance(error, (sqlite3.Error, *DECODE_ERRORS))
                group[0].error = translate_error(error, self._location) if damage else error
                return
            for call in group:
                self._run_guarded(transaction, [call])
        else:
            transaction.absorb(part)


def _run_operation(transaction: WriteTransaction, group: list[_Call]) -> None:
    answers = group[0].operation(transaction, [call.argument for call in group])
    for call, answer in zip(group, answers, strict=True):
        if isinstance(answer, TidewheelError):
            call.error = answer
        else:
            call.answer = answer


def one_by_one(function: Callable[[WriteTransaction, A], R]) -> Operation[A, R]:
    """An operation that has nothing to gain from being merged: each argument in turn."""

    def operation(transaction: WriteTransaction, arguments: Sequence[A]) -> Sequence[R | TidewheelError]:
        return [function(transaction, argument) for argument in arguments]

    return cast("Operation[A, R]", operation)
