"""Where systems are measured: one PostgreSQL for the whole run, an empty place for each trial."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tests.servers import DURABLE, PostgresServer, ServerError
from tests.servers.accounts import server_account
from tests.servers.postgres import HOST, free_port
from tests.servers.processes import close_at_exit, end_process, last_lines, start_process

from bench.environments import NotMeasured
from bench.machine import tree_cpu_seconds

LOG_FILES = 60
"""Of 16 MB each: nearly as many as PostgreSQL keeps by default."""


TOLD_SETTINGS = (
    *("fsync", "synchronous_commit", "full_page_writes", "wal_level", "wal_sync_method", "max_wal_size"),
    *("shared_buffers", "work_mem", "max_connections", "autovacuum", "jit"),
)


class Place:
    """One empty database, file or server, used by one trial."""

    def __init__(self, url: str) -> None:
        self.url = url

    def rest(self) -> None:
        """Let the server get over what was just done to it, so that the next figure is its own."""

    def server_cpu_seconds(self) -> float | None:
        """Processor time of the database's own processes; None without a server."""
        return None

    def megabytes(self) -> float | None:
        """What it takes on the disk."""
        return None

    def vacuum(self) -> None:
        """Have the database remove what nobody can see any more."""

    def pinned_snapshot(self) -> contextlib.AbstractContextManager[None]:
        """Another session that looks at the database as it was, and does not end."""
        raise NotMeasured("no snapshots to pin here")


class FilePlace(Place):
    def __init__(self, directory: Path) -> None:
        super().__init__(f"sqlite:///{directory / 'jobs.db'}")
        self.directory = directory

    def megabytes(self) -> float:
        return sum(file.stat().st_size for file in self.directory.iterdir()) / 1e6


class PostgresPlace(Place):
    """A database of its own."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        super().__init__(server.url(database))
        self._server = server
        self._database = database

    def rest(self) -> None:
        # Statistics as a database has them that has run for a while: without them, plans are a lottery.
        execute(self.url, "ANALYZE", "CHECKPOINT")

    def server_cpu_seconds(self) -> float:
        return tree_cpu_seconds(self._server.pid)

    def megabytes(self) -> float:
        return float(execute(self.url, "SELECT pg_database_size(current_database())")) / 1e6

    def vacuum(self) -> None:
        execute(self.url, "VACUUM")

    @contextlib.contextmanager
    def pinned_snapshot(self) -> Iterator[None]:
        with asyncio.Runner() as runner:
            connection = runner.run(_connect(self.url))
            runner.run(connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ"))
            # The first query takes the snapshot.
            runner.run(connection.execute("SELECT count(*) FROM pg_class"))
            yield
            runner.run(connection.execute("COMMIT"))
            runner.run(connection.close())


async def _connect(url: str) -> Any:
    import asyncpg

    return await asyncpg.connect(url)


def execute(url: str, *statements: str) -> Any:
    """Run statements one by one; the first value of the last."""

    async def run() -> Any:
        connection = await _connect(url)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement, timeout=300)
            return await connection.fetchval(statements[-1], timeout=300)
        finally:
            await connection.close()

    return asyncio.run(run())


class Redis:
    """A Redis of our own; ``durable`` writes every change through to the disk, as the databases do."""

    def __init__(self, *, durable: bool) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise NotMeasured("no Redis (apt-get install redis-server)")
        self.durable = durable
        self.version = _redis_version(program)
        account = server_account()
        self.directory = account.make_directory("tidewheel-redis-")
        self.port = free_port()
        fsync = ["--appendonly", "yes", "--appendfsync", "always"] if durable else []
        log = self.directory / "redis.log"
        self._process = start_process(
            [program, "--bind", HOST, "--port", str(self.port), "--dir", str(self.directory), *fsync],
            account,
            log,
            death_signal=signal.SIGTERM,
        )
        close_at_exit(self)
        deadline = time.monotonic() + 20
        while "Ready to accept connections" not in last_lines(log):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NotMeasured(f"Redis did not start: {last_lines(log, 1)}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        return self._process.pid

    def close(self) -> None:
        end_process(self._process, signal.SIGTERM)
        shutil.rmtree(self.directory, ignore_errors=True)


def _redis_version(program: str) -> str:
    words = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()
    return next((word.removeprefix("v=") for word in words if word.startswith("v=")), "unknown")


class RedisPlace(Place):
    def __init__(self, server: Redis) -> None:
        super().__init__(f"redis://{HOST}:{server.port}/0")
        self._server = server

    def server_cpu_seconds(self) -> float:
        return tree_cpu_seconds(self._server.pid)


class Grounds:
    """All grounds of a run; servers start when the first trial wants them."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._postgres: PostgresServer | None = None
        self._numbers = itertools.count()
        self.versions: dict[str, str] = {}
        self.settings: dict[str, dict[str, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def place(self, ground: str) -> Iterator[Place]:
        """An empty one; what is in it goes afterwards."""
        match ground:
            case "sqlite":
                with tempfile.TemporaryDirectory(prefix="tidewheel-bench-") as directory:
                    yield FilePlace(Path(directory))
            case "postgres":
                server = self._server()
                database = f"bench_{next(self._numbers)}"
                execute(server.url(), f"CREATE DATABASE {database}")
                try:
                    yield PostgresPlace(server, database)
                finally:
                    execute(server.url(), f"DROP DATABASE {database} WITH (FORCE)", "CHECKPOINT")
            case _:
                redis = Redis(durable=ground == "redis-durable")
                self.versions["redis"] = redis.version
                self.settings[ground] = {"appendfsync": "always" if redis.durable else "no append-only file"}
                try:
                    yield RedisPlace(redis)
                finally:
                    redis.close()

    def _server(self) -> PostgresServer:
        if self._postgres is None:
            try:
                server = PostgresServer(settings=DURABLE)
                self._stack.enter_context(server)
            except ServerError as error:
                raise NotMeasured(f"no PostgreSQL: {error}") from error
            self._postgres = server
            self.versions["postgresql"] = server.binaries.version
            # What decides over durability and speed, as the server itself says it.
            self.settings["postgresql"] = {
                name: str(execute(server.url(), f"SHOW {name}")) for name in TOLD_SETTINGS
            }
            _warm_up(server)
        return self._postgres


def _warm_up(server: PostgresServer) -> None:
    """Bring a server that was just made to where one is that has run for a day.

    A new server makes each of its log files when it is needed, and commits wait until 16 MB of zeros have
    reached the disk; one that has run for a while uses its old files again.
    """
    switch = "SELECT pg_logical_emit_message(false, 'bench', 'x'), pg_switch_wal()"
    execute(server.url(), *[switch] * LOG_FILES, "CHECKPOINT")
