"""``tidewheel beanstalkd`` in a process of its own, as people start it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.accounts import Account
from tests.servers.beanstalkd import await_listening
from tests.servers.postgres import HOST
from tests.servers.program import ServerProgram


class Door(ServerProgram):
    """One server for beanstalkd's clients, on a store of ours; a new SQLite file where no URL is given."""

    def __init__(self, *options: str, url: str | None = None, port: int | None = None) -> None:
        super().__init__("door", Account(), port)
        self.url = url or f"sqlite:///{self.directory / 'jobs.db'}"
        self._options = options

    def _command(self) -> tuple[Sequence[str | Path], Mapping[str, str]]:
        listen = ["--listen", f"{HOST}:{self.port}", "--url", self.url]
        return [sys.executable, "-m", "tidewheel.cli", "beanstalkd", *listen, *self._options], {}

    def _await_start(self, process: subprocess.Popen[bytes]) -> None:
        await_listening(process, self.address, self.log)
