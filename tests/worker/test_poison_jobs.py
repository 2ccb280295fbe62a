"""Jobs that may have killed a worker run with little company; only a job that ran alone loses an attempt."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tests.worker.outages import Switch, SwitchedStore
from tidewheel import Context, Job, Tidewheel
from tidewheel.core.model import Claim, ClaimRequest, Lane
from tidewheel.stores.protocol import Store
from tidewheel.worker import Worker

GRANTED_FOR = 0.2
"""Seconds that a job stays with a worker that is gone."""


async def lose(app: Tidewheel, job: Job[Any], times: int) -> None:
    """Have so many workers die with this job, the only one of its topic, in their hands."""
    request = ClaimRequest("dead worker", (Lane(job.topic),), 1, GRANTED_FOR, reports_starts=True)

    async def claimed() -> bool:
        return len((await app.store.claim(request)).jobs) == 1

    for _ in range(times):
        await until(claimed)


class Scene:
    """Handlers that run until they are told to end, and what ran beside each when it started."""

    def __init__(self, app: Tidewheel) -> None:
        self.running: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.gates: dict[str, asyncio.Event] = {}

        async def handler(name: str) -> None:
            self.beside[name] = set(self.running)
            self.running.add(name)
            await self.gates.setdefault(name, asyncio.Event()).wait()
            self.running.discard(name)

        app.task(name="work", max_attempts=1)(handler)
        app.task(name="suspect", max_attempts=1)(handler)

    def end(self, *names: str) -> None:
        for name in names:
            self.gates.setdefault(name, asyncio.Event()).set()


async def test_a_job_that_lost_two_workers_waits_for_others_and_runs_alone(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing starts beside it, so the death of its worker would be its own fault."""
    monkeypatch.setattr("tidewheel.worker.slot_runner.INITIAL_DRAIN_SECONDS", 60.0)
    scene = Scene(app)
    first = [await app.enqueue("work", {"name": name}) for name in ("a", "b")]
    suspect = await app.enqueue("suspect", {"name": "s"})
    await lose(app, suspect, 2)
    async with working(app, concurrency=4) as worker:
        await until(lambda: scene.running == {"a", "b"} and worker._slots.draining_for is not None)
        later = await app.enqueue("work", {"name": "c"})
        scene.end("a")
        await first[0].result(timeout=PATIENCE)
        assert scene.running == {"b"}
        scene.end("b")
        await until(lambda: scene.running == {"s"})
        record = await app.store.get(suspect.id)
        assert record is not None
        assert record.started_at is not None, "recorded before it began"
        scene.end("s")
        await suspect.result(timeout=PATIENCE)
        await until(lambda: scene.running == {"c"})
        scene.end("c")
        await later.result(timeout=PATIENCE)
    assert (scene.beside["s"], scene.beside["c"]) == (set(), set())


async def test_a_job_that_lost_one_worker_shares_half_of_the_slots(app: Tidewheel) -> None:
    """A power cut makes suspects of many jobs; they still run side by side."""
    scene = Scene(app)
    suspect = await app.enqueue("suspect", {"name": "s"})
    await lose(app, suspect, 1)
    async with working(app, concurrency=4):
        await until(lambda: scene.running == {"s"})
        others = [await app.enqueue("work", {"name": name}) for name in "abc"]
        await until(lambda: len(scene.running) == 2)
        scene.end("s")
        await suspect.result(timeout=PATIENCE)
        await until(lambda: scene.running == {"a", "b", "c"})
        scene.end(*"abc")
        for job in others:
            await job.result(timeout=PATIENCE)


async def test_a_suspect_that_gets_no_room_is_given_back_uncounted(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other jobs go on beside one that runs for hours, and another worker runs the suspect."""
    monkeypatch.setattr("tidewheel.worker.slot_runner.INITIAL_DRAIN_SECONDS", 0.05)
    scene = Scene(app)
    await app.enqueue("work", {"name": "long"})
    suspect = await app.enqueue("suspect", {"name": "s"})
    await lose(app, suspect, 2)
    async with working(app, concurrency=4) as busy:
        await until(lambda: "long" in scene.running and busy.tally.released > 0)
        other = await app.enqueue("work", {"name": "other"})
        scene.end("other")
        await other.result(timeout=PATIENCE)
        assert "s" not in scene.beside
        async with working(app, concurrency=1, topics=["suspect"]):
            scene.end("s")
            await suspect.result(timeout=PATIENCE)
        scene.end("long")
    await suspect.refresh()
    assert (suspect.attempt, suspect.attempts) == (1, ())


class LateStore(SwitchedStore):
    """The first claim that brings a job takes longer than its lease: before the store grants, or after."""

    def __init__(self, inner: Store, seconds: float, *, before: bool) -> None:
        super().__init__(inner, Switch())
        self.late = 0
        self._seconds = seconds
        self._before = before

    async def claim(self, request: ClaimRequest) -> Claim:
        if self._before and not self.late:
            self.late += 1
            await asyncio.sleep(self._seconds)
        claim = await self._inner.claim(request)
        if claim.jobs and not self.late:
            self.late += 1
            await asyncio.sleep(self._seconds)
        return claim


@pytest.mark.parametrize("before", [True, False], ids=["granted_late", "answered_late"])
async def test_a_grant_that_is_heard_of_after_its_lease_is_not_counted(app: Tidewheel, before: bool) -> None:
    """The worker never started the job, so also one with a single attempt is run again."""
    runs: list[int] = []

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        runs.append(ctx.attempt)
        return "done"

    job = await work.enqueue()
    late = LateStore(app.store, 2.2, before=before)
    worker = Worker(cast("Store", late), app.registry, app.settings, lease=2, handle_signals=False)
    run = asyncio.create_task(worker.run())
    try:
        assert await job.result(timeout=PATIENCE) == "done"
    finally:
        worker.stop()
        await run
    await job.refresh()
    assert (late.late, runs, job.attempt, job.attempts) == (1, [1], 1, ())


async def test_a_job_with_one_attempt_loses_it_in_any_company(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not start twice: the death of its worker is its end, whichever job was the cause."""
    scene = Scene(app)
    charged: dict[UUID, bool] = {}
    start = app.store.mark_started

    async def noted(leases: Any, *, alone: bool, **more: Any) -> Any:
        charged.update((lease.job_id, alone) for lease in leases)
        return await start(leases, alone=alone, **more)

    monkeypatch.setattr(app.store, "mark_started", noted)
    await app.enqueue("suspect", {"name": "other"}, max_attempts=2)
    async with working(app, concurrency=5):
        await until(lambda: "other" in scene.running)
        one = await app.enqueue("work", {"name": "one"})
        await until(lambda: "one" in scene.running)
        assert charged == {one.id: True}
        scene.end("one", "other")
