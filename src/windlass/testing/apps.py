"""An app under test: its tasks on a store in memory, by the test's clock, at the test's command."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from windlass.app import Windlass
from windlass.clock import Clock
from windlass.job import Job
from windlass.security import acting_as

LOOK_SECONDS: Final = 0.005
"""How often an inline enqueue looks whether a job that another worker took has ended."""


@asynccontextmanager
async def in_memory(app: Windlass, *, clock: Clock | None = None) -> AsyncIterator[Windlass]:
    """Use this app on an empty store in memory instead of its own, and throw that away afterwards.

    >>> async with in_memory(app):
    ...     await send_digest.enqueue(user_id="42")
    ...     await app.run_until_idle()
    """
    with app.on_store("memory://", clock=clock):
        async with app:
            yield app


@contextmanager
def inline(app: Windlass) -> Iterator[Windlass]:
    """Every enqueue runs its job before it returns, and raises ``JobFailed`` when the job failed for good.

    Everything else is as always: payloads are checked, keys are unique, retries wait for their time. Only
    tasks with ``isolation="process"`` run in this process like others, where mocks and debuggers reach them.
    """
    before = (app.after_enqueue, app.lane.by_hand)

    async def run_at_once(jobs: list[Job[Any]]) -> None:
        with acting_as(None):  # a worker serves all tenants, whoever enqueued
            await app.run_until_idle(handle_signals=False, isolate=False)
        for job in jobs:
            await job.refresh()
            # A job that a handler enqueued may have been taken by the worker that runs this handler. A
            # duplicate may be the very job that waits here.
            while job.state == "running" and not job.duplicate:
                await asyncio.sleep(LOOK_SECONDS)
                await job.refresh()
            if job.state == "failed":
                await job.result(timeout=0)

    app.after_enqueue = run_at_once
    app.lane.run_by_hand(True)
    try:
        yield app
    finally:
        app.after_enqueue = before[0]
        app.lane.run_by_hand(before[1])
