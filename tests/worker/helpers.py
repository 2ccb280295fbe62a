"""A worker beside the test, on the same event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.patience import PATIENCE
from tidewheel import Job, Tidewheel
from tidewheel.core.model import Lease, Released, Settlement
from tidewheel.worker import Worker


@asynccontextmanager
async def working(app: Tidewheel, **options: Any) -> AsyncIterator[Worker]:
    """A worker that runs while the block does, and is stopped at its end."""
    worker = app.worker(handle_signals=False, **options)
    run = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(run, PATIENCE)


async def until(condition: Callable[[], bool | Awaitable[bool]], *, patience: float = PATIENCE) -> None:
    """Wait for something that has no signal of its own."""
    async with asyncio.timeout(patience):
        while True:
            answer = condition()
            if not isinstance(answer, bool):
                answer = await answer
            if answer:
                return
            await asyncio.sleep(0.005)


async def run(app: Tidewheel, job: Job[Any]) -> Job[Any]:
    """Everything that is due, and then the job as it is."""
    await app.run_until_idle(handle_signals=False)
    return await job.refresh()


async def take_away(app: Tidewheel, job: Job[Any]) -> None:
    """Give a running job back behind its worker's back, as an operator with a database shell would."""
    record = await app.store.get(job.id)
    assert record is not None
    assert await app.store.settle([Settlement(Lease(job.id, record.fence), Released(600))]) == [True]


async def state_is(job: Job[Any], state: str) -> bool:
    await job.refresh()
    return job.state == state
