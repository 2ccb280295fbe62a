"""A server process under attack: its memory, its log, and how soon it answers another client."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.patience import PATIENCE

PROBE_ADDRESS = "127.0.0.2"
"""Where probes come from: another address than the attacker's."""
PROBE_PAUSE = 0.05
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"


@dataclass
class Target:
    """A running server."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def memory(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("ascii")
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None, status
        return int(found[1]) / 1024

    @property
    def log_lines(self) -> int:
        with self.log.open("rb") as lines:
            return sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 20), b""))


@contextmanager
def target(
    directory: Path,
    *,
    python: str = sys.executable,
    files: int = 0,
    settings: Mapping[str, object] | None = None,
) -> Iterator[Target]:
    """Start ``tidewheel serve`` on a new SQLite file; ``files`` limits its file descriptors."""
    log = directory / "server.log"
    given = {f"TIDEWHEEL_{name.upper()}": str(value) for name, value in (settings or {}).items()}
    command = [python, "-m", "tidewheel.cli", "serve", "--url", url_in(directory), "--port", "0"]
    if files:
        command = ["sh", "-c", 'ulimit -n "$0"; exec "$@"', str(files), *command]
    with log.open("wb") as lines:
        process = subprocess.Popen(
            command, stdout=lines, stderr=lines, cwd=directory, env={**os.environ, **given}
        )
    try:
        began = time.monotonic()
        while (found := re.search(rb"on http://127\.0\.0\.1:(\d+)", log.read_bytes())) is None:
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() - began < PATIENCE, log.read_text("utf-8")
            time.sleep(0.02)
        made = Target(process, int(found[1]), log)
        for _ in range(20):  # what is loaded and allocated once does not count
            probe(made.port)
        yield made
    finally:
        process.kill()
        process.wait()


def url_in(directory: Path) -> str:
    """The URL of the server's store."""
    return f"sqlite:///{directory / 'jobs.db'}"


def probe(port: int) -> float:
    """Ask for /healthz on a new connection; return the seconds until the whole answer was there."""
    began = time.monotonic()
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), PATIENCE, (PROBE_ADDRESS, 0)) as line:
                line.sendall(HEALTH)
                answer = b"".join(iter(lambda: line.recv(4096), b""))
        except (ConnectionError, TimeoutError):
            answer = b""
        if answer.startswith(b"HTTP/1.1 200 "):
            return time.monotonic() - began
        if time.monotonic() - began > PATIENCE:
            raise AssertionError(f"/healthz gave no 200 for {PATIENCE} s, but {answer[:200]!r}")
        time.sleep(0.01)  # refused or hung up on: the wait counts


@dataclass
class Watch:
    """What was seen of the server during an attack."""

    target: Target
    memory_before: float = 0.0
    memory_peak: float = 0.0
    probes: list[float] = field(default_factory=list)
    log_lines: int = 0
    seconds: float = 0.0
    failure: str = ""

    @property
    def growth(self) -> float:
        return self.memory_peak - self.memory_before

    @property
    def median(self) -> float:
        return sorted(self.probes)[len(self.probes) // 2]


@contextmanager
def watched(target: Target) -> Iterator[Watch]:
    """Probe the server and read its memory, on a thread, until left."""
    watch = Watch(target, memory_before=target.memory)
    watch.memory_peak = watch.memory_before
    lines_before, began = target.log_lines, time.monotonic()
    over = threading.Event()

    def look() -> None:
        try:
            while not over.is_set() or not watch.probes:
                watch.memory_peak = max(watch.memory_peak, target.memory)
                watch.probes.append(probe(target.port))
                over.wait(PROBE_PAUSE)
            watch.memory_peak = max(watch.memory_peak, target.memory)
        except Exception as error:  # raised where the figures are used
            watch.failure = f"{type(error).__name__}: {error}"

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
        watch.seconds = time.monotonic() - began
        watch.log_lines = target.log_lines - lines_before
    assert not watch.failure, watch.failure
