"""The program that gets killed: tasks that log what they do, run by a worker in a process of its own.

``python -m tests.worker.victims`` with TIDEWHEEL_URL, TIDEWHEEL_LEASE and EVENTS set.
Every event is one line, written with one ``write`` to a file opened for appending, stamped with the monotonic
clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import sys
import time

from tidewheel import Context, Tidewheel
from tidewheel.core.model import ClaimRequest, Lane

app = Tidewheel()

_events = (
    os.open(os.environ["EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT) if "EVENTS" in os.environ else -1
)


def log(event: str, ctx: Context) -> None:
    line = {
        "event": event,
        "job": str(ctx.job.id),
        "fence": ctx.fence,
        "attempt": ctx.attempt,
        "pid": os.getpid(),
        "at": time.monotonic(),
    }
    os.write(_events, json.dumps(line).encode() + b"\n")


@app.task(max_attempts=20)
async def work(ctx: Context, shortest: float = 0.005, longest: float = 0.020) -> None:
    log("start", ctx)
    await asyncio.sleep(random.uniform(shortest, longest))
    log("end", ctx)


@app.task(max_attempts=20)
async def endless(ctx: Context) -> None:
    log("start", ctx)
    while not ctx.shutting_down:
        await asyncio.sleep(0.01)
    log("shutdown", ctx)
    await asyncio.sleep(3600)


@app.task(max_attempts=20)
async def slow(ctx: Context, seconds: float) -> None:
    log("start", ctx)
    await asyncio.sleep(seconds)
    log("end", ctx)


@app.task(max_attempts=3)
async def poison(ctx: Context, how: str) -> None:
    log("start", ctx)
    if how == "exit":
        os._exit(13)
    ctypes.string_at(0)  # a segmentation fault


@app.task(batch=20)
async def poisoned(items: list[dict[str, bool]]) -> None:
    """A batch with one job in it that kills whoever runs it."""
    if any(item["deadly"] for item in items):
        os._exit(13)


@app.task(max_attempts=20)
async def rude(ctx: Context, seconds: float) -> None:
    """Blocks the event loop."""
    log("start", ctx)
    time.sleep(seconds)
    log("end", ctx)


@app.task(max_attempts=20)
def forks(ctx: Context) -> str:
    """Uses the parent's app in a forked child, which cannot work and must say so."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            request = ClaimRequest("child", (Lane("forks", "forks"),), limit=1, lease_seconds=60)
            asyncio.run(app.store_of_parent.claim(request))  # type: ignore[attr-defined]
            answer = "no error"
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


async def main() -> None:
    async with app:
        app.store_of_parent = app.store  # type: ignore[attr-defined]
        worker = app.worker(concurrency=int(os.environ.get("SLOTS", "10")))
        print("ready", flush=True)
        await worker.run()
        print(json.dumps({"released": worker.tally.released, "lost": worker.tally.lost}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
    sys.exit(0)
