"""Real processes, real signals: what happens to jobs when workers die, freeze or are told to stop."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.servers import DURABLE, PostgresServer
from tests.servers.shared import empty_url
from tests.worker.helpers import until
from tests.worker.kill_run import kill_run
from tests.worker.worker_processes import Site, stop
from tidewheel import Job, Tidewheel
from tidewheel.worker.slots import ALONE_AFTER_LOSSES

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and fork as tested here are POSIX")


@pytest.fixture(params=["sqlite", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    """On every store that several processes can share."""
    return Site(tmp_path, store_url=empty_url() if request.param == "postgres" else None)


@pytest.fixture
async def app(site: Site) -> AsyncIterator[Tidewheel]:
    """A producer that knows no tasks: it enqueues by name."""
    async with Tidewheel(site.url, lease=site.lease) as app:
        yield app


async def test_killed_workers_lose_nothing_and_no_two_run_one_job_at_once(site: Site) -> None:
    """Workers are killed with started and unstarted jobs in their hands; every job completes."""
    books = await kill_run(site, jobs=800, callers=20, workers=2, kills=2)
    assert books.problems == []
    assert books.states == {"completed": 800}
    assert books.kills == 2


async def test_a_crashed_server_loses_nothing_and_no_worker_has_to_be_restarted(tmp_path: Path) -> None:
    """PostgreSQL stopped the hard way in the middle, and a worker killed: every accepted job completes."""
    with PostgresServer(settings=DURABLE) as server:
        site = Site(tmp_path, store_url=server.url())
        books = await kill_run(
            site,
            jobs=800,
            callers=20,
            workers=2,
            kills=1,
            server=server,
            restarts=1,
            outage=0.2,
            longest=0.05,
        )
    assert books.problems == []
    assert books.states == {"completed": books.states.total()}
    assert (books.kills, books.restarts) == (1, 1)


async def test_a_frozen_worker_loses_its_job_and_cannot_settle_it(site: Site, app: Tidewheel) -> None:
    """SIGSTOP past the lease, SIGCONT: its settlement is refused, the newer run's counts."""
    job = await app.enqueue("slow", {"seconds": 1.0})
    with site.workers(1) as [frozen]:
        site.wait_for("start")
        site.freeze(frozen)
        with site.workers(1):
            site.wait_for("start", number=2)
            frozen.send_signal(signal.SIGCONT)
            await job.result(timeout=PATIENCE)
        _, said = stop(frozen)
    starts = [event for event in site.events() if event["event"] == "start"]
    assert starts[0]["fence"] < starts[1]["fence"]
    assert '"lost": 1' in said
    await job.refresh()
    assert (job.state, job.attempt) == ("completed", 1), (
        "it was not alone in its worker, for all that is known"
    )


async def test_sigterm_ends_a_worker_and_a_second_one_ends_it_at_once(site: Site, app: Tidewheel) -> None:
    """The first lets handlers finish, the second gives their jobs back, uncounted."""
    job = await app.enqueue("endless")
    with site.workers(1) as [worker]:
        site.wait_for("start")
        worker.send_signal(signal.SIGTERM)
        site.wait_for("shutdown")
        await job.refresh()
        assert job.state == "running"
        code, said = stop(worker)
    assert code == 0, said
    assert '"released": 1' in said
    await job.refresh()
    assert (job.state, job.attempt) == ("pending", 0)


# How it dies and where its jobs are have nothing to do with each other, and each takes several leases.
@pytest.mark.parametrize(("site", "how"), [("sqlite", "exit"), ("postgres", "segfault")], indirect=["site"])
async def test_a_job_that_kills_its_worker_fails_in_the_end_and_takes_nobody_with_it(
    site: Site, app: Tidewheel, how: str
) -> None:
    """Poison ends in failed after max_attempts; neighbours that were running beside it complete."""
    poison = await app.enqueue("poison", {"how": how}, max_attempts=3)
    neighbours = await app.enqueue_many("slow", [{"seconds": 0.2}] * 8, max_attempts=3)
    await _until_poison_has_failed(site, app, poison, neighbours)


async def test_a_batch_that_kills_its_worker_fails_for_the_poison_alone(tmp_path: Path) -> None:
    """What was in the call runs by itself afterwards, so the neighbours complete."""
    site = Site(tmp_path)
    async with Tidewheel(site.url, lease=site.lease) as app:
        payloads = [{"items": {"deadly": number == 3}} for number in range(8)]
        jobs = await app.enqueue_many("poisoned", payloads, max_attempts=2)
        poison = jobs.pop(3)
        await _until_poison_has_failed(site, app, poison, jobs)


async def _until_poison_has_failed(
    site: Site, app: Tidewheel, poison: Job[Any], neighbours: list[Job[Any]]
) -> None:
    deaths = 0
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with site.workers(1) as [worker]:

            async def over(worker=worker) -> bool:  # type: ignore[no-untyped-def]
                await poison.refresh()
                done = (await app.count(state="completed")).total == len(neighbours)
                return worker.poll() is not None or (poison.state == "failed" and done)

            await until(over, patience=PATIENCE)
            if worker.poll() is None:
                break
            deaths += 1
    assert poison.state == "failed"
    assert poison.error is not None
    assert poison.error.code == "worker_lost"
    assert deaths <= (poison.max_attempts or 0) + ALONE_AFTER_LOSSES
    for neighbour in neighbours:
        await neighbour.refresh()
        assert neighbour.state == "completed"


async def test_a_handler_that_blocks_the_loop_for_leases_keeps_its_job(site: Site, app: Tidewheel) -> None:
    """The keeper's thread extends the lease; a second worker never gets the job."""
    job = await app.enqueue("rude", {"seconds": 3 * site.lease})
    with site.workers(2):
        await job.result(timeout=PATIENCE)
    await job.refresh()
    assert (job.state, job.attempt) == ("completed", 1)
    assert len([event for event in site.events() if event["event"] == "start"]) == 1


async def test_a_store_used_after_fork_says_so(site: Site, app: Tidewheel) -> None:
    """A forked child has neither the threads nor the locks of its parent."""
    job = await app.enqueue("forks")
    with site.workers(1):
        answer = await job.result(timeout=PATIENCE)
    assert answer.startswith("UsedAfterFork: ")
    assert "open" in answer


async def test_jobs_reach_a_waiting_worker_in_another_process_without_polling(
    site: Site, app: Tidewheel
) -> None:
    """The wake-up crosses processes: the worker's own poll is an hour away."""
    with site.workers(1, TIDEWHEEL_POLL_INTERVAL="3600"):
        for _ in range(5):
            job = await app.enqueue("work", {"shortest": 0, "longest": 0})
            await job.result(timeout=PATIENCE)
    assert len(site.events()) == 10


async def test_two_processes_that_write_at_once_both_get_through(site: Site, app: Tidewheel) -> None:
    """No caller starves or errs while workers and producers fight for the one write lock."""
    with site.workers(2):

        async def one() -> None:
            for _ in range(25):
                await app.enqueue("work", {"shortest": 0, "longest": 0.001})

        await asyncio.gather(*(one() for _ in range(20)))

        async def all_done() -> bool:
            return (await app.stats()).completed == 500

        await until(all_done)
    assert await app.check() == []
