"""The work that is done while everything goes wrong: one kind of task, whose payload says how it behaves."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from enum import StrEnum
from typing import Any, Final

from tidewheel.app import Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.core.jitter import jitter
from tidewheel.core.model import NewJob
from tidewheel.core.payload import encode
from tidewheel.core.retry import Retry
from tidewheel.errors import Snooze
from tidewheel.settings import SETTINGS
from tidewheel.tasks.context import Context
from tidewheel.verification.history import HandlerEnded, HandlerStarted, ProcessEnded, Recorder

TOPICS: Final = ("verify-a", "verify-b")
TENANTS: Final = ("root", "acme", "globex")
MAX_ATTEMPTS: Final = 4
DEFAULTS: Final[Mapping[str, Any]] = {
    name: setting.default for name, setting in SETTINGS.items() if name != "url"
}


class HandlerBehavior(StrEnum):
    """How a handler behaves."""

    QUICK = "quick"
    SLOW = "slow"  # longer than a lease, which must be extended
    FAILING = "failing"  # once, then well
    HOPELESS = "hopeless"  # every time
    SNOOZING = "snoozing"  # once, uncounted, then well
    BLOCKING = "blocking"  # holds up the event loop for three leases, the first time
    DEADLY = "deadly"  # takes its worker with it, the first time


BEHAVIOR_SHARES: Final = {
    HandlerBehavior.QUICK: 0.92,
    HandlerBehavior.SLOW: 0.02,
    HandlerBehavior.FAILING: 0.03,
    HandlerBehavior.HOPELESS: 0.01,
    HandlerBehavior.SNOOZING: 0.018,
    HandlerBehavior.BLOCKING: 0.001,
    HandlerBehavior.DEADLY: 0.001,
}
"""Of the jobs. The last two are rare: for each a worker stands still, or has to be started anew."""


def make_workload_app(
    url: str, *, lease: float, concurrency: int = 10, recorder: Recorder | None = None, spared: bool = False
) -> Tidewheel:
    """The same app in every process, with the defaults. Its handlers tell ``recorder`` what they do.

    In a process that is ``spared`` no job blocks or kills.
    """
    # Nobody is to look at the books before the end.
    changes = {"lease": lease, "concurrency": concurrency, "shutdown_grace": lease, "check_on_start": False}
    app = Tidewheel(url, **{**DEFAULTS, **changes})
    for topic in TOPICS:
        task = app.task(name=topic, topic=topic, max_attempts=MAX_ATTEMPTS, retry=Retry.fixed(0.2))
        task(_handler(recorder, lease, spared=spared))
    return app


def _handler(
    recorder: Recorder | None, lease: float, *, spared: bool
) -> Callable[..., Coroutine[Any, Any, None]]:
    async def work(ctx: Context, behavior: HandlerBehavior) -> None:
        if recorder is None:
            return
        job_id, fence = ctx.job.id, ctx.fence
        recorder.write(HandlerStarted(at=recorder.now(), process=recorder.name, id=job_id, fence=fence))
        well = False
        try:
            harmful = behavior in {HandlerBehavior.BLOCKING, HandlerBehavior.DEADLY}
            await _behave(HandlerBehavior.QUICK if spared and harmful else behavior, ctx, lease, recorder)
            well = True
        finally:
            recorder.write(
                HandlerEnded(at=recorder.now(), process=recorder.name, id=job_id, fence=fence, succeeded=well)
            )

    return work


async def _behave(behavior: HandlerBehavior, ctx: Context, lease: float, recorder: Recorder) -> None:
    await asyncio.sleep(jitter(0.0, 0.02))
    match behavior:
        case HandlerBehavior.SLOW:
            await asyncio.sleep(1.5 * lease)
        case HandlerBehavior.FAILING if ctx.attempt == 1:
            raise RuntimeError("fails once")
        case HandlerBehavior.HOPELESS:
            raise RuntimeError("fails every time")
        case HandlerBehavior.SNOOZING if ctx.checkpoint.value is None:
            await ctx.checkpoint("snoozed")
            raise Snooze(0.3)
        case HandlerBehavior.BLOCKING if ctx.attempt == 1:
            time.sleep(3 * lease)  # noqa: ASYNC251 - which is what it is for
        case HandlerBehavior.DEADLY if ctx.attempt == 1:
            recorder.write(ProcessEnded(at=recorder.now(), process=recorder.name))
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        case _:
            return


def make_job(choose: random.Random, *, key: str | None = None) -> NewJob:
    """A job as it comes: mostly quick ones, of all tenants and priorities, a few for later."""
    [behavior] = choose.choices(list(BEHAVIOR_SHARES), weights=list(BEHAVIOR_SHARES.values()))
    topic = choose.choice(TOPICS)
    return NewJob(
        id=new_id(),
        topic=topic,
        task=topic,
        payload=encode({"behavior": behavior}, limit=1000),
        tenant=choose.choice(TENANTS),
        priority=choose.choice((0, 0, 0, 100, -5)),
        delay=choose.uniform(0.1, 1.0) if choose.random() < 0.05 else 0.0,
        max_attempts=MAX_ATTEMPTS,
        timeout=None,
        key=key,
    )
