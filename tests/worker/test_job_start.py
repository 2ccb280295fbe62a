"""When a job began: one time, from the first look to the last."""

from __future__ import annotations

import asyncio

from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tidewheel import Context, Retry, Tidewheel


async def test_a_running_job_with_progress_has_begun(app: Tidewheel) -> None:
    """A first report makes a claimed job a running one, whose start is not after the report."""
    reported, finish = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow(ctx: Context) -> None:
        await ctx.progress(33)
        reported.set()
        await finish.wait()

    job = await slow.enqueue()
    async with working(app):
        await reported.wait()
        await job.refresh()
        began, progress = job.record.started_at, job.record.progress
        assert job.record.shown_state(app.clock.now()) == "running"
        assert began is not None
        assert progress is not None
        assert job.record.claimed_at is not None
        assert job.record.claimed_at <= began <= progress.updated_at
        finish.set()
        await job.result(timeout=PATIENCE)
    await job.refresh()
    assert job.record.started_at == began


async def test_the_start_of_a_job_does_not_move(app: Tidewheel) -> None:
    """It is recorded while the handler runs, which takes a moment; the end of the run leaves it alone."""
    finish = asyncio.Event()

    @app.task(retry=Retry.fixed(0))
    async def slow(ctx: Context) -> None:
        await finish.wait()
        if ctx.attempt == 1:
            raise ValueError("again")

    job = await slow.enqueue()

    async def recorded() -> bool:
        await job.refresh()
        return job.record.started_at is not None

    async with working(app):
        await until(recorded)
        began = job.record.started_at
        finish.set()
        await job.result(timeout=PATIENCE)
    await job.refresh()
    [first] = job.record.attempts
    assert first.started_at == began
    starts = [entry for entry in job.timeline if entry.what == "started"]
    assert [entry.attempt for entry in starts] == [1, 2]
