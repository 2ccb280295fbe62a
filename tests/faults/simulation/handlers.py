"""What the jobs of a simulation do when they run. Each does what its payload says."""

from __future__ import annotations

import asyncio
from functools import cache

from tests.faults.simulation.process import here
from tidewheel import Cancel, Context, Fail, RetryAfter, Snooze, Tidewheel
from tidewheel.core.retry import Retry
from tidewheel.tasks.registry import Registry
from tidewheel.verification.history import FaultInjected, HandlerEnded, HandlerStarted

TASKS = ("alpha", "beta", "gamma")


class Mishap(Exception):
    """What a failing handler raises."""


async def act(ctx: Context, plan: str, seconds: float) -> None:
    """Do it, and write down when it began and how it ended."""
    process, job_id, fence = here(), ctx.job.id, ctx.fence
    process.write(HandlerStarted(at=process.now(), process=process.name, id=job_id, fence=fence))
    well = False
    try:
        await _follow(ctx, plan, seconds)
        well = True
    finally:
        process.write(
            HandlerEnded(at=process.now(), process=process.name, id=job_id, fence=fence, succeeded=well)
        )


async def _follow(ctx: Context, plan: str, seconds: float) -> None:
    process = here()
    match plan:
        case "work":
            await asyncio.sleep(seconds)
        case "at once":
            pass
        case "block":
            process.write(FaultInjected(at=process.now(), process=process.name, kind="blocks"))
            await process.main.block(seconds)
        case "ignore":
            await _ignore_cancellation(seconds)
        case "kill":
            await asyncio.sleep(seconds)
            process.write(FaultInjected(at=process.now(), process=process.name, kind="killed by its job"))
            process.kill()
            await asyncio.Event().wait()  # not one more instruction
        case "err":
            await asyncio.sleep(seconds)
            raise Mishap("as planned")
        case "err once":
            if ctx.attempt == 1:
                raise RetryAfter(seconds)
        case "snooze":
            # Not for ever: what it was told to do once, the attempt number cannot tell.
            if not ctx.checkpoint:
                await ctx.checkpoint({"snoozed": True})
                raise Snooze(seconds)
        case "give up":
            raise Fail("as planned")
        case "cancel":
            raise Cancel("as planned")
        case "report":
            await ctx.progress(50)
            await asyncio.sleep(seconds)
        case "steps":
            for name in ("one", "two", "three"):
                await _step(ctx, name, seconds)
        case "release":
            while not ctx.shutting_down and seconds > 0:
                await asyncio.sleep(0.25)
                seconds -= 0.25
            if ctx.shutting_down:
                ctx.release()
        case _:
            raise AssertionError(plan)


async def _step(ctx: Context, name: str, seconds: float) -> None:
    """Once a run has got a step's output, no later run does it again or gets another one."""
    process, step = here(), (ctx.job.id, name)

    async def work() -> int:
        # A run that has been overtaken and does not know it yet may: its output will be refused.
        if process.finished.get(step, ctx.fence + 1) <= ctx.fence:
            process.report(
                f"step {name} of {ctx.job.id} was finished, and runs again under fence {ctx.fence}"
            )
        await asyncio.sleep(seconds)
        return ctx.fence

    fence = await ctx.step(name, work)
    if process.finished.setdefault(step, fence) != fence:
        process.report(f"step {name} of {ctx.job.id} has the output of fence {fence}, and had another")


async def _ignore_cancellation(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while (left := ends - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue


@cache
def registry() -> Registry:
    """The tasks every simulated worker knows."""
    app = Tidewheel("memory://")
    for name in TASKS:
        app.task(name=name, retry=Retry.fixed(0.4))(act)
    return app.registry
