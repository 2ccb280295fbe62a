"""Stores, and how a URL selects one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidewheel.core.clock import Clock, SystemClock
from tidewheel.core.urls import is_http_url, redact_url
from tidewheel.errors import ConfigurationError, NotOverHttp, StoreError
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.external_transaction import ExternalTransaction
from tidewheel.stores.protocol import Store
from tidewheel.stores.schema import MigrationScript
from tidewheel.stores.temporary_store import DatabaseProfile, MemoryTemporaryStore, TemporaryStore

if TYPE_CHECKING:
    from tidewheel.stores.memory.local_store import LocalStore


def create_store(
    url: str, *, clock: Clock | None = None, limits: StoreLimits | None = None, token: str | None = None
) -> Store:
    """The store a URL names, not yet open: ``sqlite:///path``, ``postgresql://host/database``, ``memory://``;
    or ``http://host:8080``, where the ``token`` is shown.
    """
    clock = clock or SystemClock()
    limits = limits or StoreLimits()
    scheme = url.partition(":")[0]
    if is_http_url(url):
        _require_httpx()
        from tidewheel.stores.http import HttpStore

        return HttpStore(url, token=token)
    match scheme:
        case "memory":
            from tidewheel.stores.memory import MemoryStore

            return MemoryStore(url, clock=clock, limits=limits)
        case "sqlite":
            from tidewheel.stores.sqlite import SqliteStore

            return SqliteStore(url, clock=clock, limits=limits)
        case "postgresql" | "postgres":
            _require_asyncpg()
            from tidewheel.stores.postgres import PostgresStore

            return PostgresStore(url, clock=clock, limits=limits)
        case _:
            raise _unknown_store(url)


def create_external_transaction(url: str, *, clock: Clock, limits: StoreLimits) -> ExternalTransaction:
    """How jobs of a URL get into transactions of others."""
    match url.partition(":")[0]:
        case "sqlite":
            from tidewheel.stores.sqlite.external_transaction import SqliteExternalTransaction

            return SqliteExternalTransaction(url, clock, limits)
        case "postgresql" | "postgres":
            from tidewheel.stores.postgres.external_transaction import PostgresExternalTransaction

            return PostgresExternalTransaction(url, clock, limits)
        case _:
            if is_http_url(url):
                raise NotOverHttp(
                    f"{redact_url(url)} is a server, and jobs there cannot be part of a transaction here; "
                    "enqueue without using, after it has committed, and give the job a key"
                )
            raise ConfigurationError(
                f"{redact_url(url)} keeps its jobs in no database, so they cannot be part of a transaction "
                "in "
                "one; enqueue without using, or give the app a sqlite or postgresql URL"
            )


def local_store() -> type[LocalStore]:
    """The store in memory for the jobs of tasks that are not durable, which keeps what they carry."""
    from tidewheel.stores.memory.local_store import LocalStore

    return LocalStore


@asynccontextmanager
async def make_temporary_store(url: str) -> AsyncIterator[TemporaryStore]:
    """An empty place beside the jobs of a URL, taken away at the end whatever happens inside."""
    scratch = _temporary_store_of(url)
    try:
        await scratch.create()
        yield scratch
    except BaseException as error:
        try:
            await _remove_temporary_store(scratch)
        except StoreError as left:
            error.add_note(str(left))  # beside what went wrong, not instead of it
        raise
    await _remove_temporary_store(scratch)


async def _remove_temporary_store(temporary: TemporaryStore) -> None:
    removing = asyncio.ensure_future(temporary.remove())
    try:
        await asyncio.shield(removing)
    except asyncio.CancelledError:
        # Called off just now: what has been begun must be finished, or it would stay for ever.
        await removing
        raise


async def inspect_database(url: str) -> DatabaseProfile:
    """What the jobs of a URL stand on, or would. Nothing is made, and no job is looked at."""
    scratch = _temporary_store_of(url)
    try:
        await scratch.inspect()
        return scratch.profile
    finally:
        await _remove_temporary_store(scratch)


async def read_schema_version(url: str) -> tuple[int, bool]:
    """The version of a URL's schema, 0 for none, and whether the database keeps tenants apart there."""
    match url.partition(":")[0]:
        case "sqlite":
            from tidewheel.stores.sqlite import schema

            return await schema.read_schema_version(url), False
        case "postgresql" | "postgres":
            _require_asyncpg()
            from tidewheel.stores.postgres.schema import read_schema_version

            return await read_schema_version(url)
        case _:
            raise _no_schema_error(url)


