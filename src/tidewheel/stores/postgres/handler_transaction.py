"""A transaction lent to a handler: its own statements, and with them the end of its job.

It has a connection of its own, not one of those the verbs share: ten handlers that think must not keep a
settlement waiting. The job's row is not touched before the end, so that its lease can be extended meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final
from uuid import UUID

from tidewheel.core.model import Enqueued, JobRecord, Lease, NewJob, Report, Settlement
from tidewheel.errors import LimitExceeded, StoreUnavailable, TidewheelError, WrongState
from tidewheel.stores.postgres import job_queries, settlements
from tidewheel.stores.postgres.database import Database, OnConnection, Statements
from tidewheel.stores.postgres.dependencies import ReleaseResult
from tidewheel.stores.postgres.enqueue import enqueue_arguments, enqueue_results
from tidewheel.stores.postgres.errors import DRIVER_ERRORS, translate_error
from tidewheel.stores.postgres.tenant_scope import set_tenant_statement
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.terminal_errors import transaction_timeout_error

LOST_COMMIT_SECONDS: Final = 30.0
"""How long to find out what became of a commit whose answer was lost."""
PAUSE_SECONDS: Final = 0.1
ANSWER_SECONDS: Final = 15.0
"""How long a statement of ours may take here: nothing else ends the wait for a server gone silent."""
RESET_SESSION: Final = (
    "RESET SESSION AUTHORIZATION; RESET ROLE; SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *;"
    " RESET ALL; DISCARD TEMP; DISCARD SEQUENCES"
)
"""What a handler may have left in the session."""

_LEASE_SETTING: Final = "tidewheel.lease_fence"
"""A setting of the transaction: when it is gone, somebody has ended what was not theirs to end."""
_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")

CheckLimits = Callable[[Statements, Sequence[NewJob]], Awaitable[LimitExceeded | None]]
OnEnqueued = Callable[[Sequence[NewJob], Sequence[Enqueued]], Awaitable[None]]
OnSettled = Callable[[Sequence[Settlement], Sequence[bool], ReleaseResult], None]


class PostgresHandlerTransaction:
    """One transaction, from its first statement to its end, on the event loop that began it."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        *,
        seconds: float,
        lease_seconds: float,
        on_timeout: Callable[[], None],
        limit_problem: CheckLimits,
        on_enqueued: OnEnqueued,
        on_settled: OnSettled,
    ) -> None:
        self._database = database
        self._lease = lease
        self._seconds = seconds
        self._lease_seconds = lease_seconds
        self._on_timeout = on_timeout
        self._limit_problem = limit_problem
        self._on_enqueued = on_enqueued
        self._on_settled = on_settled
        self._enqueued: list[tuple[Sequence[NewJob], Sequence[Enqueued]]] = []
        self._release_result = ReleaseResult()
        self._connection_lock = asyncio.Lock()  # a connection does one thing at a time
        self._connection: Any = None
        self._connection_exposed = False  # the handler has the connection itself
        self._transaction: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0  # by the loop's clock
        self._ended_with: TidewheelError | None = None

    async def open(self, tenant: str) -> None:
        """Begin it. The tenant is set for it alone, for policies of the handler's own tables."""
        connection = self._connection = await self._database.acquire_for_handler()
        try:
            self._transaction = connection.transaction(isolation="read_committed")
            milliseconds = max(1, int(self._seconds * 1000))
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._transaction.start()
                # The server ends it, too, should this process stand still: others may wait for its locks.
                await connection.execute(
                    f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds};"
                    f"SET LOCAL statement_timeout = {milliseconds};"
                    f"SET LOCAL {_LEASE_SETTING} = '{self._lease.fence}'; {set_tenant_statement(tenant)}"
                )
        except BaseException as error:
            self._end(WrongState("the transaction could not be begun"), broken=True)
            if isinstance(error, DRIVER_ERRORS):
                raise translate_error(error, self._database.description) from error
            raise
        loop = asyncio.get_running_loop()
        self._ends_at = loop.time() + self._seconds
        self._timer = loop.call_at(self._ends_at, self._abort_on_timeout)

    # -- for the handler ----------------------------------------------------------------------------------

    @property
    def connection(self) -> Any:
        if self._ended_with is not None:
            raise self._ended_with
        self._connection_exposed = True
        return self._connection

    async def execute(self, statement: str, values: Sequence[Any]) -> int:
        async with self._use_connection() as connection:
            words = str(await connection.execute(statement, *values)).split()
        # "UPDATE 3", "INSERT 0 3", "CREATE TABLE"
        return int(words[-1]) if words and words[-1].isdecimal() else 0

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        async with self._use_connection() as connection:
            await connection.executemany(statement, rows)

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        async with self._use_connection() as connection:
            return await connection.fetch(statement, *values)  # type: ignore[no-any-return]

    @asynccontextmanager
    async def _use_connection(self) -> AsyncIterator[Any]:
        async with self._connection_lock:
            if self._ended_with is None and asyncio.get_running_loop().time() >= self._ends_at:
                # somebody has blocked the event loop, and its timer is about to say so
                self._abort_on_timeout()
            if self._ended_with is not None:
                raise self._ended_with
            try:
                yield self._connection
            except DRIVER_ERRORS as error:
                # Said by the server or by a connection that was cut under the statement.
                if isinstance(late := self._ended_with, TimeoutError):
                    raise late from error
                raise

    # -- verbs of the store -------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        async with self._use_connection() as connection:
            on_connection = OnConnection(self._database, connection)
            if (problem := await self._limit_problem(on_connection, jobs)) is not None:
                raise problem
            arguments = enqueue_arguments(jobs, self._database.now, again=False)
            # A savepoint: what is refused leaves the handler's transaction as it was.
            async with connection.transaction():
                answers = enqueue_results(jobs, await on_connection.fetch(_sql["enqueue"], *arguments))
        self._enqueued.append((jobs, answers))
        return answers

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        async with self._use_connection() as connection:
            return await job_queries.get(OnConnection(self._database, connection), job_id, tenant)

    async def complete(self, settlement: Settlement, reports: Sequence[Report]) -> bool:
        async with self._use_connection() as connection:
            self._stop_timer()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    held = await self._settle(OnConnection(self._database, connection), settlement, reports)
            except TimeoutError as error:
                self._end(WrongState("the transaction has ended"), broken=True)
                raise translate_error(error, self._database.description) from error
            except BaseException:
                await self._undo()
                raise
            if not held:
                await self._undo()
                return False
            accepted = await self._commit(settlement)
        if accepted:
            for jobs, answers in self._enqueued:
                await self._on_enqueued(jobs, answers)
            self._on_settled([settlement], [True], self._release_result)
        return accepted

    async def roll_back(self) -> None:
        if self._ended_with is None:
            async with self._connection_lock:
                self._stop_timer()
                await self._undo()

    async def _settle(
        self, connection: OnConnection, settlement: Settlement, reports: Sequence[Report]
    ) -> bool:
        mark = await connection.fetchval(f"SELECT current_setting('{_LEASE_SETTING}', true)")
        if mark != str(self._lease.fence):
            raise WrongState(
                "the transaction was ended by the handler itself; what it did may be committed, and the job "
                "is not completed. Leave COMMIT and ROLLBACK to the end of the job"
            )
        if reports:
            await settlements.save_reports(connection, reports)
        (accepted,) = await settlements.settle_jobs(connection, [settlement], self._release_result)
        return accepted

    async def _commit(self, settlement: Settlement) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._transaction.commit()
        except (asyncio.CancelledError, *DRIVER_ERRORS) as error:
            self._end(WrongState("the transaction has ended"), broken=True)
            if isinstance(error, asyncio.CancelledError):
                raise
            translated = translate_error(error, self._database.description)
            if not isinstance(translated, StoreUnavailable):
                raise  # refused by the server, a constraint that is checked last: it was rolled back
            return await self._resolve_lost_commit(settlement, translated)
        await self._release_connection()
        return True

    async def _resolve_lost_commit(self, settlement: Settlement, error: StoreUnavailable) -> bool:
        """The answer to COMMIT was lost.

        Whether it was committed is known once the job's row can be had: a lease that can be extended has not
        been ended, and nobody is about to end it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOST_COMMIT_SECONDS
        while True:
            try:
                if await settlements.extend_leases(self._database, [settlement.lease], self._lease_seconds):
                    break
                return bool(await settlements.find_settled(self._database, [settlement]))
            except StoreUnavailable as away:
                if loop.time() > deadline:
                    raise StoreUnavailable(
                        f"{away}; whether the transaction was committed is not known"
                    ) from away
            await asyncio.sleep(PAUSE_SECONDS)
        raise StoreUnavailable(f"{error}; the transaction was rolled back") from error

    # -- the end ------------------------------------------------------------------------------------------

    async def _undo(self) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._transaction.rollback()
        except (asyncio.CancelledError, *DRIVER_ERRORS) as error:
            self._end(WrongState("the transaction has ended"), broken=True)  # the server rolls it back
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            await self._release_connection()

    async def _release_connection(self) -> None:
        """The connection can be lent again, unless a handler may still have it in its hands."""
        broken = self._connection_exposed
        if not broken and not self._database.pooled:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._connection.execute(RESET_SESSION)
            except DRIVER_ERRORS:
                broken = True
        self._end(WrongState("the transaction has ended with its job"), broken=broken)

    def _abort_on_timeout(self) -> None:
        """Cut off in the middle of whatever it does; the server rolls it back."""
        self._end(transaction_timeout_error(self._seconds), broken=True)
        self._on_timeout()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, why: TidewheelError, *, broken: bool = False) -> None:
        if self._ended_with is not None:
            return
        self._ended_with = why
        self._stop_timer()
        if broken:
            self._connection.terminate()
        self._database.release_from_handler(self._connection)
