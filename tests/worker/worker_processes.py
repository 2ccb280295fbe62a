"""Real worker processes for tests: started, stopped, killed, and what they logged."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.patience import PATIENCE

ROOT = Path(__file__).parents[2]


@dataclass
class Site:
    """A directory with an event log, and a queue: in the same directory unless it is told where."""

    directory: Path
    lease: float = 2.0
    store_url: str | None = None
    program: str = "tests.worker.victims"

    @property
    def url(self) -> str:
        return self.store_url or f"sqlite:///{self.directory / 'jobs.db'}"

    @property
    def events_path(self) -> Path:
        return self.directory / "events.jsonl"

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "TIDEWHEEL_URL": self.url,
            "TIDEWHEEL_LEASE": str(self.lease),
            "EVENTS": str(self.events_path),
            # Before what is there already, which may say where the Tidewheel under test is.
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            **more,
        }

    @property
    def complaints_path(self) -> Path:
        """What all workers wrote to stderr. A file: a pipe that nobody reads would stop a worker one day."""
        return self.directory / "complaints.txt"

    def complaints(self) -> str:
        return self.complaints_path.read_text("utf-8", "replace")

    def start(self, **environment: str) -> subprocess.Popen[str]:
        """A worker process, past its start-up."""
        with self.complaints_path.open("a") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", self.program],
                env=self.environment(**environment),
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            process.kill()
            process.communicate()
            raise RuntimeError(f"the worker did not start: {self.complaints()}")
        return process

    def freeze(self, process: subprocess.Popen[str]) -> None:
        """SIGSTOP, but not in the middle of a write: on SQLite nobody else could write until it goes on."""
        while True:
            process.send_signal(signal.SIGSTOP)
            if self.writable():
                return
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)

    def writable(self) -> bool:
        if not self.url.startswith("sqlite:"):
            return True
        connection = sqlite3.connect(self.directory / "jobs.db", timeout=0.2, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
        except sqlite3.OperationalError:
            return False
        finally:
            connection.close()
        return True

    @contextlib.contextmanager
    def workers(self, number: int, **environment: str) -> Iterator[list[subprocess.Popen[str]]]:
        processes = [self.start(**environment) for _ in range(number)]
        try:
            yield processes
        finally:
            for process in processes:
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    process.kill()
                process.communicate()

    def events(self) -> list[dict[str, Any]]:
        """Everything logged so far; a line that is being written is left for the next time."""
        if not self.events_path.exists():
            return []
        text = self.events_path.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def wait_for(self, event: str, *, number: int = 1, patience: float = PATIENCE) -> list[dict[str, Any]]:
        """The first events of a kind, once there are enough."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            found = [line for line in self.events() if line["event"] == event]
            if len(found) >= number:
                return found
            time.sleep(0.01)
        raise AssertionError(f"{number} × {event!r} did not happen within {patience} s: {self.events()[-5:]}")


def stop(
    process: subprocess.Popen[str], number: int = signal.SIGTERM, patience: float = PATIENCE
) -> tuple[int, str]:
    """Signal a process and wait for its end: exit code and what it said."""
    process.send_signal(number)
    output, _ = process.communicate(timeout=patience)
    return process.returncode, output
