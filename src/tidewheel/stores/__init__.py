"""Stores, and how a URL selects one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tidewheel.core.clock import Clock, SystemClock
from tidewheel.core.urls import over_http, shown_url
from tidewheel.errors import ConfigurationError, NotOverHttp, StoreError
from tidewheel.stores.external_transaction import Joiner
from tidewheel.stores.protocol import Store, StoreLimits
from tidewheel.stores.schema import Script
from tidewheel.stores.temporary_store import Ground, MemoryScratch, Scratch

if TYPE_CHECKING:
    from tidewheel.stores.memory.local_store import LaneStore


def create_store(
    url: str, *, clock: Clock | None = None, limits: StoreLimits | None = None, token: str | None = None
) -> Store:
    """The store a URL names, not yet open: ``sqlite:///path``, ``postgresql://host/database``, ``memory://``;
    or ``http://host:8080``, where the ``token`` is shown.
    """
    clock = clock or SystemClock()
    limits = limits or StoreLimits()
    scheme = url.partition(":")[0]
    if over_http(url):
        _need_client()
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
            _need_driver()
            from tidewheel.stores.postgres import PostgresStore

            return PostgresStore(url, clock=clock, limits=limits)
        case _:
            raise _unknown(url)


def create_joiner(url: str, *, clock: Clock, limits: StoreLimits) -> Joiner:
    """How jobs of a URL get into transactions of others."""
    match url.partition(":")[0]:
        case "sqlite":
            from tidewheel.stores.sqlite.external_transaction import SqliteJoiner

            return SqliteJoiner(url, clock, limits)
        case "postgresql" | "postgres":
            from tidewheel.stores.postgres.external_transaction import PostgresJoiner

            return PostgresJoiner(url, clock, limits)
        case _:
            if over_http(url):
                raise NotOverHttp(
                    f"{shown_url(url)} is a server, and jobs there cannot be part of a transaction here; "
                    "enqueue without using, after it has committed, and give the job a key"
                )
            raise ConfigurationError(
                f"{shown_url(url)} keeps its jobs in no database, so they cannot be part of a transaction in "
                "one; enqueue without using, or give the app a sqlite or postgresql URL"
            )


def lane_store() -> type[LaneStore]:
    """The store in memory for the jobs of tasks that are not durable, which keeps what they carry."""
    from tidewheel.stores.memory.local_store import LaneStore

    return LaneStore


@asynccontextmanager
async def make_scratch(url: str) -> AsyncIterator[Scratch]:
    """An empty place beside the jobs of a URL, taken away at the end whatever happens inside."""
    scratch = _scratch(url)
    try:
        await scratch.make()
        yield scratch
    except BaseException as error:
        try:
            await _remove(scratch)
        except StoreError as left:
            error.add_note(str(left))  # beside what went wrong, not instead of it
        raise
    await _remove(scratch)


async def _remove(scratch: Scratch) -> None:
    removing = asyncio.ensure_future(scratch.remove())
    try:
        await asyncio.shield(removing)
    except asyncio.CancelledError:
        # Called off just now: what has been begun must be finished, or it would stay for ever.
        await removing
        raise


async def look_at_ground(url: str) -> Ground:
    """What the jobs of a URL stand on, or would. Nothing is made, and no job is looked at."""
    scratch = _scratch(url)
    try:
        await scratch.look()
        return scratch.ground
    finally:
        await _remove(scratch)


async def look_at_schema(url: str) -> tuple[int, bool]:
    """The version of a URL's schema, 0 for none, and whether the database keeps tenants apart there."""
    match url.partition(":")[0]:
        case "sqlite":
            from tidewheel.stores.sqlite import schema

            return await schema.look_at_schema(url), False
        case "postgresql" | "postgres":
            _need_driver()
            from tidewheel.stores.postgres.schema import look_at_schema

            return await look_at_schema(url)
        case _:
            raise _no_schema(url)


def write_script(url: str, *, since: int, rls: bool = False) -> Script:
    """The SQL that ``migrate`` would run where the schema has this version. Nothing is looked at.

    ``rls``: also what sets up row-level security.
    """
    match url.partition(":")[0]:
        case "sqlite":
            from tidewheel.stores.sqlite import schema

            return schema.write_script(since=since, rls=rls)
        case "postgresql" | "postgres":
            _need_driver()
            from tidewheel.stores.postgres.schema import write_script

            return write_script(url, since=since, rls=rls)
        case _:
            raise _no_schema(url)


def write_grants(url: str, role: str, *, rls: bool = False) -> str:
    """SQL that lets a role enqueue in transactions of its own, and nothing more. Nothing is looked at."""
    match url.partition(":")[0]:
        case "postgresql" | "postgres":
            _need_driver()
            from tidewheel.stores.postgres.roles import write_grants

            return write_grants(url, role, rls=rls)
        case _:
            raise ConfigurationError(
                f"{shown_url(url)} is a store without roles; grants need a postgresql:// URL"
            )


def _scratch(url: str) -> Scratch:
    match url.partition(":")[0]:
        case "memory":
            return MemoryScratch(url)
        case "sqlite":
            from tidewheel.stores.sqlite.temporary_store import SqliteScratch

            return SqliteScratch(url)
        case "postgresql" | "postgres":
            _need_driver()
            from tidewheel.stores.postgres.temporary_store import PostgresScratch

            return PostgresScratch(url)
        case _:
            raise _unknown(url)


def _need_driver() -> None:
    try:
        import asyncpg  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        if error.name != "asyncpg":
            raise
        raise ConfigurationError(
            "PostgreSQL needs the driver asyncpg, which is not installed; pip install 'tidewheel[postgres]'"
        ) from None


def _need_client() -> None:
    try:
        import httpx2  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        if error.name != "httpx2":
            raise
        raise ConfigurationError(
            "http:// and https:// URLs need the client httpx2, which is not installed; "
            "pip install 'tidewheel[http]'"
        ) from None


def _no_schema(url: str) -> ConfigurationError:
    if url.startswith("memory:"):
        return ConfigurationError(
            f"{shown_url(url)} keeps jobs in memory, without a schema; use a sqlite or postgresql URL"
        )
    return _unknown(url)


def _unknown(url: str) -> ConfigurationError:
    if over_http(url):
        return NotOverHttp(
            f"{shown_url(url)} is a server, and this needs the database itself; run it where that is, with "
            "its sqlite:// or postgresql:// URL"
        )
    return ConfigurationError(
        f"{shown_url(url)!r} names no store Tidewheel knows; use sqlite:///path/to/jobs.db, "
        "postgresql://user@host/database, memory://, or http://host:8080 for a server"
    )


__all__ = [
    "Ground",
    "Joiner",
    "Scratch",
    "Script",
    "Store",
    "StoreLimits",
    "create_joiner",
    "create_store",
    "lane_store",
    "look_at_ground",
    "look_at_schema",
    "make_scratch",
    "write_grants",
    "write_script",
]
