"""A worker for the benchmark: in a process of its own, or in this one if no other can reach the store.

This module is also the program of that process. The process reads its orders as one line on standard input,
so that no password shows in a list of processes. It stops at the end of its input, so that it ends with its
parent, even if the parent is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO, Any, Final

from tidewheel.client.job_handle import Job
from tidewheel.errors import ConfigurationError, ResultTimeout, StoreError
from tidewheel.verification.benchmark.workload import BenchApp, make_bench_app
from tidewheel.verification.stdin_control import call_when_parent_exits, read_instructions

START_TIMEOUT_SECONDS: Final = 30.0
"""How long an interpreter may take to start, open the store and run its first job."""
STOP_TIMEOUT_SECONDS: Final = 5.0
"""How long it may take to stop, before it is killed."""
POLL_SECONDS: Final = 0.5
"""How often to look whether it has died."""

_PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv.pop()); "
    "from tidewheel.verification.benchmark.worker_process import main; main()"
)
"""The last argument is where Tidewheel is: this program may have found it in a place of its own."""


@contextlib.asynccontextmanager
async def worker_in_process(bench: BenchApp, topic: str, first: Job[Any]) -> AsyncIterator[None]:
    """A worker on the same store elsewhere, at work: it has run the job ``first``, which is on its topic."""
    process = _WorkerProcess(bench, topic)  # on no thread: cancelled meanwhile, nobody would know of it
    try:
        await process.wait_for(first)
        yield
    finally:
        # Not awaited: a run that is called off must not leave a worker on a store that is about to go.
        process.stop()


@contextlib.asynccontextmanager
async def worker_on_loop(bench: BenchApp, topic: str) -> AsyncIterator[None]:
    """A worker on this event loop, for a store that no other process can reach."""
    worker = bench.app.worker(topics=[topic], handle_signals=False)
    working = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop(now=True)
        await working


class _WorkerProcess:
    def __init__(self, bench: BenchApp, topic: str) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise ConfigurationError(
                "the benchmark starts a worker in a Python interpreter of its own, and this program has "
                "none; run it with Python itself"
            )
        settings = bench.app.settings
        orders = {
            "url": settings.url,
            "topic": topic,
            "poll_interval": settings.poll_interval,
        }
        options: dict[str, Any] = {}
        # A group of its own: Ctrl-C is for the measuring program alone, which then stops this one.
        if sys.platform == "win32":
            options["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
        else:
            options["process_group"] = 0
        self._log_file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._popen = subprocess.Popen(  # noqa: S603 - our own interpreter
            # -P: nothing is imported from the working directory.
            [sys.executable, "-P", "-c", _PROGRAM, str(Path(__file__).parents[3])],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._log_file,
            **options,
        )
        assert self._popen.stdin is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError):  # dead already, which wait_for sees
            self._popen.stdin.write(json.dumps(orders).encode() + b"\n")
            self._popen.stdin.flush()

    async def wait_for(self, first: Job[Any]) -> None:
        """Until it has run this job; raises what kept it from doing so."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + START_TIMEOUT_SECONDS
        while True:
            try:
                await first.result(timeout=POLL_SECONDS)
            except ResultTimeout:
                code = self._popen.poll()
                if code is not None:
                    raise StoreError(
                        f"the benchmark's worker ended with code {code}: {self._log_tail()}"
                    ) from None
                if loop.time() > deadline:
                    raise StoreError(
                        f"the benchmark's worker ran no job within {START_TIMEOUT_SECONDS:g} s: "
                        f"{self._log_tail()}"
                    ) from None
            else:
                return

    def _log_tail(self) -> str:
        self._log_file.seek(0)
        lines = self._log_file.read()[-4000:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def stop(self) -> None:
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()
        try:
            self._popen.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._log_file.close()


def main() -> None:
    """Read the orders, work until called off."""
    orders = read_instructions()
    if orders is not None:
        asyncio.run(_work(orders))


async def _work(orders: dict[str, Any]) -> None:
    bench = make_bench_app(orders["url"], orders["poll_interval"])
    async with bench.app as app:
        worker = app.worker(topics=[orders["topic"]], handle_signals=False)
        call_when_parent_exits(lambda: worker.stop(now=True))
        await worker.run()
