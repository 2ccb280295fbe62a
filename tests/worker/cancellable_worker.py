"""Jobs that are cancelled while they run; ``python -m tests.worker.cancellable_worker`` is a worker of them.

TIDEWHEEL_URL says where. Each handler reports progress when it has begun, and never ends by itself.
"""

from __future__ import annotations

import asyncio
import threading
import time

from tests.patience import PATIENCE
from tidewheel import Context, Tidewheel

app = Tidewheel()

NAMES = ("waits", "looks", "ignores", "isolated")


@app.task(max_attempts=1)
async def waits(ctx: Context) -> None:
    """An async handler: a cancellation reaches whatever it awaits."""
    await ctx.progress(1)
    await asyncio.sleep(3600)


@app.task(max_attempts=1)
def looks(ctx: Context) -> None:
    """A plain function that looks now and then whether it should end."""
    ctx.sync.progress(1)
    while not ctx.cancelled:
        time.sleep(0.01)


@app.task(max_attempts=1)
def ignores(ctx: Context) -> None:
    """A plain function that does not look: its job ends all the same, and its slot when it does."""
    ctx.sync.progress(1)
    threading.Event().wait(PATIENCE)


@app.task(max_attempts=1, isolation="process")
def isolated(ctx: Context) -> None:
    """In a process of its own, which looks."""
    ctx.sync.progress(1)
    while not ctx.cancelled:
        time.sleep(0.01)


async def main() -> None:
    async with app:
        worker = app.worker(concurrency=50)
        print("ready", flush=True)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
