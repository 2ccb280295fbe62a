"""The clock by which leases and delays are measured is stepped while jobs wait and run."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from tests.faults.clock_steps import (
    HOUR,
    ServerClock,
    SteppingClock,
    StoreClock,
    faketime_environment,
    faketime_library,
    server_with_clock,
)
from tests.faults.sites import starts_recorded
from tests.patience import PATIENCE
from tests.servers import PostgresServer
from tests.servers.shared import empty_url, fresh_schema
from tests.worker.helpers import state_is, until, working
from tests.worker.worker_processes import Site, stop
from tidewheel import Context, Tidewheel
from tidewheel.access.audit_log import AuditLine
from tidewheel.admin.reports.answers import FindingKind
from tidewheel.core.model import ClaimRequest, Lane, State

LEASE = 2.0
linux = pytest.mark.skipif(sys.platform != "linux", reason="libfaketime as fetched here is Linux's")


@pytest.fixture(scope="module")
def faked() -> Iterator[tuple[PostgresServer, ServerClock]]:
    with server_with_clock() as both:
        yield both


@dataclass
class Scene:
    """An app, the clock of its store, and how often each handler began and ended."""

    app: Tidewheel
    clock: StoreClock
    runs: Counter[str]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=linux)])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    clock: StoreClock
    if request.param == "postgres":
        server, clock = request.getfixturevalue("faked")
        clock.step(0.0)
        app = Tidewheel(server.url(schema=fresh_schema()), lease=LEASE, poll_interval=0.1)
    else:
        clock = SteppingClock()
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
        app = Tidewheel(url, lease=LEASE, poll_interval=0.1, clock=clock)
    runs: Counter[str] = Counter()

    @app.task(max_attempts=5)
    async def work(ctx: Context, name: str, seconds: float = 0.0) -> int:
        runs[f"{name} began"] += 1
        await asyncio.sleep(seconds)
        runs[f"{name} ended"] += 1
        return ctx.attempt

    async with app:
        yield Scene(app, clock, runs)


async def test_a_clock_that_steps_back_makes_things_late_and_nothing_else(scene: Scene) -> None:
    """Running jobs keep their leases, due ones run; delayed and orphaned ones wait for their time again."""
    app = scene.app
    orphan = await app.enqueue("work", {"name": "orphan"}, topic="orphans")
    dead = ClaimRequest("dead", (Lane("orphans", "work"),), limit=1, lease_seconds=LEASE)
    assert len((await app.store.claim(dead)).jobs) == 1
    delayed = await app.enqueue("work", {"name": "delayed"}, delay=1.0)
    running = await app.enqueue("work", {"name": "running", "seconds": 1.25 * LEASE})
    async with working(app, topics=["work", "orphans"]) as worker:
        await until(lambda: scene.runs["running began"] == 1)
        scene.clock.step(-HOUR)
        later = await app.enqueue("work", {"name": "later"})
        assert await later.result(timeout=PATIENCE) == 1
        assert await running.result(timeout=PATIENCE) == 1  # extended again and again, by the clock as it is
        # An hour late, both; they are in sight, and nothing is wrong with them.
        assert (scene.runs["delayed began"], scene.runs["orphan began"]) == (0, 0)
        assert await state_is(delayed, "pending")
        assert await state_is(orphan, "running")
        scene.clock.step(0.0)
        assert await delayed.result(timeout=PATIENCE) == 1
        assert await orphan.result(timeout=PATIENCE) in (1, 2)
        assert worker.tally.lost == 0
    assert set(scene.runs.values()) == {1}
    assert (await app.stats()).completed == 4
    assert await app.check() == []


async def test_a_clock_that_steps_forward_ends_leases_and_late_writers_are_kept_out(scene: Scene) -> None:
    """Each running job is taken away and run once more; one settlement of each is accepted."""
    app = scene.app
    running = [await app.enqueue("work", {"name": f"{n}", "seconds": 1.5}) for n in range(3)]
    delayed = await app.enqueue("work", {"name": "delayed"}, delay=HOUR / 2)
    async with working(app) as worker:
        await starts_recorded(running)
        scene.clock.step(HOUR)
        assert [await job.result(timeout=PATIENCE) for job in running] == [1] * 3
        assert await delayed.result(timeout=PATIENCE) == 1  # its time has come, by this clock
        await until(lambda: worker.tally.lost == 3)
        assert worker.tally.completed == 4
    for job in running:
        await job.refresh()
        assert job.attempts == (), "a lost run counts only if nothing else ran in its worker"
    assert (await app.stats()).completed == 4
    assert await app.check() == []


async def _are_up(app: Tidewheel, number: int) -> None:
    """Until so many workers are there: on a busy machine one may start seconds after the other."""

    async def listed() -> bool:
        return len(await app.workers()) == number

    await until(listed)


@linux
async def test_a_host_that_slept_two_hours_loses_its_leases_and_no_job(
    faked: tuple[PostgresServer, ServerClock], tmp_path: Path
) -> None:
    """Asleep, a worker's own clock stands still: it believes in its lease, and the store does not."""
    server, clock = faked
    clock.step(0.0)
    url = server.url(schema=fresh_schema())
    site = Site(tmp_path, store_url=url, program="tests.faults.victims")
    async with Tidewheel(url) as app:
        with site.workers(2) as workers:
            await _are_up(app, 2)
            jobs = await app.enqueue_many("work", [{"seconds": 2.0}] * 4)
            await starts_recorded(jobs)
            for process in workers:
                process.send_signal(signal.SIGSTOP)
            clock.step(2 * HOUR)
            for process in workers:
                process.send_signal(signal.SIGCONT)
            for job in jobs:
                await job.result(timeout=PATIENCE)
            said = [stop(process) for process in workers]
        assert [code for code, _ in said] == [0, 0]
        for job in jobs:
            await job.refresh()
            assert (job.state, job.attempt) == ("completed", 1)
        assert (await app.stats()).completed == 4
        assert await app.check() == []


