"""Stores, and how a URL selects one."""

from __future__ import annotations

from windlass.clock import Clock, SystemClock
from windlass.errors import ConfigurationError
from windlass.stores.protocol import Store, StoreLimits
from windlass.urls import shown_url


def create_store(url: str, *, clock: Clock | None = None, limits: StoreLimits | None = None) -> Store:
    """The store a URL names, not yet open: ``sqlite:///path``, ``postgresql://host/database``, ``memory://``."""
    clock = clock or SystemClock()
    limits = limits or StoreLimits()
    scheme = url.partition(":")[0]
    match scheme:
        case "memory":
            from windlass.stores.memory import MemoryStore

            return MemoryStore(url, clock=clock, limits=limits)
        case "sqlite":
            from windlass.stores.sqlite import SqliteStore

            return SqliteStore(url, clock=clock, limits=limits)
        case "postgresql" | "postgres":
            try:
                from windlass.stores.postgres import PostgresStore
            except ModuleNotFoundError as error:
                if error.name != "asyncpg":
                    raise
                raise ConfigurationError(
                    "PostgreSQL needs the driver asyncpg, which is not installed; "
                    "pip install 'windlass[postgres]'"
                ) from None

            return PostgresStore(url, clock=clock, limits=limits)
        case _:
            raise ConfigurationError(
                f"{shown_url(url)!r} names no store Windlass knows; use sqlite:///path/to/jobs.db, "
                "postgresql://user@host/database or memory://"
            )


__all__ = ["Store", "StoreLimits", "create_store"]
