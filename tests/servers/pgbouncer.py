"""PgBouncer in front of a server of ours: what a store meets behind a connection pooler."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlencode

from tests.patience import PATIENCE
from tests.servers.accounts import server_account
from tests.servers.packages import PGBOUNCER
from tests.servers.postgres import HOST, PostgresServer
from tests.servers.processes import ServerError, last_lines
from tests.servers.program import ServerProgram

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


class PgBouncer(ServerProgram):
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
        super().__init__("pgbouncer", server_account(), port)
        self.server = server
        self.pool_mode = pool_mode
        self._users = users
        self._configuration = CONFIGURATION.format(
            host=HOST,
            server_port=server.port,
            port=self.port,
            directory=self.directory,
            pool_mode=pool_mode,
            pool_size=pool_size,
            max_clients=max_clients,
        )

    def url(self, database: str = "postgres", **query: str) -> str:
        """How to reach the server through it."""
        options = f"?{urlencode(query)}" if query else ""
        return f"postgresql://postgres@{HOST}:{self.port}/{database}{options}"

    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        program, libraries = self._find(PGBOUNCER, "/usr/sbin/pgbouncer", "/usr/local/sbin/pgbouncer")
        (self.directory / "users.txt").write_text("".join(f'"{user}" ""\n' for user in self._users))
        (self.directory / "pgbouncer.ini").write_text(self._configuration)
        return [program, self.directory / "pgbouncer.ini"], libraries

    def _await_start(self, process: subprocess.Popen[bytes]) -> None:
        """The server behind it may come and go."""
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(self.address, 1).close()
            except OSError:
                time.sleep(0.01)
            else:
                return
        self.stop()
        raise ServerError(f"PgBouncer did not start:\n{last_lines(self.log)}")
