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
from tidewheel.stores.postgres.dependencies import Freed
from tidewheel.stores.postgres.enqueue import enqueue_arguments, enqueued
from tidewheel.stores.postgres.errors import DRIVER_ERRORS, translate
from tidewheel.stores.postgres.tenant_scope import naming
from tidewheel.stores.sql_files import Queries
from tidewheel.stores.terminal_errors import transaction_late

UNSURE_SECONDS: Final = 30.0
"""How long to find out what became of a commit whose answer was lost."""
PAUSE_SECONDS: Final = 0.1
ANSWER_SECONDS: Final = 15.0
"""How long a statement of ours may take here: nothing else ends the wait for a server gone silent."""
FORGET: Final = (
    "RESET SESSION AUTHORIZATION; RESET ROLE; SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *;"
    " RESET ALL; DISCARD TEMP; DISCARD SEQUENCES"
)
"""What a handler may have left in the session."""

_MARK: Final = "tidewheel.lease_fence"
"""A setting of the transaction: when it is gone, somebody has ended what was not theirs to end."""
_sql = Queries("tidewheel.stores.postgres", "sql/functions.sql")

LimitProblem = Callable[[Statements, Sequence[NewJob]], Awaitable[LimitExceeded | None]]
Written = Callable[[Sequence[NewJob], Sequence[Enqueued]], Awaitable[None]]
Settled = Callable[[Sequence[Settlement], Sequence[bool], Freed], None]


