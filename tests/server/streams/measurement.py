"""The measurement: open streams, idle, tell them something, kill the clients, open them again, stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE
from tidewheel import Tidewheel

CLIENTS = 2
"""Processes that share the streams."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Figures:
    """What came out."""

    streams: int
    opened_seconds: float
    kilobytes_per_stream: float
    idle_processor_share: float
    first_told_ms: float
    last_told_ms: float
    gone_seconds: float
    sockets_before: int
    sockets_after: int
    exit_seconds: float
    exit_code: int


def measure(directory: Path, streams: int, *, idle_seconds: float = 10.0) -> Figures:
    """On a SQLite file in this directory."""
    url = f"sqlite:///{directory / 'jobs.db'}"
    with _server(url, directory) as (process, port, key):
        with _clients(port, key, 1) as warm:  # what is loaded and allocated once is not the streams'
            _read(warm[0], "ready")
        sockets_before = _settled_sockets(process.pid)
        memory = _memory(process.pid)
        began = time.monotonic()
        with _clients(port, key, streams) as clients:
            for client in clients:
                _read(client, "ready")
            opened = time.monotonic() - began
            grown = _memory(process.pid) - memory
            busy = _processor_seconds(process.pid)
            time.sleep(idle_seconds)
            idle = (_processor_seconds(process.pid) - busy) / idle_seconds
            app = Tidewheel(url)
            with app.sync:
                told_at = time.monotonic()
                app.sync.enqueue("mail")
            answers = [_read(client, "all") for client in clients]
            for client in clients:
                client.kill()
            killed = time.monotonic()
        _wait_until_closed(process.pid, sockets_before)
        gone = time.monotonic() - killed
        sockets_after = _sockets(process.pid)
        with _clients(port, key, streams) as clients:
            for client in clients:
                _read(client, "ready")
            process.send_signal(signal.SIGTERM)
            asked = time.monotonic()
            code = process.wait(PATIENCE)
            ended = time.monotonic() - asked
    return Figures(
        streams=streams,
        opened_seconds=opened,
        kilobytes_per_stream=grown / streams,
        idle_processor_share=idle,
        first_told_ms=1000 * (min(first for first, _ in answers) - told_at),
        last_told_ms=1000 * (max(last for _, last in answers) - told_at),
        gone_seconds=gone,
        sockets_before=sockets_before,
        sockets_after=sockets_after,
        exit_seconds=ended,
        exit_code=code,
    )


@contextmanager
def _server(url: str, directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], int, str]]:
    made = subprocess.run(
        [sys.executable, "-m", "tidewheel.cli", "keys", "create", "--superuser", "--json", "--url", url],
        capture_output=True,
        text=True,
        check=True,
    )
    log = directory / "server.log"
    with log.open("w") as lines:
        process = subprocess.Popen(
            [sys.executable, "-m", "tidewheel.cli", "serve", "--url", url, "--port", "0"],
            stderr=lines,
            env={**os.environ, "TIDEWHEEL_TRUSTED_PROXIES": "127.0.0.1"},  # thousands come from one address
        )
    try:
        began = time.monotonic()
        while (found := re.search(r"on http://127\.0\.0\.1:(\d+)", log.read_text("utf-8"))) is None:
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() - began < PATIENCE
            time.sleep(0.05)
        yield process, int(found[1]), json.loads(made.stdout)["key"]
    finally:
        process.kill()
        process.wait()


@contextmanager
def _clients(port: int, key: str, streams: int) -> Iterator[list[subprocess.Popen[str]]]:
    shares = [streams // CLIENTS + (index < streams % CLIENTS) for index in range(CLIENTS)]
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.server.streams.client", str(port), str(share), key],
            stdout=subprocess.PIPE,
            text=True,
        )
        for share in shares
        if share
    ]
    try:
        yield clients
    finally:
        for client in clients:
            client.kill()
            client.communicate()


def _read(client: subprocess.Popen[str], word: str) -> tuple[float, float]:
    assert client.stdout is not None
    said, *moments = client.stdout.readline().split() or [""]
    assert said == word, f"a client says {said!r} instead of {word!r}"
    return (float(moments[0]), float(moments[1])) if moments else (0.0, 0.0)


def _sockets(pid: int) -> int:
    """Open ones. Other files are the store's, which opens more of them when many ask at once."""
    number = 0
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            number += str(file.readlink()).startswith("socket:")
    return number


def _memory(pid: int) -> int:
    """Resident, in kB."""
    for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("a process without memory")


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _settled_sockets(pid: int) -> int:
    """How many sockets are open once that does not change any more."""
    seen, since = _sockets(pid), time.monotonic()
    while time.monotonic() - since < 1.0:
        time.sleep(0.05)
        if (now := _sockets(pid)) != seen:
            seen, since = now, time.monotonic()
    return seen


def _wait_until_closed(pid: int, before: int) -> None:
    began = time.monotonic()
    while _sockets(pid) > before:
        assert time.monotonic() - began < PATIENCE, f"{_sockets(pid)} sockets are open, {before} before"
        time.sleep(0.01)
