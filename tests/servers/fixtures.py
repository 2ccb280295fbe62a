"""A pytest plugin: servers as fixtures, what is tested in the header, nothing left running at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.binaries import find_binaries
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import PostgresServer
from tests.servers.processes import ServerError, close_all
from tests.servers.shared import (
    OLDEST,
    empty_url,
    how_to_install_oldest,
    other_version,
    recycle,
    shared_pgbouncer,
    shared_server,
)


def pytest_report_header() -> list[str]:
    """Which PostgreSQL is tested; one that is missing is never missing silently."""
    try:
        main = find_binaries()
    except ServerError as error:
        return [f"PostgreSQL: none, its tests will fail: {error}"]
    tested = [f"{main.version} ({main.origin})"]
    oldest = other_version()
    if oldest is None:
        tested.append(f"not {OLDEST}, the oldest supported one: {how_to_install_oldest()}")
    elif oldest != main:
        tested.append(f"{oldest.version} ({oldest.origin})")
    return [f"PostgreSQL: {', '.join(tested)}"]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    try:
        yield
    finally:
        recycle()  # after every fixture of the test: nothing of it uses its schema any more


def pytest_unconfigure() -> None:
    close_all()


@pytest.fixture
def postgres() -> PostgresServer:
    """The shared server; started by the first test that wants it, stopped by none."""
    return shared_server()


@pytest.fixture
def postgres_url() -> str:
    """An empty schema of the test's own on the shared server; ``fresh_url()`` is one not yet made."""
    return empty_url()


@pytest.fixture
def pgbouncer() -> PgBouncer:
    """The shared pooler, in transaction mode, in front of the shared server."""
    return shared_pgbouncer()
