"""A PostgreSQL server of our own on a loopback port: made, started, stopped in every way, started again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlencode

from tests.patience import PATIENCE
from tests.servers.accounts import server_account
from tests.servers.binaries import PostgresBinaries, find_binaries, usable_by
from tests.servers.processes import (
    DIE_AT_ONCE,
    ServerError,
    close_at_exit,
    end_process,
    last_lines,
    start_process,
)

HOST = "127.0.0.1"

COMMON: Mapping[str, str] = {"max_connections": "300", "log_line_prefix": "%m [%p] %a "}

DURABLE: Mapping[str, str] = {}
"""PostgreSQL's own defaults: for benchmarks, and for tests that stop the server the hard way."""

FAST: Mapping[str, str] = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For tests of what the store says, not of what survives a power cut."""

StopMode = Literal["fast", "immediate"]


class PostgresServer:
    """One server with its data in ``directory``; safe to use from any thread.

    Without a directory it makes one that goes when it is closed, without a port it takes a free one and keeps
    it over restarts.
    """

    def __init__(
        self,
        binaries: PostgresBinaries | None = None,
        directory: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] = FAST,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._account = server_account()
        self._owns_directory = directory is None
        self.binaries = usable_by(binaries or find_binaries(), self._account)
        self.directory = directory or self._account.make_directory("tidewheel-pg-")
        self.port = port or free_port()
        self.settings = {**COMMON, **settings}
        self.environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def log(self) -> Path:
        """What the server said, over all its starts."""
        return self.directory / "postgres.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The postmaster's process."""
        if self._process is None:
            raise ServerError("the server was never started")
        return self._process.pid

    def url(self, database: str = "postgres", **query: str) -> str:
        """How to reach it; ``schema="…"`` and other options go into the query."""
        options = f"?{urlencode(query)}" if query else ""
        return f"postgresql://postgres@{HOST}:{self.port}/{database}{options}"

    def init(self) -> None:
        """Make the data directory; one that is there is kept."""
        with self._lock:
            if (self.data / "PG_VERSION").exists():
                return
            command = [
                str(self.binaries.program("initdb")),
                *("--pgdata", str(self.data), "--username", "postgres", "--auth", "trust"),
                *("--encoding", "UTF8", "--locale", "C", "--no-sync"),
            ]
            log = self.directory / "initdb.log"
            process = start_process(command, self._account, log, death_signal=signal.SIGTERM)
            if process.wait(PATIENCE) != 0:
                raise ServerError(f"initdb failed:\n{last_lines(log)}")

    def start(self) -> Self:
        """Run it until it accepts connections; the data directory is made when there is none."""
        with self._lock:
            if self.running:
                return self
            close_at_exit(self)
            self.init()
            deadline = time.monotonic() + PATIENCE
            while not self._start_once(deadline):
                # Children of a killed postmaster hold its shared memory for a moment longer.
                if time.monotonic() > deadline or "still in use" not in last_lines(self.log, 5):
                    raise ServerError(f"PostgreSQL did not start:\n{last_lines(self.log)}")
                time.sleep(0.1)
        return self

    def _start_once(self, deadline: float) -> bool:
        sockets = str(self.directory) if len(str(self.directory)) < 80 and os.name == "posix" else ""
        settings = {
            **self.settings,
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": sockets,
        }
        command = [str(self.binaries.program("postgres")), "-D", str(self.data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        if self.environment:
            # For the server alone: what starts it as another user must not load the same libraries.
            command = [
                "/usr/bin/env",
                *(f"{name}={value}" for name, value in self.environment.items()),
                *command,
            ]
        self._process = start_process(command, self._account, self.log, death_signal=DIE_AT_ONCE)
        while self._process.poll() is None:
            if self._accepts():
                return True
            if time.monotonic() > deadline:
                end_process(self._process, signal.SIGTERM)
            time.sleep(0.01)
        return False

    def _accepts(self) -> bool:
        """As pg_ctl knows it: the eighth line of the lock file, if the file is this start's."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"

    def stop(self, mode: StopMode = "fast") -> None:
        """``fast`` disconnects clients and writes everything, ``immediate`` is a crash it recovers from."""
        with self._lock:
            if self._process is None or not self.running:
                return
            if os.name == "posix":
                end_process(self._process, signal.SIGINT if mode == "fast" else signal.SIGQUIT)
            else:
                command = [str(self.binaries.program("pg_ctl")), "stop", "-D", str(self.data), "-m", mode]
                subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE)
                self._process.wait(PATIENCE)

    def kill(self) -> None:
        """SIGKILL for the postmaster; its children notice by themselves."""
        with self._lock:
            if self._process is not None and self.running:
                self._process.kill()
                self._process.wait(PATIENCE)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop and start again on the same port, with the same data."""
        with self._lock:
            self.stop(mode)
            self.start()

    def close(self) -> None:
        """Stop it for good; a directory it made goes, too."""
        with self._lock:
            self.stop("immediate" if self._owns_directory else "fast")
            if self._owns_directory:
                shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def free_port() -> int:
    """A port nobody listens on at this moment.

    Below those that systems give to outgoing connections: while a server is down, one of its clients could be
    given its port, and even connect to itself.
    """
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServerError("a hundred ports from 15000 to 32000 were tried, and all are taken")
