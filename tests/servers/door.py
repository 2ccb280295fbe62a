"""``windlass beanstalkd`` in a process of its own, as people start it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from tests.servers.accounts import Account
from tests.servers.beanstalkd import await_listening
from tests.servers.postgres import HOST, free_port
from tests.servers.processes import close_at_exit, end_process, start_process


class Door:
    """One server for beanstalkd's clients, on a store of ours; a new SQLite file where no URL is given."""

    def __init__(self, *options: str, url: str | None = None, port: int | None = None) -> None:
        self.port = port or free_port()
        self.directory = Account().make_directory("windlass-door-")
        self.url = url or f"sqlite:///{self.directory / 'jobs.db'}"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    @property
    def log(self) -> Path:
        return self.directory / "door.log"

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Run it until it accepts connections."""
        with self._lock:
            if self.running:
                return self
            close_at_exit(self)
            listen = ["--listen", f"{HOST}:{self.port}", "--url", self.url]
            self._process = start_process(
                [sys.executable, "-m", "windlass.cli", "beanstalkd", *listen, *self._options],
                Account(),
                self.log,
                death_signal=signal.SIGTERM,
            )
            await_listening(self._process, self.address, self.log)
        return self

    def signal(self, number: int) -> None:
        """SIGUSR1 makes it drain."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """Ask it to end."""
        with self._lock:
            if self._process is not None:
                end_process(self._process, signal.SIGTERM)

    def kill(self) -> None:
        """End it without a word; what it wrote stays, and ``start`` begins with that."""
        with self._lock:
            if self._process is not None:
                end_process(self._process, signal.SIGKILL)

    def close(self) -> None:
        """Stop it for good; its directory goes, too."""
        with self._lock:
            self.stop()
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()
