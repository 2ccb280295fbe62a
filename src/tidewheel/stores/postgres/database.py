"""Connections to one PostgreSQL schema, and statements run on them."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from tidewheel.core.clock import Clock, SystemClock
from tidewheel.errors import ConfigurationError, NotOpen, StoreUnavailable, UsedAfterFork
from tidewheel.stores.postgres.connection_pool import ConnectionPool
from tidewheel.stores.postgres.errors import DRIVER_ERRORS, translate_connect_error, translate_error
from tidewheel.stores.postgres.location import MOST_CONNECTIONS, Location
from tidewheel.stores.postgres.tenant_scope import (
    INSPECT_ROLE,
    SNAPSHOT,
    set_tenant_statement,
    tenant_transaction,
)

MINIMUM_VERSION: Final = 15
CONNECT_SECONDS: Final = 10.0
STATEMENT_SECONDS: Final = 30.0
"""A statement that takes longer has met a lock or a sick server."""
SERVER_SECONDS: Final = 25.0
"""When the server gives up: a little earlier, so that what became of the statement is known."""
LOCK_SECONDS: Final = 10.0
"""How long to wait for a lock; the functions of the schema say the same for themselves."""
LOAD_TYPES_STATEMENT: Final = (
    "SELECT NULL::uuid[], NULL::text[], NULL::bigint[], NULL::integer[], NULL::smallint[], NULL::boolean[],"
    " NULL::bytea[], NULL::double precision[], ARRAY[ROW (1)]"
)
"""Every type of ours that the driver does not know by itself."""
SILENCE_SECONDS: Final = 1.0
"""Who gave up after so long has met a silence, and not only changed its mind."""
CLOSE_SECONDS: Final = 2.0
"""How long to say goodbye to the server."""
UNUSABLE_CONNECTION_ERRORS: Final = (asyncpg.InternalClientError, asyncpg.ReadOnlySQLTransactionError)
"""After these a connection is of no use: out of step with its server, or to one that is a standby by now."""
MAX_CONFLICT_RETRIES: Final = 3
CONFLICTS: Final = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)

Record = Any
"""A row: ``asyncpg.Record``, read by position or name. The driver ships no types."""


class Statements(ABC):
    """Where statements of ours can be run, each by itself or as part of a transaction."""

    @property
    @abstractmethod
    def now(self) -> int | None:
        """The time to pass to the functions of the schema; None means the server's own clock."""

    async def fetch(self, statement: str, *arguments: Any) -> list[Record]:
        return await self._run("fetch", statement, arguments)  # type: ignore[no-any-return]

    async def fetchrow(self, statement: str, *arguments: Any) -> Record | None:
        return await self._run("fetchrow", statement, arguments)

    async def fetchval(self, statement: str, *arguments: Any) -> Any:
        return await self._run("fetchval", statement, arguments)

    @abstractmethod
    async def fetch_for(self, tenant: str | None, statement: str, *arguments: Any) -> list[Record]:
        """Rows a tenant may see, or all that the statement asks for where nothing holds our role."""

    @abstractmethod
    async def _run(self, how: str, statement: str, arguments: tuple[Any, ...]) -> Any: ...


