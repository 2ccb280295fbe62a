"""Busy slots and running jobs are one figure, wherever they are shown."""

from __future__ import annotations

from typing import Any

from tidewheel import Tidewheel
from tidewheel.admin.worker_info import MAX_COUNTED_JOBS, WorkerInfo
from tidewheel.core.model import ClaimRequest, Lane, WorkerRecord


async def beat(app: Tidewheel, name: str, concurrency: int, **figures: Any) -> None:
    await app.store.heartbeat(
        WorkerRecord(
            name=name, host="box", pid=1, version="0", started_at=1, concurrency=concurrency, **figures
        )
    )


async def claim(app: Tidewheel, worker: str, number: int) -> None:
    assert len((await app.store.claim(ClaimRequest(worker, (Lane("mail"),), number, 60))).jobs) == number


async def by_name(app: Tidewheel) -> dict[str, WorkerInfo]:
    return {worker.name: worker for worker in await app.workers()}


async def test_busy_slots_agree_with_running_jobs(app: Tidewheel) -> None:
    """A worker that claimed after it last told about itself; what is beyond its slots is claimed ahead."""
    await app.enqueue_many("mail", [{}] * 10)
    await beat(app, "ada", 2)
    await beat(app, "bob", 6, running=5, claimed=4)
    await beat(app, "cleo", 4, running=4)
    await claim(app, "ada", 5)
    await claim(app, "bob", 3)
    found = await by_name(app)
    assert {name: (worker.running, worker.claimed) for name, worker in found.items()} == {
        "ada": (2, 3),
        "bob": (3, 0),
        "cleo": (0, 0),
    }
    held = sum(worker.running + worker.claimed for worker in found.values())
    assert held == (await app.stats()).running == (await app.questions.outstanding()).running


async def test_of_very_many_running_jobs_workers_tell_themselves(app: Tidewheel) -> None:
    """Counting them for each look would cost too much."""
    await app.enqueue_many("mail", [{}] * (MAX_COUNTED_JOBS + 1))
    await beat(app, "ada", 2, running=1, claimed=900)
    await claim(app, "ada", MAX_COUNTED_JOBS + 1)
    ada = (await by_name(app))["ada"]
    assert (ada.running, ada.claimed) == (1, 900)