class LentTransaction:
    """One transaction, from its first statement to its end, on the event loop that began it."""

    def __init__(
        self,
        database: Database,
        lease: Lease,
        *,
        seconds: float,
        lease_seconds: float,
        on_timeout: Callable[[], None],
        limit_problem: LimitProblem,
        on_written: Written,
        on_settled: Settled,
    ) -> None:
        self._database = database
        self._lease = lease
        self._seconds = seconds
        self._lease_seconds = lease_seconds
        self._on_timeout = on_timeout
        self._limit_problem = limit_problem
        self._on_written = on_written
        self._on_settled = on_settled
        self._written: list[tuple[Sequence[NewJob], Sequence[Enqueued]]] = []
        self._released = Freed()
        self._turn = asyncio.Lock()  # a connection does one thing at a time
        self._connection: Any = None
        self._shown = False  # the handler has the connection itself
        self._transaction: Any = None
        self._timer: asyncio.TimerHandle | None = None
        self._ends_at = 0.0  # by the loop's clock
        self._over: TidewheelError | None = None

    async def open(self, tenant: str) -> None:
        """Begin it. The tenant is set for it alone, for policies of the handler's own tables."""
        connection = self._connection = await self._database.lend()
        try:
            self._transaction = connection.transaction(isolation="read_committed")
            milliseconds = max(1, int(self._seconds * 1000))
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._transaction.start()
                # The server ends it, too, should this process stand still: others may wait for its locks.
                await connection.execute(
                    f"SET LOCAL idle_in_transaction_session_timeout = {milliseconds};"
                    f"SET LOCAL statement_timeout = {milliseconds};"
                    f"SET LOCAL {_MARK} = '{self._lease.fence}'; {naming(tenant)}"
                )
        except BaseException as error:
            self._let_go(WrongState("the transaction could not be begun"), broken=True)
            if isinstance(error, DRIVER_ERRORS):
                raise translate(error, self._database.where) from error
            raise
        loop = asyncio.get_running_loop()
        self._ends_at = loop.time() + self._seconds
        self._timer = loop.call_at(self._ends_at, self._time_is_over)

    # -- for the handler ----------------------------------------------------------------------------------

    @property
    def connection(self) -> Any:
        if self._over is not None:
            raise self._over
        self._shown = True
        return self._connection

    async def execute(self, statement: str, values: Sequence[Any]) -> int:
        async with self._on_turn() as connection:
            words = str(await connection.execute(statement, *values)).split()
        # "UPDATE 3", "INSERT 0 3", "CREATE TABLE"
        return int(words[-1]) if words and words[-1].isdecimal() else 0

    async def execute_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        async with self._on_turn() as connection:
            await connection.executemany(statement, rows)

    async def fetch(self, statement: str, values: Sequence[Any]) -> list[Any]:
        async with self._on_turn() as connection:
            return await connection.fetch(statement, *values)  # type: ignore[no-any-return]

    @asynccontextmanager
    async def _on_turn(self) -> AsyncIterator[Any]:
        async with self._turn:
            if self._over is None and asyncio.get_running_loop().time() >= self._ends_at:
                self._time_is_over()  # somebody has blocked the event loop, and its timer is about to say so
            if self._over is not None:
                raise self._over
            try:
                yield self._connection
            except DRIVER_ERRORS as error:
                # Said by the server or by a connection that was cut under the statement.
                if isinstance(late := self._over, TimeoutError):
                    raise late from error
                raise

    # -- verbs of the store -------------------------------------------------------------------------------

    async def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        async with self._on_turn() as connection:
            on_connection = OnConnection(self._database, connection)
            if (problem := await self._limit_problem(on_connection, jobs)) is not None:
                raise problem
            arguments = enqueue_arguments(jobs, self._database.now, again=False)
            # A savepoint: what is refused leaves the handler's transaction as it was.
            async with connection.transaction():
                answers = enqueued(jobs, await on_connection.fetch(_sql["enqueue"], *arguments))
        self._written.append((jobs, answers))
        return answers

    async def get(self, job_id: UUID, *, tenant: str | None = None) -> JobRecord | None:
        async with self._on_turn() as connection:
            return await job_queries.get(OnConnection(self._database, connection), job_id, tenant)

    async def complete(self, settlement: Settlement, reports: Sequence[Report]) -> bool:
        async with self._on_turn() as connection:
            self._stop_timer()
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    held = await self._settle(OnConnection(self._database, connection), settlement, reports)
            except TimeoutError as error:
                self._let_go(WrongState("the transaction has ended"), broken=True)
                raise translate(error, self._database.where) from error
            except BaseException:
                await self._undo()
                raise
            if not held:
                await self._undo()
                return False
            accepted = await self._commit(settlement)
        if accepted:
            for jobs, answers in self._written:
                await self._on_written(jobs, answers)
            self._on_settled([settlement], [True], self._released)
        return accepted

    async def roll_back(self) -> None:
        if self._over is None:
            async with self._turn:
                self._stop_timer()
                await self._undo()

    async def _settle(
        self, connection: OnConnection, settlement: Settlement, reports: Sequence[Report]
    ) -> bool:
        mark = await connection.fetchval(f"SELECT current_setting('{_MARK}', true)")
        if mark != str(self._lease.fence):
            raise WrongState(
                "the transaction was ended by the handler itself; what it did may be committed, and the job "
                "is not completed. Leave COMMIT and ROLLBACK to the end of the job"
            )
        if reports:
            await settlements.report(connection, reports)
        (accepted,) = await settlements.settle(connection, [settlement], self._released)
        return accepted

    async def _commit(self, settlement: Settlement) -> bool:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._transaction.commit()
        except (asyncio.CancelledError, *DRIVER_ERRORS) as error:
            self._let_go(WrongState("the transaction has ended"), broken=True)
            if isinstance(error, asyncio.CancelledError):
                raise
            translated = translate(error, self._database.where)
            if not isinstance(translated, StoreUnavailable):
                raise  # refused by the server, a constraint that is checked last: it was rolled back
            return await self._find_out(settlement, translated)
        await self._give_back()
        return True

    async def _find_out(self, settlement: Settlement, error: StoreUnavailable) -> bool:
        """The answer to COMMIT was lost.

        Whether it was committed is known once the job's row can be had: a lease that can be extended has not
        been ended, and nobody is about to end it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + UNSURE_SECONDS
        while True:
            try:
                if await settlements.extend(self._database, [settlement.lease], self._lease_seconds):
                    break
                return bool(await settlements.settled(self._database, [settlement]))
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
            self._let_go(WrongState("the transaction has ended"), broken=True)  # the server rolls it back
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            await self._give_back()

    async def _give_back(self) -> None:
        """The connection can be lent again, unless a handler may still have it in its hands."""
        broken = self._shown
        if not broken and not self._database.pooled:
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._connection.execute(FORGET)
            except DRIVER_ERRORS:
                broken = True
        self._let_go(WrongState("the transaction has ended with its job"), broken=broken)

    def _time_is_over(self) -> None:
        """Cut off in the middle of whatever it does; the server rolls it back."""
        self._let_go(transaction_late(self._seconds), broken=True)
        self._on_timeout()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _let_go(self, why: TidewheelError, *, broken: bool = False) -> None:
        if self._over is not None:
            return
        self._over = why
        self._stop_timer()
        if broken:
            self._connection.terminate()
        self._database.take_back(self._connection)
