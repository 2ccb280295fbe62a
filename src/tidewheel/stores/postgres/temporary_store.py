"""A scratch schema in the database of the real one: the same server, connection and settings."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import asyncpg

from tidewheel.core.clock import SystemClock
from tidewheel.errors import ConfigurationError, NotOpen, StoreError
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.errors import DRIVER_ERRORS, translate_error
from tidewheel.stores.postgres.health import check_pooler, check_settings, read_settings
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.temporary_store import DatabaseProfile, temporary_name


class PostgresTemporaryStore:
    """A schema ``tidewheel_scratch_…``. That of the URL is not looked at."""

    def __init__(self, url: str) -> None:
        schema = temporary_name()
        location = replace(parse_url(url), schema=schema)
        before, _, query = url.partition("?")
        options = [pair for pair in parse_qsl(query, keep_blank_values=True) if pair[0] != "schema"]
        self.url = f"{before}?{urlencode([*options, ('schema', schema)])}"
        self.location = location.shown
        self.profile = DatabaseProfile("PostgreSQL")
        self._schema = schema
        self._database = Database(location, SystemClock())
        # Who cannot get there asks about the schema of the URL, not about one that was never made.
        self._database.description = f"PostgreSQL at {parse_url(url).shown}"
        self._connection: Any = None
        self._made = False  # or may have been: the answer to the statement was not waited for

    async def inspect(self) -> None:
        await self._database.open()
        try:
            self._connection = connection = await self._database.connect()
            settings = await read_settings(connection)
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._database.description) from error
        self.profile = _profile(self._database, settings)

    async def create(self) -> None:
        await self.inspect()
        connection = self._connection
        try:
            self._made = True
            try:
                await connection.execute(f"CREATE SCHEMA {self._database.schema}")
            except asyncpg.InsufficientPrivilegeError as error:
                self._made = False
                await self._creation_error(error)
            await connection.execute(
                self._database.qualify(
                    "CREATE TABLE {schema}.scratch_commits (number bigint); "
                    "INSERT INTO {schema}.scratch_commits VALUES (0)"
                )
            )
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._database.description) from error

    async def remove(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()  # it may be in the middle of something
        await self._database.close()
        if not self._made:
            return
        try:
            # A new one: those that were used may be as broken as what brought us here.
            connection = await self._database.connect()
            try:
                # IF EXISTS: the answer to CREATE SCHEMA may never have come.
                await connection.execute(f"DROP SCHEMA IF EXISTS {self._database.schema} CASCADE")
            finally:
                await connection.close()
        except DRIVER_ERRORS as error:
            raise StoreError(
                f"the schema {self._schema} could not be removed from {self._database.description}: {error}; "
                f"DROP SCHEMA {self._schema} CASCADE does it by hand"
            ) from error
        self._made = False

    async def measure_round_trip(self) -> float | None:
        return await self._timed("SELECT 1")

    async def measure_commit(self) -> float | None:
        return await self._timed(
            self._database.qualify("UPDATE {schema}.scratch_commits SET number = number + 1")
        )

    async def inject_fault(self, seconds: float) -> str | None:  # noqa: ARG002 - over at once
        """What a restart of a pooler, a failover or an administrator does to every session."""
        try:
            connection = await self._connected()
            ended = await connection.fetchval(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
                " WHERE application_name = $1 AND pid <> pg_backend_pid()",
                self._database.application_name,
            )
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._database.description) from error
        return "connections were terminated" if ended else None

    async def _connected(self) -> Any:
        """Our own connection, made anew when it was lost: whoever disturbs others is not spared either."""
        if self._connection is None:
            raise NotOpen(f"the schema {self._schema} is not there")
        if self._connection.is_closed():
            self._connection = await self._database.connect()
        return self._connection

    async def _timed(self, statement: str) -> float:
        try:
            connection = await self._connected()
            began = time.perf_counter()
            await connection.fetchval(statement)
            return time.perf_counter() - began
        except DRIVER_ERRORS as error:
            raise translate_error(error, self._database.description) from error

    async def _creation_error(self, error: asyncpg.InsufficientPrivilegeError) -> None:
        role, database = await self._connection.fetchrow(
            "SELECT quote_ident(current_user), quote_ident(current_database())"
        )
        raise ConfigurationError(
            f"the role {role} may not create a schema in the database {database}, and this works in one of "
            f"its own; GRANT CREATE ON DATABASE {database} TO {role}, or give the URL of another role or "
            "database"
        ) from error


def _profile(database: Database, settings: dict[str, str]) -> DatabaseProfile:
    told = {name: value for name, value in settings.items() if value}
    return DatabaseProfile(
        f"PostgreSQL {database.version.partition(' ')[0]}",
        {"connection": "pooled" if database.pooled else "direct", **told},
        (*check_settings(settings), *check_pooler(pooled=database.pooled)),
        wakeups=not database.pooled,
    )
