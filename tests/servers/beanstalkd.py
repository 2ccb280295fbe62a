"""Debian's beanstalkd: what our own server for its clients is compared with."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.patience import PATIENCE
from tests.servers.accounts import server_account
from tests.servers.packages import BEANSTALKD
from tests.servers.postgres import HOST
from tests.servers.processes import ServerError, end_process, last_lines
from tests.servers.program import ServerProgram


class Beanstalkd(ServerProgram):
    """One server on the loopback; ``durable`` writes every change to a log on disk before it answers."""

    def __init__(self, *options: str, durable: bool = False, port: int | None = None) -> None:
        super().__init__("beanstalkd", server_account(), port)
        self._options = [*options]
        if durable:
            binlog = self.directory / "binlog"
            binlog.mkdir()
            self._account.give(binlog)
            self._options += ["-b", str(binlog), "-f0"]

    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        program, libraries = self._find(BEANSTALKD, "/usr/bin/beanstalkd", "/usr/local/bin/beanstalkd")
        return [program, "-l", HOST, "-p", str(self.port), *self._options], libraries

    def _await_start(self, process: subprocess.Popen[bytes]) -> None:
        await_listening(process, self.address, self.log)


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
