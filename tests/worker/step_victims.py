"""The program that is killed in and between the steps of its jobs: ``python -m tests.worker.step_victims``.

A job is told at which points to stand still, one after another, each in another run. It says so in the log of
events, and whoever reads that kills the worker there.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

from tidewheel import Context, Tidewheel

POINTS = ("in 1", "after 1", "in 2", "after 2", "in 3", "after 3")
"""Inside a step, when it has done its work, and behind it, when its output is in the handler's hands."""

app = Tidewheel()


def log(event: str, ctx: Context, **more: Any) -> None:
    line = {"event": event, "job": str(ctx.job.id), "fence": ctx.fence, "at": time.monotonic(), **more}
    events = os.open(os.environ["EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(events, json.dumps(line).encode() + b"\n")
    os.close(events)


def stood_still(ctx: Context) -> int:
    """How often this job has come to a point where it was to stop."""
    path = Path(os.environ["EVENTS"])
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(json.loads(line)["event"] == "stands" and str(ctx.job.id) in line for line in lines)


@app.task(max_attempts=20)
async def three_steps(ctx: Context, points: list[str]) -> list[dict[str, Any]]:
    met = stood_still(ctx)
    stop_at = points[met] if met < len(points) else None

    async def reach(point: str) -> None:
        if point == stop_at:
            log("stands", ctx, point=point)
            await asyncio.Event().wait()

    async def step(number: int, before: dict[str, Any] | None) -> dict[str, Any]:
        log("ran", ctx, step=number)
        await reach(f"in {number}")
        return {"step": number, "fence": ctx.fence, "after": before and before["fence"]}

    outputs: list[dict[str, Any]] = []
    for number in (1, 2, 3):
        output = await ctx.step(f"step {number}", step, number, outputs[-1] if outputs else None)
        log("has", ctx, step=number, output=output)
        outputs.append(output)
        await reach(f"after {number}")
    return outputs


async def main() -> None:
    async with app:
        worker = app.worker(concurrency=4 * len(POINTS))  # suspects share it with fewer others
        print("ready", flush=True)
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
