"""Debian's beanstalkd: what our own server for its clients is compared with."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.servers import packages
from tests.servers.accounts import server_account
from tests.servers.packages import BEANSTALKD
from tests.servers.postgres import HOST, free_port
from tests.servers.processes import (
    PATIENCE,
    ServerError,
    close_at_exit,
    end_process,
    last_lines,
    start_process,
)


class Beanstalkd:
    """One server on the loopback; ``durable`` writes every change to a log on disk before it answers."""

    def __init__(self, *options: str, durable: bool = False, port: int | None = None) -> None:
        self.port = port or free_port()
        self._account = server_account()
        self.directory = self._account.make_directory("windlass-beanstalkd-")
        self._options = [*options]
        if durable:
            binlog = self.directory / "binlog"
            binlog.mkdir()
            self._account.give(binlog)
            self._options += ["-b", str(binlog), "-f0"]
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    @property
    def log(self) -> Path:
        return self.directory / "beanstalkd.log"

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
            program, libraries = self._find()
            self._process = start_process(
                [program, "-l", HOST, "-p", str(self.port), *self._options],
                self._account,
                self.log,
                death_signal=signal.SIGTERM,
                environment=libraries,
            )
            await_listening(self._process, self.address, self.log)
        return self

    def _find(self) -> tuple[Path, dict[str, str]]:
        """The program and what its environment needs: the system's, or one unpacked beside our files."""
        for path in (shutil.which("beanstalkd"), "/usr/bin/beanstalkd", "/usr/local/bin/beanstalkd"):
            if path is not None and Path(path).is_file():
                return Path(path), {}
        # A copy, because the cache is in a home directory, where the account may not go.
        root = self.directory / "install"
        if not root.exists():
            shutil.copytree(packages.unpacked(BEANSTALKD), root, symlinks=True)
        return BEANSTALKD.of(root), packages.library_path(root)

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


def await_listening(process: subprocess.Popen[bytes], address: tuple[str, int], log: Path) -> None:
    """Until it accepts connections; one that does not is ended, and its last words are the error."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(address, 1) as client:
                client.settimeout(PATIENCE)  # some listen before they can answer
                client.sendall(b"quit\r\n")
                client.recv(1)  # nothing but the end, so that this connection is not counted among others
        except OSError:
            time.sleep(0.002)
        else:
            return
    if process.poll() is None:
        end_process(process, signal.SIGKILL)
    words = process.args if isinstance(process.args, Sequence) else [process.args]
    raise ServerError(f"{words[-1]!r} did not start:\n{last_lines(log)}")
