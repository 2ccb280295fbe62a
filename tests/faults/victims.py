"""Handlers that misbehave, run by a worker in a process of its own.

``python -m tests.faults.victims`` with TIDEWHEEL_URL, TIDEWHEEL_LEASE and EVENTS set; NAME names the worker.
What they do is logged as the victims of ``tests/worker`` log it, with whatever else a test wants to know.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tidewheel import Context, Tidewheel
from tidewheel.core.model import Completed, NewStep, Progress, Report, Settlement

app = Tidewheel()
T = TypeVar("T")

_events = (
    os.open(os.environ["EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if "EVENTS" in os.environ else -1
)
_loop: asyncio.AbstractEventLoop | None = None
_leaked: list[Any] = []


def log(event: str, ctx: Context, **more: Any) -> None:
    line = {
        "event": event,
        "job": str(ctx.job.id),
        "fence": ctx.fence,
        "attempt": ctx.attempt,
        "pid": os.getpid(),
        "at": time.monotonic(),
        **more,
    }
    os.write(_events, json.dumps(line).encode() + b"\n")


def run_number(ctx: Context) -> int:
    """Return how often this job has been started; its attempt does not tell, because few losses count."""
    runs = os.open(f"{os.environ['EVENTS']}.{ctx.job.id}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(runs, b"x")
        return os.fstat(runs).st_size
    finally:
        os.close(runs)


def _ask(call: Coroutine[Any, Any, T]) -> T:
    """An answer of the worker's own store, from a handler's thread."""
    assert _loop is not None
    return asyncio.run_coroutine_threadsafe(call, _loop).result(20)


@app.task(max_attempts=20)
def insists(ctx: Context, gate: str) -> int:
    """The first run stands still until the gate opens, then tries to write whatever a run can write."""
    log("start", ctx)
    number = run_number(ctx)
    if number == 1:
        while not Path(gate).exists():
            time.sleep(0.005)
        store, lease = app.store, ctx.lease
        step = NewStep("the old run", b"1", 0.0)
        report = Report(lease, Progress(99.0, "the old run"), b'"the old run"', step)
        accepted = {
            "report": _ask(store.report([report])),
            "extend": _ask(store.extend([lease], 60.0)),
            "settle": _ask(store.settle([Settlement(lease, Completed(b"1"), 0.0)])),
        }
        log("insisted", ctx, accepted={verb: answer[0] for verb, answer in accepted.items()})
    log("end", ctx)
    return number


@app.task(max_attempts=20)
async def killed_after_effect(ctx: Context) -> int:
    """Its effect has happened, its settlement will not: the first run kills its process in between."""
    log("start", ctx)
    log("effect", ctx)
    number = run_number(ctx)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def hold_the_interpreter(seconds: float) -> None:
    """One call into C that lets no other thread run until it is done, as a bad regular expression does.

    A real one takes as long as the machine is busy, so how long it holds cannot be told beforehand.
    """
    ctypes.PyDLL(None).poll(None, 0, round(1000 * seconds))  # PyDLL: the lock is not given away


def _hold(ctx: Context, seconds: float) -> int:
    """Only the first run does."""
    log("start", ctx)
    number = run_number(ctx)
    if number == 1:
        hold_the_interpreter(seconds)
    log("end", ctx)
    return number


@app.task(max_attempts=20)
async def holds_on_the_loop(ctx: Context, seconds: float) -> int:
    return _hold(ctx, seconds)


@app.task(max_attempts=20)
def holds_on_a_thread(ctx: Context, seconds: float) -> int:
    return _hold(ctx, seconds)


@app.task(max_attempts=20, isolation="process")
def holds_in_a_process(ctx: Context, seconds: float) -> int:
    return _hold(ctx, seconds)


@app.task(max_attempts=1)
def leaks(ctx: Context, what: str) -> str:
    """Starts or opens something and never looks after it again."""
    log("start", ctx)
    match what:
        case "threads":
            for _ in range(50):
                threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        case "children":
            # Without our stdout: whoever reads that to its end would wait for them.
            _leaked.extend(
                subprocess.Popen(["/bin/sleep", "3600"], stdout=subprocess.DEVNULL) for _ in range(5)
            )
            log("children", ctx, children=[child.pid for child in _leaked])
        case "descriptors":
            while True:
                _leaked.append(os.open("/dev/null", os.O_RDONLY))  # until there is none left
    return what


def _fork(ctx: Context, how: str) -> int:
    """The child goes on as if it were the worker; the parent answers with how the child ended."""
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # whoever reads our stdout must not wait for the child
        log("child", ctx)
        if how == "exit":
            sys.exit(7)
        return -1
    log("start", ctx)
    return child


@app.task(max_attempts=3)
async def forks_on_the_loop(ctx: Context, how: str) -> int:
    if (child := _fork(ctx, how)) < 0:
        if how == "await":
            await asyncio.sleep(0.05)  # among the events of its parent
        return 0
    return os.waitstatus_to_exitcode(await asyncio.to_thread(lambda: os.waitpid(child, 0)[1]))


@app.task(max_attempts=3)
def forks_on_a_thread(ctx: Context, how: str) -> int:
    if (child := _fork(ctx, how)) < 0:
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@app.task(max_attempts=3)
async def enqueues(ctx: Context, delay: float, seconds: float) -> str:
    """Answers with the job it enqueued, and says what time it believes it is."""
    log("start", ctx, now=time.time())
    await asyncio.sleep(seconds)
    job = await app.enqueue("work", delay=delay)
    return str(job.id)


@app.task(max_attempts=20)
async def work(ctx: Context, seconds: float = 0.0) -> None:
    log("start", ctx)
    await asyncio.sleep(seconds)
    log("end", ctx)


async def main() -> None:
    global _loop
    _loop = asyncio.get_running_loop()
    async with app:
        slots = int(os.environ.get("SLOTS", "10"))
        worker = app.worker(concurrency=slots, name=os.environ.get("NAME"))
        print("ready", flush=True)
        await worker.run()
        print(json.dumps({"released": worker.tally.released, "lost": worker.tally.lost}), flush=True)


if __name__ == "__main__":
    # Handlers log through this module's own descriptors, whichever name it was loaded under.
    asyncio.run(main())
    sys.exit(0)
