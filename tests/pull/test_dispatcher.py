"""Waiting for a job: who gets it, what it costs, and what becomes of it when nobody is there any more."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidewheel import NotOpen, ReserveTimeout, StoreUnavailable, Tidewheel, TooManyWaiters
from tidewheel.core.model import Claim, ClaimRequest
from tidewheel.pull import dispatcher, heartbeat
from tidewheel.pull.dispatcher import reservations_of
from tidewheel.pull.queue import Queue
from tidewheel.pull.reserved_job import Reserved
from tidewheel.stores.sqlite import write_transaction
from tidewheel.testing.clock import FrozenClock


@pytest.fixture
async def app(url: str) -> AsyncIterator[Tidewheel]:
    """An open app whose time goes by, and that hardly polls."""
    async with Tidewheel(url, poll_interval=60) as app:
        yield app


class Claims:
    """Every claim that reaches the store from now on; one that was held back waits to be let through."""

    def __init__(self, app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[ClaimRequest] = []
        self.granted = 0
        self.through = asyncio.Event()
        self.through.set()
        self.sent = asyncio.Event()
        store = app.store
        original = store.claim

        async def claim(request: ClaimRequest) -> Claim:
            self.requests.append(request)
            self.sent.set()
            await self.through.wait()
            answer = await original(request)
            self.granted += len(answer.jobs)
            return answer

        monkeypatch.setattr(store, "claim", claim)


@pytest.fixture
def claims(app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> Claims:
    return Claims(app, monkeypatch)


async def waiting(app: Tidewheel, queue: Queue, wishes: Iterable[Any]) -> list[asyncio.Task[Reserved]]:
    """Callers that wait, in this order."""
    tasks = []
    for wish in wishes:
        tasks.append(asyncio.create_task(queue.reserve(wish, timeout=PATIENCE)))
        await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        while reservations_of(app._connections).waiting < len(tasks):
            await asyncio.sleep(0.001)
    return tasks


async def test_a_job_wakes_who_waits_for_it(app: Tidewheel, queue: Queue) -> None:
    """Long before the next poll, which is a minute away here."""
    [task] = await waiting(app, queue, ["mail"])
    job = await queue.put("mail")
    assert (await task).id == job.id


async def test_jobs_go_to_those_who_have_waited_longest(app: Tidewheel, queue: Queue) -> None:
    """Among those who want their topic."""
    first, second, third = await waiting(app, queue, [["a"], ["a", "b"], ["b"]])
    jobs = [await queue.put(topic) for topic in ("b", "b", "a")]
    assert (await second).id == jobs[0].id
    assert (await third).id == jobs[1].id
    assert (await first).id == jobs[2].id


async def test_nothing_is_claimed_that_nobody_waits_for(app: Tidewheel, queue: Queue, claims: Claims) -> None:
    """However their wishes overlap: a claimed job that is given back was away for nothing."""
    for topic in ("a", "b", "c"):
        for _ in range(20):
            await queue.put(topic)
    wishes = [["a"], ["a", "b"], ["b", "c"], ["c"], ["a", "c"], ["a", "b", "c"], ["b"], ["a"], ["b"], ["c"]]
    more = [["a", f"x{number}"] for number in range(10)]
    jobs = await asyncio.gather(*(queue.reserve(wish, timeout=PATIENCE) for wish in wishes + more))
    assert len({job.id for job in jobs}) == 20
    assert all(job.topic in wish for job, wish in zip(jobs, wishes + more, strict=True))
    assert claims.granted == 20


async def test_a_thousand_who_wait_are_one_claim_at_a_time(
    app: Tidewheel, queue: Queue, claims: Claims
) -> None:
    """Each for a topic of its own, or all for the same."""
    tasks = await waiting(app, queue, [f"topic-{number % 500}" for number in range(1000)])
    await asyncio.sleep(0.1)
    before = len(claims.requests)
    job = await queue.put("topic-7")
    assert (await tasks[7]).id == job.id
    assert len(claims.requests) - before <= 3
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert reservations_of(app._connections).waiting == 0


async def test_one_look_sees_what_was_put_before(app: Tidewheel, queue: Queue, claims: Claims) -> None:
    """Also while a claim is under way that began earlier, and cannot know."""
    claims.through.clear()
    [patient] = await waiting(app, queue, ["other"])
    await claims.sent.wait()
    job = await queue.put("mail")
    look = asyncio.create_task(queue.reserve("mail", timeout=0))
    await asyncio.sleep(0)
    claims.through.set()
    assert (await look).id == job.id
    patient.cancel()
    await asyncio.wait([patient])


async def test_a_caller_who_leaves_takes_no_job_along(app: Tidewheel, queue: Queue, claims: Claims) -> None:
    """What was claimed on its behalf is anybody's again at once."""
    await queue.put("mail", ttr=3600)
    claims.through.clear()
    [leaving] = await waiting(app, queue, ["mail"])
    await claims.sent.wait()
    leaving.cancel()
    await asyncio.wait([leaving])
    claims.through.set()
    reserved = await queue.reserve("mail", timeout=PATIENCE)
    assert reserved.attempt == 1


