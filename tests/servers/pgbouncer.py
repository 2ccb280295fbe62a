"""PgBouncer in front of a server of ours: what a store meets behind a connection pooler."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Collection
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlencode

from tests.servers import packages
from tests.servers.accounts import server_account
from tests.servers.packages import PGBOUNCER
from tests.servers.postgres import HOST, PostgresServer, free_port
from tests.servers.processes import (
    PATIENCE,
    ServerError,
    close_at_exit,
    end_process,
    last_lines,
    start_process,
)

PoolMode = Literal["session", "transaction", "statement"]

# Nothing here is friendlier than what people have: unknown start-up parameters are refused, as by default.
CONFIGURATION = """
[databases]
* = host={host} port={server_port}

[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {directory}/users.txt
pool_mode = {pool_mode}
default_pool_size = {pool_size}
max_client_conn = {max_clients}
"""


class PgBouncer:
    """One pooler for every database of ``server``."""

    def __init__(
        self,
        server: PostgresServer,
        pool_mode: PoolMode = "transaction",
        *,
        port: int | None = None,
        pool_size: int = 20,
        max_clients: int = 1000,
        users: Collection[str] = ("postgres",),
    ) -> None:
        self.server = server
        self.pool_mode = pool_mode
        self.port = port or free_port()
        self._users = users
        self._account = server_account()
        self.directory = self._account.make_directory("windlass-pgbouncer-")
        self._configuration = CONFIGURATION.format(
            host=HOST,
            server_port=server.port,
            port=self.port,
            directory=self.directory,
            pool_mode=pool_mode,
            pool_size=pool_size,
            max_clients=max_clients,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    @property
    def log(self) -> Path:
        return self.directory / "pgbouncer.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def url(self, database: str = "postgres", **query: str) -> str:
        """How to reach the server through it."""
        options = f"?{urlencode(query)}" if query else ""
        return f"postgresql://postgres@{HOST}:{self.port}/{database}{options}"

    def start(self) -> Self:
        """Run it until it accepts connections; the server behind it may come and go."""
        with self._lock:
            if self.running:
                return self
            close_at_exit(self)
            program, libraries = self._find()
            (self.directory / "users.txt").write_text("".join(f'"{user}" ""\n' for user in self._users))
            (self.directory / "pgbouncer.ini").write_text(self._configuration)
            self._process = start_process(
                [program, self.directory / "pgbouncer.ini"],
                self._account,
                self.log,
                death_signal=signal.SIGTERM,
                environment=libraries,
            )
            self._wait()
        return self

    def _find(self) -> tuple[Path, dict[str, str]]:
        """The program and what its environment needs: the system's, or one unpacked beside our files."""
        for path in (shutil.which("pgbouncer"), "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer"):
            if path is not None and Path(path).is_file():
                return Path(path), {}
        # A copy, because the cache is in a home directory, where the account may not go.
        root = self.directory / "install"
        if not root.exists():
            shutil.copytree(packages.unpacked(PGBOUNCER), root, symlinks=True)
        return PGBOUNCER.of(root), packages.library_path(root)

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection((HOST, self.port), 1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        self.stop()
        raise ServerError(f"PgBouncer did not start:\n{last_lines(self.log)}")

    def stop(self) -> None:
        """Cut every client off."""
        with self._lock:
            if self._process is not None:
                end_process(self._process, signal.SIGTERM)

    def restart(self) -> None:
        with self._lock:
            self.stop()
            self.start()

    def close(self) -> None:
        """Stop it for good; its directory goes, too."""
        with self._lock:
            self.stop()
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