class Database(Statements):
    """A few connections shared by the verbs of one store, on one event loop."""

    def __init__(self, location: Location, clock: Clock) -> None:
        self.location = location
        self.description = f"PostgreSQL at {location.shown}"
        self.schema = f'"{location.schema}"'
        self.pooled = False  # a pooler sits between us and the server: no session state, no LISTEN
        self.has_row_level_security = False  # there is row-level security
        self.sees_one_tenant = False  # and it holds our role: every verb has to say whose rows it means
        self.version = ""
        self._clock = None if isinstance(clock, SystemClock) else clock
        self._connections: ConnectionPool | None = None
        self._handler_connections: ConnectionPool | None = None  # to handlers, for transactions of their own
        self._process = 0
        self._qualified: dict[str, str] = {}

    @property
    def now(self) -> int | None:
        return None if self._clock is None else self._clock.now()

    def qualify(self, statement: str) -> str:
        """``{schema}`` in a statement becomes the schema's name."""
        text = self._qualified.get(statement)
        if text is None:
            text = self._qualified[statement] = statement.replace("{schema}", self.schema)
        return text

    @property
    def forked(self) -> bool:
        """Opened by the process this one was forked from: its connections are not ours to use or close."""
        return self._process not in (0, os.getpid())

    # -- life -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Find out what we talk to, then keep connections to it."""
        if self._connections is not None:
            return
        try:
            self.pooled = True  # as long as it is not known better
            connection = await self.connect()
            try:
                await self._inspect_server(connection)
            finally:
                await connection.close(timeout=CONNECT_SECONDS)
        except (*DRIVER_ERRORS, ValueError) as error:  # ValueError: what the driver says to a bad URL
            raise translate_connect_error(error, self.description) from error
        self._connections = ConnectionPool(self.connect, self.location.connections)
        self._handler_connections = ConnectionPool(self._connect_unconfigured, MOST_CONNECTIONS)
        self._process = os.getpid()

    async def close(self) -> None:
        for connections in (self._connections, self._handler_connections):
            if connections is not None:
                await connections.close(CLOSE_SECONDS)
        self._connections = self._handler_connections = None

    async def connect(self) -> Any:
        """A connection of one's own, set up like all others."""
        connection = await asyncpg.connect(self.location.dsn, **self._arguments())
        try:
            await self._set_up(connection)
        except BaseException:  # also when cancelled: nobody else knows of this connection
            connection.terminate()
            raise
        return connection

    async def _connect_unconfigured(self) -> Any:
        """With the settings the server has for this user: for statements that are not ours."""
        arguments = self._arguments()
        arguments["server_settings"] = {"application_name": f"{self.application_name} transaction"}
        del arguments["command_timeout"]  # the server ends what takes too long
        return await asyncpg.connect(self.location.dsn, **arguments)

    @property
    def application_name(self) -> str:
        """How our sessions are known to people who look at the server; queues that share it tell apart."""
        schema = self.location.schema
        return "tidewheel" if schema == "tidewheel" else f"tidewheel {schema}"

    def _arguments(self) -> dict[str, Any]:
        return {
            "timeout": CONNECT_SECONDS,
            "command_timeout": STATEMENT_SECONDS,
            "server_settings": {"application_name": self.application_name},
            # A pooler hands each transaction to any server connection, which knows nothing of our statements.
            "statement_cache_size": 0 if self.pooled else 100,
        }

    async def _set_up(self, connection: Any) -> None:
        """Session settings, where there is a session. What matters to the functions they pin themselves."""
        if self.pooled and self.version:
            # The driver looks up types it has not met, and changes a setting meanwhile. In one transaction it
            # changes it back on the same connection.
            async with connection.transaction():
                await connection.fetch(LOAD_TYPES_STATEMENT)
        if not self.pooled:
            await connection.execute(
                f"SET statement_timeout = {int(SERVER_SECONDS * 1000)};"
                f"SET lock_timeout = {int(LOCK_SECONDS * 1000)};"
                "SET idle_in_transaction_session_timeout = '60s'; SET jit = off;"
                # A verb must see what others committed while it waited for a lock.
                "SET default_transaction_isolation = 'read committed';"
                # A statement prepared while its table was empty would go on reading all of it.
                "SET enable_seqscan = off;"
                # A machine that vanished must not keep its locks for two hours.
                "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
            )

    async def _inspect_server(self, connection: Any) -> None:
        process, version, encoding, isolation = await connection.fetchrow(
            "SELECT pg_backend_pid(), current_setting('server_version'), current_setting('server_encoding'),"
            " current_setting('default_transaction_isolation')"
        )
        self.version = version
        if connection.get_server_version().major < MINIMUM_VERSION:
            raise ConfigurationError(
                f"{self.description} is version {version}; Tidewheel needs {MINIMUM_VERSION} or newer"
            )
        if encoding != "UTF8":
            raise ConfigurationError(
                f"{self.description} has the encoding {encoding}; payloads need a database with the encoding "
                "UTF8"
            )
        await self.inspect_role(connection)
        # A pooler answers with a process of its own making.
        self.pooled = connection.get_server_pid() != process
        if self.pooled and isolation != "read committed":
            raise ConfigurationError(
                f"{self.description} makes transactions {isolation} by default, which behind a pooler cannot "
                "be "
                "changed for a session; ALTER ROLE … SET default_transaction_isolation = 'read committed'"
            )

    async def inspect_role(self, connection: Any) -> None:
        """Find out whether row-level security holds us."""
        self.has_row_level_security, self.sees_one_tenant = await connection.fetchrow(
            INSPECT_ROLE, f"{self.schema}.jobs"
        )

    # -- statements -------------------------------------------------------------------------------------

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        """A connection for some statements. What goes wrong on it comes out in our words."""
        connections = self._check_open(self._connections)
        try:
            connection = await connections.acquire()
            lent_at = asyncio.get_running_loop().time()
            try:
                yield connection
            except (asyncio.CancelledError, TimeoutError, *UNUSABLE_CONNECTION_ERRORS):
                # Whoever gave up waiting must not wait again for the server to confirm it: the keeper gives
                # up in time to stop its handlers. And a connection the driver is confused about is of no use.
                connection.terminate()
                if asyncio.get_running_loop().time() - lent_at >= SILENCE_SECONDS:
                    connections.close_resting_since(lent_at)
                raise
            finally:
                connections.release(connection)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.description) from error

    def _check_open(self, connections: ConnectionPool | None) -> ConnectionPool:
        if connections is None:
            raise NotOpen(f"the store {self.description} is not open")
        if self.forked:
            raise UsedAfterFork(
                f"the store {self.description} was opened by process {self._process}; open one in each "
                "process"
            )
        return connections

    async def acquire_for_handler(self) -> Any:
        """A connection for a handler's own transaction; ``release_from_handler`` ends that."""
        try:
            return await self._check_open(self._handler_connections).acquire()
        except DRIVER_ERRORS as error:
            raise translate_error(error, self.description) from error

    def release_from_handler(self, connection: Any) -> None:
        """One that was lent, to be lent again unless it is closed."""
        if self._handler_connections is not None:
            self._handler_connections.release(connection)
        else:
            connection.terminate()

    @asynccontextmanager
    async def transaction(self, tenant: str | None = None) -> AsyncIterator[Any]:
        """A connection inside one transaction that only reads: one snapshot for all its statements."""
        async with self.connection() as connection:
            transaction = (
                tenant_transaction(connection, tenant, SNAPSHOT)
                if self.sees_one_tenant
                else connection.transaction(isolation="repeatable_read", readonly=True)
            )
            async with transaction:
                yield connection

    async def fetch_for(self, tenant: str | None, statement: str, *arguments: Any) -> list[Record]:
        if not self.sees_one_tenant:
            return await self.fetch(statement, *arguments)
        [rows] = await self.fetch_for_each(statement, [(tenant, arguments)])
        return rows

    async def fetch_for_each(
        self, statement: str, calls: Sequence[tuple[str | None, tuple[Any, ...]]]
    ) -> list[list[Record]]:
        """The same statement for several tenants, each with arguments of its own, in one transaction."""
        tries = MAX_CONFLICT_RETRIES
        while True:
            answers = []
            named = calls[0][0]
            try:
                async with self.connection() as connection, tenant_transaction(connection, named):
                    for tenant, values in calls:
                        if tenant != named:
                            await connection.execute(set_tenant_statement(tenant))
                            named = tenant
                        answers.append(await connection.fetch(self.qualify(statement), *values))
                return answers  # only now: before it was committed there was no answer
            except StoreUnavailable as error:
                tries = self.can_retry(tries, error)

    async def _run(self, how: str, statement: str, arguments: tuple[Any, ...]) -> Any:
        """One statement in a transaction of its own."""
        tries = MAX_CONFLICT_RETRIES
        while True:
            try:
                async with self.connection() as connection:
                    return await getattr(connection, how)(self.qualify(statement), *arguments)
            except StoreUnavailable as error:
                tries = self.can_retry(tries, error)

    def can_retry(self, tries: int, error: StoreUnavailable) -> int:
        """What was rolled back for somebody else's sake can be done again: nothing of it happened."""
        if tries == 1 or not isinstance(error.__cause__, CONFLICTS):
            raise error
        return tries - 1


class OnConnection(Statements):
    """Statements on one connection, in the transaction that is open there."""

    def __init__(self, database: Database, connection: Any) -> None:
        self._database = database
        self._connection = connection

    @property
    def now(self) -> int | None:
        return self._database.now

    async def fetch_for(self, tenant: str | None, statement: str, *arguments: Any) -> list[Record]:  # noqa: ARG002
        """The transaction has its tenant already."""
        return await self.fetch(statement, *arguments)

    async def _run(self, how: str, statement: str, arguments: tuple[Any, ...]) -> Any:
        try:
            return await getattr(self._connection, how)(self._database.qualify(statement), *arguments)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._database.description) from error
