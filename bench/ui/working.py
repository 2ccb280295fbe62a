"""``python -m bench.ui.working URL RATE``: so many jobs a second come and are run, until it is stopped."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from tidewheel import Tidewheel

TURNS: Final = 10
"""A second's jobs come in so many parts."""
FAIL_EVERY: Final = 50

app = Tidewheel(sys.argv[1] if len(sys.argv) > 1 else None)


@app.task(topic="live", max_attempts=1, retention=60)
async def live_work(number: int) -> int:
    """Takes a few milliseconds; now and then it fails."""
    await asyncio.sleep(0.005)
    if number % FAIL_EVERY == 0:
        raise ValueError(f"number {number} is not liked")
    return number


async def main(rate: int) -> None:
    async with app:
        worker = app.worker(name="bench-live", concurrency=50)
        running = asyncio.create_task(worker.run())
        began, number = time.monotonic(), 0
        while not running.done():
            due = int((time.monotonic() - began) * rate)
            if due > number:
                await live_work.enqueue_many([{"number": one} for one in range(number, due)])
                number = due
            await asyncio.sleep(1 / TURNS)
        await running


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[2])))
