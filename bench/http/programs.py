"""Servers in processes of their own, and wrk, which asks them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.postgres import HOST, free_port

from bench.environments import NotMeasured

CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Asked:
    """What wrk saw."""

    requests_per_second: float
    p50_ms: float
    p99_ms: float
    errors: int


@dataclass(frozen=True, slots=True)
class Served:
    """A server that answers."""

    address: str
    pid: int


@contextlib.contextmanager
def serving(command: list[str], environment: Mapping[str, str], path: str) -> Iterator[Served]:
    """A server of this command, which gets ``--port`` added, once ``path`` answers."""
    port = free_port()
    address = f"http://{HOST}:{port}"
    words = [sys.executable, "-m", *command, "--port", str(port)]
    process = subprocess.Popen(words, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                urllib.request.urlopen(address + path, timeout=5).close()  # noqa: S310 - our own server
                break
            except urllib.error.HTTPError:
                break  # it answers
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise NotMeasured(f"{' '.join(words)} did not start") from None
                time.sleep(0.05)
        yield Served(address, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def make_key(url: str, *options: str) -> str:
    """An API key for the store, as an operator makes one."""
    words = [sys.executable, "-m", "tidewheel.cli", "keys", "create", "--json", "--url", url, *options]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return str(json.loads(told)["key"])


def call(address: str, path: str, key: str, body: Any = None) -> Any:
    """One request, one answer."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(address + path, data, headers)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return json.load(answer)


def ask(address: str, script: str, seconds: float, directory: Path) -> Asked:
    """Run wrk with a script of Lua, 64 connections kept open."""
    program = shutil.which("wrk")
    if program is None:
        raise NotMeasured("no wrk (apt-get install wrk)")
    file = directory / "wrk.lua"
    file.write_text(script + _TELL, "utf-8")
    words = [program, "-t", "1", "-c", str(CONNECTIONS), "-d", f"{seconds:g}s", "-s", str(file), address]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r"TOLD (.*)", told)
    if found is None:
        raise NotMeasured(f"wrk said: {told}")
    values = json.loads(found[1])
    return Asked(values["rate"], values["p50"] / 1000, values["p99"] / 1000, values["errors"])


_TELL = """
done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('TOLD {"rate": %f, "p50": %f, "p99": %f, "errors": %d}\\n',
    summary.requests / summary.duration * 1e6, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
"""
