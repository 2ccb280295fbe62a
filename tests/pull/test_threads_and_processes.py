"""Pulling by hand across threads, event loops, restarts and forks."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.app.conftest import URLS
from tests.patience import PATIENCE
from tidewheel import NotOpen, Tidewheel
from tidewheel.core.model import Claimed
from tidewheel.pull.dispatcher import reservations_of
from tidewheel.pull.queue import Queue
from tidewheel.pull.reserved_job import Reserved


@pytest.fixture(params=["sqlite", "postgres"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Stores that outlive an app."""
    return URLS[request.param](tmp_path)


async def _settled_down(app: Tidewheel, number: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while reservations_of(app._connections).waiting < number:
            await asyncio.sleep(0.001)


# -- waking up ----------------------------------------------------------------------------------------------


async def _put_for_later(queue: Queue, _: Reserved) -> None:
    await queue.put("mail", delay=0.1)


async def _release(_: Queue, reserved: Reserved) -> None:
    await reserved.release()


async def _release_for_later(_: Queue, reserved: Reserved) -> None:
    await reserved.release(delay=0.1)


async def _kick_the_buried(queue: Queue, reserved: Reserved) -> None:
    await reserved.bury()
    await queue.kick("mail")


async def _kick_the_delayed(queue: Queue, reserved: Reserved) -> None:
    await reserved.release(delay=3600)
    await queue.kick_job(reserved.id)


async def _pause_for_a_while(queue: Queue, reserved: Reserved) -> None:
    await queue.pause("mail", 0.2)
    await reserved.release()


@pytest.mark.parametrize(
    "make_ready",
    [
        _put_for_later,
        _release,
        _release_for_later,
        _kick_the_buried,
        _kick_the_delayed,
        _pause_for_a_while,
    ],
)
async def test_whatever_makes_a_job_ready_wakes_who_waits(
    lasting: str, make_ready: Callable[[Queue, Reserved], Awaitable[None]]
) -> None:
    """From another app, long before the next poll, which is an hour away here."""
    async with Tidewheel(lasting, poll_interval=3600) as app, Tidewheel(lasting, poll_interval=3600) as other:
        await other.queue.put("mail", ttr=3600)
        held = await other.queue.reserve("mail", timeout=PATIENCE)
        task = asyncio.create_task(app.queue.reserve("mail", timeout=PATIENCE))
        await _settled_down(app, 1)
        await make_ready(other.queue, held)
        await (await task).delete()


# -- leaving ------------------------------------------------------------------------------------------------


async def test_a_caller_cancelled_in_the_turn_it_is_served_leaves_the_job_to_others(url: str) -> None:
    """It was handed over, but nobody has seen it: it is anybody's again, uncounted."""
    async with Tidewheel(url) as app:
        for _ in range(5):  # the turn in which it is served differs from store to store
            job = await app.queue.put("mail", ttr=3600)
            task = asyncio.create_task(app.queue.reserve("mail"))
            while (await app.queue.stats_job(job.id)).state != "reserved" and not task.done():
                await asyncio.sleep(0)
            task.cancel()
            [answer] = await asyncio.gather(task, return_exceptions=True)
            if isinstance(answer, asyncio.CancelledError):
                answer = await app.queue.reserve("mail", timeout=PATIENCE)
            assert isinstance(answer, Reserved)
            assert (answer.id, answer.attempt) == (job.id, 1)
            await answer.delete()


async def test_who_leaves_while_a_job_is_granted_by_its_id_takes_nothing_along(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store goes on granting it; then it is given back."""
    async with Tidewheel(url) as app:
        job = await app.queue.put("mail", ttr=3600)
        asked, through = asyncio.Event(), asyncio.Event()
        grant = app.store.claim_job

        async def slow_grant(job_id: UUID, **options: Any) -> Claimed | None:
            asked.set()
            await through.wait()
            return await grant(job_id, **options)

        monkeypatch.setattr(app.store, "claim_job", slow_grant)
        task = asyncio.create_task(app.queue.reserve_job(job.id))
        await asked.wait()
        task.cancel()
        await asyncio.wait([task])
        through.set()
        assert (await app.queue.reserve("mail", timeout=PATIENCE)).attempt == 1


# -- threads, event loops, processes ------------------------------------------------------------------------


def test_threads_of_one_app_share_the_jobs(lasting: str) -> None:
    """Each goes to one of them; all are done."""
    with Tidewheel(lasting).sync as app:
        for number in range(40):
            app.queue.put("mail", number)

        def take(_: int) -> Any:
            reserved = app.queue.reserve("mail", timeout=PATIENCE)
            reserved.delete()
            return reserved.body

        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(take, range(40))) == list(range(40))


async def test_event_loops_of_one_app_share_the_jobs(lasting: str) -> None:
    """The program's own and the one behind ``.sync``; what is put on one wakes who waits on the other."""
    async with Tidewheel(lasting, poll_interval=3600) as app:
        blocking = app.sync
        blocked = asyncio.create_task(asyncio.to_thread(blocking.queue.reserve, "mail", PATIENCE))
        while not await asyncio.to_thread(lambda: blocking.queue.stats_topic("mail").waiting):
            await asyncio.sleep(0.01)
        job = await app.queue.put("mail")
        reserved = await blocked
        assert reserved.id == job.id
        await asyncio.to_thread(app.sync.queue.release, reserved)
        await (await app.queue.reserve("mail", timeout=PATIENCE)).delete()
        await asyncio.to_thread(blocking.close)


def test_a_thread_that_waits_is_told_when_the_app_is_closed(url: str) -> None:
    """It is not left waiting."""
    app = Tidewheel(url).sync
    app.open()
    told: list[BaseException] = []

    def wait() -> None:
        try:
            app.queue.reserve("mail")
        except BaseException as error:
            told.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    while not app.queue.stats_topic("mail").waiting:
        time.sleep(0.01)
    app.close()
    thread.join(PATIENCE)
    [error] = told
    assert isinstance(error, NotOpen)


def _take_in_child(app: Any, answers: Any) -> None:
    reserved = app.queue.reserve("mail", timeout=PATIENCE)
    reserved.delete()
    answers.put(reserved.body)


def test_a_forked_child_pulls_on_its_own(lasting: str) -> None:
    """It inherits an app whose threads and connections stayed with the parent."""
    with Tidewheel(lasting).sync as app:
        app.queue.put("mail", "parent's")
        app.queue.reserve("mail", timeout=PATIENCE).delete()
        app.queue.put("mail", "child's")
        fork = multiprocessing.get_context("fork")
        answers = fork.SimpleQueue()
        child = fork.Process(target=_take_in_child, args=(app, answers))
        child.start()
        child.join(PATIENCE)
        assert child.exitcode == 0
        assert answers.get() == "child's"
        app.queue.put("mail", "again")
        app.queue.reserve("mail", timeout=PATIENCE).delete()


# -- restarts -----------------------------------------------------------------------------------------------


async def test_after_a_restart_jobs_are_where_they_were(lasting: str) -> None:
    """Ready, delayed and buried; one that was reserved comes back when its time is over. Counts go on."""
    async with Tidewheel(lasting) as app:
        jobs = {name: await app.queue.put(name, name, ttr=1) for name in ("ready", "buried", "reserved")}
        jobs["delayed"] = await app.queue.put("delayed", delay=3600)
        await (await app.queue.reserve("buried")).bury()
        held = await app.queue.reserve("reserved")
        await held.touch()
    async with Tidewheel(lasting) as app:
        states = {name: (await app.queue.stats_job(job.id)).state for name, job in jobs.items()}
        assert states == {name: name for name in jobs}
        assert (await app.queue.reserve("reserved", timeout=PATIENCE)).body == "reserved"
        stats = await app.queue.stats_job(jobs["reserved"].id)
        assert (stats.reserves, stats.timeouts, stats.touches) == (2, 1, 1)
        assert (await app.queue.wait_for_recovery()).total_jobs == 4
