"""A server program on a loopback port, with a directory of its own: started, asked to end, killed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.patience import PATIENCE
from tests.servers import packages
from tests.servers.accounts import Account
from tests.servers.packages import Package
from tests.servers.postgres import HOST, free_port
from tests.servers.processes import close_at_exit, end_process, start_process


class ServerProgram(ABC):
    """One process. Safe to use from any thread; it keeps its port and its files over restarts."""

    def __init__(self, name: str, account: Account, port: int | None) -> None:
        self.port = port or free_port()
        self._name = name
        self._account = account
        self.directory = account.make_directory(f"tidewheel-{name}-")
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    @property
    def log(self) -> Path:
        """What it said, over all its starts."""
        return self.directory / f"{self._name}.log"

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

    @abstractmethod
    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        """What to run, and what its environment needs; files it reads are written here."""

    @abstractmethod
    def _await_start(self, process: subprocess.Popen[bytes]) -> None:
        """Return when it serves; ``ServerError`` with its last words when it does not."""

    def start(self) -> Self:
        """Run it until it accepts connections."""
        with self._lock:
            if self.running:
                return self
            close_at_exit(self)
            command, environment = self._command()
            self._process = start_process(
                command, self._account, self.log, death_signal=signal.SIGTERM, environment=environment
            )
            self._await_start(self._process)
        return self

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def await_end(self) -> int:
        """Until it has ended by itself or by a signal; its exit code."""
        assert self._process is not None
        return self._process.wait(PATIENCE)

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

    def _find(self, package: Package, *places: str) -> tuple[Path, dict[str, str]]:
        """A program and what its environment needs: the system's, or one unpacked beside our files."""
        for path in (shutil.which(package.name), *places):
            if path is not None and Path(path).is_file():
                return Path(path), {}
        # A copy, because the cache is in a home directory, where the account may not go.
        root = self.directory / "install"
        if not root.exists():
            shutil.copytree(packages.unpacked(package), root, symlinks=True)
        return package.of(root), packages.library_path(root)