async def test_time_to_wait_ends_without_a_job(app: Tidewheel, queue: Queue) -> None:
    """And the next one is not for who has gone."""
    with pytest.raises(ReserveTimeout, match=r"within 0\.05 s"):
        await queue.reserve("mail", timeout=0.05)
    job = await queue.put("mail")
    assert (await queue.reserve("mail", timeout=0)).id == job.id
    assert reservations_of(app._connections).waiting == 0


async def test_a_delayed_job_comes_when_it_is_due(queue: Queue) -> None:
    """Nobody gives a hint then; the wait knows the moment."""
    job = await queue.put("mail", delay=0.2)
    assert (await queue.reserve("mail", timeout=PATIENCE)).id == job.id


async def test_a_reservation_that_runs_out_wakes_who_waits(queue: Queue) -> None:
    """Nobody polls for it."""
    job = await queue.put("mail", ttr=1)
    await queue.reserve("mail", timeout=0)
    assert (await queue.reserve("mail", timeout=PATIENCE)).id == job.id


async def test_there_is_a_limit_of_those_who_wait(url: str) -> None:
    """Said at once, and nobody else suffers."""
    async with Tidewheel(url, max_waiters=2) as app:
        tasks = await waiting(app, app.queue, ["a", "a"])
        with pytest.raises(TooManyWaiters, match=r"2 callers wait for a job; the limit is 2 \(max_waiters\)"):
            await app.queue.reserve("a")
        await app.queue.put("a")
        await tasks[0]
        tasks[1].cancel()


