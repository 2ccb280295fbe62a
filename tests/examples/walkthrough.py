"""An example, walked through as its README says: its commands started, its calls made, its answers compared.

A block marked ``prepare`` has commands that end before the others begin; one marked ``start`` has one command
a line, each a process. One marked ``call`` is a ``curl`` command;
the block marked ``answer`` below it is what comes of it, at once or after a moment. ``ID`` in an answer is
whatever stands there, and in later calls and answers that.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.cli.processes import Process
from tests.docs.pages import ROOT, blocks
from tests.patience import PATIENCE

EXAMPLES = ROOT / "examples"
PORT_OF_THE_PAGES = "8000"
MARKS = {"prepare", "start", "call", "answer"}


class Walkthrough:
    """One example in a directory of its own, on a port of its own."""

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        self.blocks = [block for block in blocks(EXAMPLES / name / "README.md") if block.mark in MARKS]
        self.processes: list[Process] = []
        self._directory = directory / name
        shutil.copytree(
            EXAMPLES / name, self._directory, ignore=shutil.ignore_patterns("*.db*", "__pycache__")
        )
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = str(listener.getsockname()[1])
        path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDEWHEEL_")}
        self._environment = {**kept, "PATH": path, **environment}
        self._job_id = "ID"

    @contextlib.contextmanager
    def started(self, *more: str) -> Iterator[None]:
        """Its processes, with ``more`` arguments for the first; whatever is left of them ends with this."""
        try:
            for block in self.blocks:
                if block.mark == "prepare":
                    for line in block.text.splitlines():
                        self._prepare(self._words(line), block.place)
            self._start_all(more)
            yield
        finally:
            for process in self.processes:
                process.kill()

    def _start_all(self, more: tuple[str, ...] = ()) -> None:
        for block in self.blocks:
            if block.mark == "start":
                for line in block.text.splitlines():
                    self._start([*self._words(line), *(() if self.processes else more)])

    def kill_and_start_again(self) -> None:
        """All of its processes by SIGKILL, and the same commands once more."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self._start_all()

    def _prepare(self, command: list[str], place: str) -> None:
        done = subprocess.run(
            [self._program(command[0]), *command[1:]],
            cwd=self._directory,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{place}: {done.stdout}{done.stderr}"

    def _start(self, command: list[str]) -> None:
        program = [self._program(command[0]), *command[1:]]
        self.processes.append(Process.start(program, self._directory, self._environment))

    def walk(self) -> None:
        """Make every call, each again and again until its answer is the one of the page."""
        calls = [block for block in self.blocks if block.mark == "call"]
        answers = [block for block in self.blocks if block.mark == "answer"]
        assert calls
        for call, answer in zip(calls, answers, strict=True):
            self._ask(self._words(call.text), answer.text, call.place)

    def _ask(self, command: list[str], expected: str, place: str) -> None:
        deadline = time.monotonic() + PATIENCE
        changes = "-X" in command
        while True:
            done = subprocess.run(
                [self._program(command[0]), *command[1:]], capture_output=True, text=True, check=False
            )
            # A refused connection is a server that has not started yet; whatever changes is done once.
            if done.returncode == 0:
                found = json.loads(done.stdout)
                if self._same(json.loads(expected.replace("ID", self._job_id)), found):
                    return
                assert not changes, f"{place} answered {done.stdout}"
            for process in self.processes:
                assert process.popen.poll() is None, f"{place}: a process ended:\n{self.said()}"
            assert time.monotonic() < deadline, f"{place} still answers {done.stdout}\n{self.said()}"
            time.sleep(0.03)

    def _same(self, expected: Any, found: Any) -> bool:
        if isinstance(expected, dict) and expected.get("id") == "ID" and "id" in found:
            self._job_id = str(found["id"])
            expected = {**expected, "id": found["id"]}
        return bool(expected == found)

    def said(self) -> str:
        """What the processes have written, once they are killed."""
        for process in self.processes:
            process.kill()
            process.wait()
        return "\n".join(process.text for process in self.processes)

    def _words(self, line: str) -> list[str]:
        return shlex.split(line.replace(PORT_OF_THE_PAGES, self.port).replace("ID", self._job_id))

    def _program(self, name: str) -> str:
        found = shutil.which(name, path=self._environment["PATH"])
        assert found is not None, f"there is no program {name}"
        return sys.executable if name == "python" else found
