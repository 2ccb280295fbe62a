"""The servers one test run shares: each started when first asked for, each test in a schema of its own."""

from __future__ import annotations

import functools
import threading

from tests.servers.binaries import PostgresBinaries, find_binaries, find_version
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import FAST, PostgresServer
from tests.servers.processes import ServerError
from tests.servers.schemas import Schemas

OLDEST = 15
"""The oldest major version of PostgreSQL the store supports."""

_lock = threading.RLock()
_taken: list[tuple[Schemas, str]] = []


def other_version() -> PostgresBinaries | None:
    """The oldest supported PostgreSQL, where the system has it."""
    return find_version(OLDEST)


def shared_server(*, oldest: bool = False) -> PostgresServer:
    """A running server that everybody in this process shares, and nobody stops."""
    with _lock:
        binaries = other_version() if oldest else find_binaries()
        if binaries is None:
            raise ServerError(f"there is no PostgreSQL {OLDEST} here; {how_to_install_oldest()}")
        return _server(binaries).start()


@functools.cache
def _server(binaries: PostgresBinaries) -> PostgresServer:
    return PostgresServer(binaries, settings=FAST)


@functools.cache
def _schemas(server: PostgresServer) -> Schemas:
    return Schemas(server)


def shared_pgbouncer() -> PgBouncer:
    """In transaction mode, in front of the shared server."""
    with _lock:
        return _pgbouncer(shared_server()).start()


@functools.cache
def _pgbouncer(server: PostgresServer) -> PgBouncer:
    return PgBouncer(server)


def fresh_schema() -> str:
    """A schema of the shared server that is not there yet."""
    return _schemas(shared_server()).new()


def fresh_url() -> str:
    """A schema that is not there yet, for tests of how it is made and for those that damage it."""
    return shared_server().url(schema=fresh_schema())


def empty_url(*, oldest: bool = False) -> str:
    """An empty schema, most likely migrated already. ``recycle`` takes it back."""
    server = shared_server(oldest=oldest)
    schemas = _schemas(server)
    schema = schemas.take()
    with _lock:
        _taken.append((schemas, schema))
    return server.url(schema=schema)


def recycle() -> None:
    """Whoever took a URL of an empty schema is done with it: after each test, and between examples."""
    with _lock:
        while _taken:
            schemas, schema = _taken.pop()
            schemas.give_back(schema)


def how_to_install_oldest() -> str:
    return f"apt-get install postgresql-{OLDEST} (macOS: brew install postgresql@{OLDEST})"