@linux
async def test_the_clocks_of_workers_do_not_matter(tmp_path: Path) -> None:
    """One is a day ahead, one a day behind: delays, leases and stored times are those of the server."""
    ahead, behind = (faketime_environment(faketime_library(), FAKETIME=offset) for offset in ("+1d", "-1d"))
    site = Site(tmp_path, store_url=empty_url(), program="tests.faults.victims")
    async with Tidewheel(site.url) as app:
        before = time.time()
        with site.workers(1, **ahead, SLOTS="1"), site.workers(1, **behind, SLOTS="1"):
            await _are_up(app, 2)
            # Each runs one at a time, so each gets one of the first two, and has to extend it.
            first = await app.enqueue_many("enqueues", [{"delay": 1.0, "seconds": 1.1 * site.lease}] * 2)
            second = [await app.get(await job.result(timeout=PATIENCE)) for job in first]
            for job in second:
                await job.result(timeout=PATIENCE)
        believed = [event["now"] - time.time() for event in site.events() if "now" in event]
        assert max(believed) > 23 * HOUR, "one did have a clock ahead"
        assert min(believed) < -23 * HOUR, "and one a clock behind"
        for job in (*first, *second):
            await job.refresh()
            assert (job.state, job.attempt) == ("completed", 1)
            for moment in (job.created_at, job.run_at, job.started_at, job.finished_at):
                assert moment is not None
                assert before - 1 < moment.timestamp() < time.time() + 1
        for job in second:
            assert 0.9 < (job.run_at - job.created_at).total_seconds() < 1.1
            assert job.started_at is not None
            assert job.started_at >= job.run_at


@pytest.fixture
def quick_maintenance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prune every 50 ms in apps that are opened afterwards."""
    monkeypatch.setattr("tidewheel.worker.store_maintenance.STORE_MAINTENANCE_SECONDS", 0.05)


async def test_a_clock_that_jumps_ahead_for_a_while_prunes_nothing(
    quick_maintenance: None, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker prunes and claims all the while: history, audit lines and jobs that expire stay, and
    attention is called to it. Once it is over, pruning goes on.
    """
    app, clock = scene.app, scene.clock
    monkeypatch.setattr("tidewheel.worker.heartbeat.HEARTBEAT_SECONDS", 0.2)
    prunes = 0
    prune = app.store.prune

    async def counted(limit: int) -> dict[State, int]:
        nonlocal prunes
        pruned = await prune(limit)
        prunes += 1
        return pruned

    async def pruned_twice() -> None:
        before = prunes
        await until(lambda: prunes >= before + 2)

    async def is_told() -> bool:
        found = (await app.questions.attention()).findings
        return any(finding.kind is FindingKind.CLOCK_STEP for finding in found)

    monkeypatch.setattr(app.store, "prune", counted)
    done = [await app.enqueue("work", {"name": f"{n}"}) for n in range(3)]
    waiting = await app.enqueue("work", {"name": "waiting"}, topic="elsewhere", expires=24 * HOUR)
    await app.access.audit.record(AuditLine("topic.pause", "ada", "session", "mail"))
    async with working(app, topics=["work"]):
        for job in done:
            await job.result(timeout=PATIENCE)
        await pruned_twice()
        clock.step(200 * 24 * HOUR)
        await pruned_twice()
        await until(is_told)
        during = await app.enqueue("work", {"name": "during"})  # jobs are run as ever
        assert await during.result(timeout=PATIENCE) == 1
        clock.step(0.0)
        await pruned_twice()
        for job in (*done, during):
            assert await state_is(job, "completed")
        assert await state_is(waiting, "pending")
        assert len((await app.access.audit.lines()).lines) == 1
        brief = await app.enqueue("work", {"name": "brief"}, retention=0)
        await until(lambda: _is_gone(app, brief.id))


async def _is_gone(app: Tidewheel, job_id: UUID) -> bool:
    return await app.store.states([job_id]) == [None]