def write_migration_script(url: str, *, since: int, rls: bool = False) -> MigrationScript:
    """The SQL that ``migrate`` would run where the schema has this version. Nothing is looked at.

    ``rls``: also what sets up row-level security.
    """
    match url.partition(":")[0]:
        case "sqlite":
            from tidewheel.stores.sqlite import schema

            return schema.write_migration_script(since=since, rls=rls)
        case "postgresql" | "postgres":
            _require_asyncpg()
            from tidewheel.stores.postgres.schema import write_migration_script

            return write_migration_script(url, since=since, rls=rls)
        case _:
            raise _no_schema_error(url)


def write_grants(url: str, role: str, *, rls: bool = False) -> str:
    """SQL that lets a role enqueue in transactions of its own, and nothing more. Nothing is looked at."""
    match url.partition(":")[0]:
        case "postgresql" | "postgres":
            _require_asyncpg()
            from tidewheel.stores.postgres.roles import write_grants

            return write_grants(url, role, rls=rls)
        case _:
            raise ConfigurationError(
                f"{redact_url(url)} is a store without roles; grants need a postgresql:// URL"
            )


def _temporary_store_of(url: str) -> TemporaryStore:
    match url.partition(":")[0]:
        case "memory":
            return MemoryTemporaryStore(url)
        case "sqlite":
            from tidewheel.stores.sqlite.temporary_store import SqliteTemporaryStore

            return SqliteTemporaryStore(url)
        case "postgresql" | "postgres":
            _require_asyncpg()
            from tidewheel.stores.postgres.temporary_store import PostgresTemporaryStore

            return PostgresTemporaryStore(url)
        case _:
            raise _unknown_store(url)


def _require_asyncpg() -> None:
    try:
        import asyncpg  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigurationError(
            "PostgreSQL needs the driver asyncpg, which is not installed; pip install 'tidewheel[postgres]'"
        ) from None


def _require_httpx() -> None:
    try:
        import httpx2  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        if error.name != "httpx2":
            raise
        raise ConfigurationError(
            "http:// and https:// URLs need the client httpx2, which is not installed; "
            "pip install 'tidewheel[http]'"
        ) from None


def _no_schema_error(url: str) -> ConfigurationError:
    if url.startswith("memory:"):
        return ConfigurationError(
            f"{redact_url(url)} keeps jobs in memory, without a schema; use a sqlite or postgresql URL"
        )
    return _unknown_store(url)


def _unknown_store(url: str) -> ConfigurationError:
    if is_http_url(url):
        return NotOverHttp(
            f"{redact_url(url)} is a server, and this needs the database itself; run it where that is, with "
            "its sqlite:// or postgresql:// URL"
        )
    return ConfigurationError(
        f"{redact_url(url)!r} names no store Tidewheel knows; use sqlite:///path/to/jobs.db, "
        "postgresql://user@host/database, memory://, or http://host:8080 for a server"
    )


__all__ = [
    "DatabaseProfile",
    "ExternalTransaction",
    "MigrationScript",
    "Store",
    "StoreLimits",
    "TemporaryStore",
    "create_external_transaction",
    "create_store",
    "inspect_database",
    "local_store",
    "make_temporary_store",
    "read_schema_version",
    "write_grants",
    "write_migration_script",
]