async def test_who_waits_outlasts_an_outage_and_one_look_says_so(
    app: Tidewheel, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database comes back more often than not."""
    store = app.store
    original = store.claim
    failures = 0

    async def claim(request: ClaimRequest) -> Claim:
        nonlocal failures
        if failures < 2:
            failures += 1
            raise StoreUnavailable("the database is away")
        return await original(request)

    monkeypatch.setattr(store, "claim", claim)
    with pytest.raises(StoreUnavailable):
        await queue.reserve("mail", timeout=0)
    job = await queue.put("mail")
    assert (await queue.reserve("mail", timeout=PATIENCE)).id == job.id


async def test_an_app_that_closes_tells_those_who_wait(url: str) -> None:
    """They are not left waiting."""
    async with Tidewheel(url) as app:
        [task] = await waiting(app, app.queue, ["mail"])
    with pytest.raises(NotOpen, match="closed while a job was waited for"):
        await task


async def test_many_who_end_jobs_share_a_write(
    app: Tidewheel, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is answered for its own."""
    store = app.store
    original = store.settle
    batches: list[int] = []

    async def settle(settlements: Any) -> list[bool]:
        batches.append(len(settlements))
        return await original(settlements)

    monkeypatch.setattr(store, "settle", settle)
    for _ in range(50):
        await queue.put("mail")
    jobs = [await queue.reserve("mail", timeout=0) for _ in range(50)]
    await jobs[7].delete()
    batches.clear()
    answers = await asyncio.gather(*(job.delete() for job in jobs), return_exceptions=True)
    assert [answer is None for answer in answers] == [number != 7 for number in range(50)]
    assert sum(batches) == 50
    assert len(batches) <= 3


async def test_who_pulls_is_on_the_list_of_workers(
    app: Tidewheel, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its topics and what it has; nobody wonders who takes these jobs."""
    monkeypatch.setattr(heartbeat, "FIRST_HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    await queue.put("mail")
    reserved = await queue.reserve("mail", timeout=0)
    [task] = await waiting(app, queue, [["mail", "news"]])
    async with asyncio.timeout(PATIENCE):
        while not (told := await app.workers()) or told[0].topics != ("mail", "news"):
            await asyncio.sleep(0.01)
    assert (told[0].name, told[0].running, told[0].concurrency) == (
        reservations_of(app._connections).worker,
        1,
        2,
    )
    await reserved.delete()
    task.cancel()
    async with asyncio.timeout(PATIENCE):
        while await app.workers():
            await asyncio.sleep(0.01)


async def test_who_comes_while_others_leave_the_list_is_on_it_again(
    app: Tidewheel, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leaving takes a moment, and somebody who waits from then on for hours must not be unseen."""
    monkeypatch.setattr(heartbeat, "FIRST_HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.01)
    leaving, go, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
    leave = app.store.deregister_worker

    async def slow_leave(name: str, started_at: int) -> None:
        leaving.set()
        await go.wait()
        await leave(name, started_at)
        gone.set()

    monkeypatch.setattr(app.store, "deregister_worker", slow_leave)
    [first] = await waiting(app, queue, ["mail"])
    async with asyncio.timeout(PATIENCE):
        while not await app.workers():
            await asyncio.sleep(0.01)
        first.cancel()
        await leaving.wait()
        [second] = await waiting(app, queue, ["mail"])
        go.set()
        await gone.wait()
        while not await app.workers():
            await asyncio.sleep(0.01)
    second.cancel()
    await asyncio.wait([second])


async def test_a_job_that_is_due_when_the_time_is_over_is_still_given_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits a second for a job that is due in a second gets it: there is a last look."""
    monkeypatch.setattr(dispatcher, "_FINAL_CLAIM_SECONDS", PATIENCE)
    clock = FrozenClock()
    async with Tidewheel(url, clock=clock, poll_interval=3600) as app:
        job = await app.queue.put("mail", b"x", delay=1000)
        original = app.store.claim

        async def claim(request: ClaimRequest) -> Claim:
            answer = await original(request)
            if not answer.jobs:
                clock.advance(1000)  # right after a look, so that only a later one can find it
            return answer

        monkeypatch.setattr(app.store, "claim", claim)
        assert (await app.queue.reserve("mail", timeout=0.3)).id == job.id


async def test_all_who_wait_for_a_topic_of_their_own_are_served(app: Tidewheel, queue: Queue) -> None:
    """Also those behind the first thousand, whose topics have no jobs; and one look is answered at once."""
    tasks = await waiting(app, queue, [f"topic-{number}" for number in range(1100)])
    job = await queue.put("topic-1050")
    assert (await tasks[1050]).id == job.id
    with pytest.raises(ReserveTimeout):
        await queue.reserve("nowhere", timeout=0)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_an_app_that_closes_gives_back_what_it_is_just_being_granted(
    app: Tidewheel, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim whose reply is on its way: nobody will have its job, so it is anybody's again at once."""
    job = await app.queue.put("mail", ttr=3600)
    async with Tidewheel(url, poll_interval=60) as leaving:
        granted = asyncio.Event()
        original = leaving.store.claim

        async def claim(request: ClaimRequest) -> Claim:
            answer = await original(request)
            granted.set()
            await asyncio.sleep(0.05)  # the reply is on its way
            return answer

        monkeypatch.setattr(leaving.store, "claim", claim)
        waiter = asyncio.create_task(leaving.queue.reserve("mail", timeout=PATIENCE))
        await granted.wait()
        waiter.cancel()
    if url != "memory://":  # that one ends with its app
        assert (await app.queue.reserve("mail", timeout=PATIENCE)).id == job.id


async def test_an_ended_lease_that_must_wait_does_not_make_anybody_look_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a gap in which nobody could write, SQLite gives holders two seconds to make themselves heard."""
    path = tmp_path / "jobs.db"
    clock = FrozenClock()
    async with Tidewheel(f"sqlite:///{path}", clock=clock, poll_interval=60) as app:
        await app.queue.put("mail", ttr=1)
        await app.queue.reserve("mail")
        clock.advance(1.5)
        now = await app.store.now()
        connection = sqlite3.connect(path, isolation_level=None)
        write_transaction.record_lock_pause(connection, now - 700_000, now)
        connection.close()
        claims = Claims(app, monkeypatch)
        with pytest.raises(ReserveTimeout):
            await app.queue.reserve("mail", timeout=0)
        assert len(claims.requests) == 1
        waiter = asyncio.create_task(app.queue.reserve("mail", timeout=PATIENCE))
        async with asyncio.timeout(PATIENCE):
            while len(claims.requests) < 3:
                await asyncio.sleep(0.001)
        before, began = len(claims.requests), time.monotonic()
        await asyncio.sleep(5 * dispatcher._MIN_REST_SECONDS)
        rests = (time.monotonic() - began) / dispatcher._MIN_REST_SECONDS
        assert len(claims.requests) - before <= rests + 1
        clock.advance(2.1)
        await waiter


async def test_topics_that_nobody_asks_for_any_more_are_forgotten(app: Tidewheel, queue: Queue) -> None:
    """A client that waits for each reply in a topic of its own must not make all others slower for good."""
    [patient] = await waiting(app, queue, ["mail"])
    for number in range(3 * dispatcher._MAX_HINT_TOPICS):
        waiter = reservations_of(app._connections).add_waiter(frozenset({f"reply-{number}"}), None)
        reservations_of(app._connections).remove_waiter(waiter)
    assert len(reservations_of(app._connections)._topics) <= dispatcher._MAX_HINT_TOPICS + 1
    await queue.put("mail")
    await patient
