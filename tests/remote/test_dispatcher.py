"""Workers elsewhere that wait for jobs: who gets them, what it costs, and what a lost answer costs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.patience import PATIENCE
from tests.remote.reserve_client import Claims, jobs_of, reserve, standing, wish
from tidewheel import LimitExceeded, NotOpen, Retry, StoreUnavailable, Tidewheel, TooManyWaiters, TopicLimits
from tidewheel.core.model import (
    Claim,
    ClaimRequest,
    Completed,
    Failed,
    JobError,
    Lease,
    NewStep,
    Outcome,
    Released,
    Report,
    Retried,
    Settlement,
    State,
    StepRecord,
)
from tidewheel.errors import StoreError
from tidewheel.remote import dispatcher, service
from tidewheel.testing.clock import FrozenClock


async def test_jobs_that_are_due_come_at_once_under_the_workers_own_name(app: Tidewheel) -> None:
    """As many as it asked for, the best first; operators see who has them."""
    low = await app.enqueue("mail", {"n": 1})
    high = await app.enqueue("mail", {"n": 2}, priority=5)
    await app.enqueue("other")
    grant, repeated = await app.remote.reserve(wish("mail", limit=10, worker="node-7"), 0)
    assert not repeated
    assert [job.lease.job_id for job in grant.jobs] == [high.id, low.id]
    assert (await app.get(low.id)).worker == "node-7"


async def test_one_who_waits_gets_a_job_when_it_comes(app: Tidewheel) -> None:
    """Told by the store, not found by polling."""
    waiting = reserve(app, wish("mail", "news"))
    await standing(app, 1)
    made = await app.enqueue("news")
    (job,) = await jobs_of(waiting)
    assert job.lease.job_id == made.id


async def test_a_job_that_becomes_due_while_somebody_waits_is_theirs(app: Tidewheel) -> None:
    waiting = reserve(app, wish("mail"))
    await standing(app, 1)
    await app.enqueue("mail", delay=0.05)
    assert await jobs_of(waiting)


async def test_nothing_within_its_time_is_an_empty_answer(app: Tidewheel) -> None:
    """And it says when it is worth asking again, where that is known."""
    await app.enqueue("mail", delay=1000)
    grant, _ = await app.remote.reserve(wish("mail"), 0)
    assert grant.jobs == ()
    assert grant.next_due_in is not None
    assert 900 < grant.next_due_in <= 1000
    waited, _ = await app.remote.reserve(wish("other"), 0.02)
    assert waited.jobs == ()


async def test_who_came_first_is_served_first_whatever_else_it_waits_for(memory: Tidewheel) -> None:
    """Also between those who wait for different topics that have one in common."""
    tasks = []
    for index, topics in enumerate([("mail", "news"), ("mail",), ("mail", "other"), ("mail",)]):
        tasks.append(reserve(memory, wish(*topics, worker=f"worker {index}")))
        await standing(memory, index + 1)
    for index, task in enumerate(tasks):
        await standing(memory, len(tasks) - index)  # all have looked: none is between two looks
        made = await memory.enqueue("mail")
        served, _ = await asyncio.wait(tasks[index:], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        assert served == {task}, (await memory.get(made.id)).worker
        (job,) = await jobs_of(task)
        assert (job.lease.job_id, (await memory.get(made.id)).worker) == (made.id, f"worker {index}")


async def test_many_who_wait_for_the_same_cost_a_few_claims(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new job is looked for once for the first of the line, not by each of five hundred."""
    tasks = [reserve(memory, wish("mail", worker=f"worker {index}")) for index in range(500)]
    await standing(memory, 500)
    claims = Claims(memory, monkeypatch)
    await memory.enqueue("mail")
    assert len(await jobs_of(tasks[0])) == 1
    await standing(memory, 499)
    assert len(claims.requests) < 10  # a hint that comes late makes for another look
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks[1:], return_exceptions=True)
    assert memory.remote.waiting == 0


@pytest.mark.parametrize("room", [{"topic_limits": {"news": 0}}, {"free_slots": 0}], ids=["limits", "free"])
async def test_many_who_are_full_cost_a_few_claims_as_well(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch, room: dict[str, Any]
) -> None:
    """What one of them may not have, the others with no more room need not be looked for; who has more is."""
    await memory.limits.set("news", TopicLimits(concurrency=5))
    await memory.enqueue("news")
    tasks = [reserve(memory, wish("mail", "news", worker=f"worker {n}", **room)) for n in range(100)]
    await standing(memory, 100)
    claims = Claims(memory, monkeypatch)
    await memory.enqueue("mail")
    assert len(await jobs_of(tasks[0])) == 1
    await standing(memory, 99)
    assert len(claims.requests) < 10
    other = reserve(memory, wish("mail", "news", worker="with room"))
    assert [job.topic for job in await jobs_of(other)] == ["news"]
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks[1:], return_exceptions=True)


async def test_a_busy_topic_does_not_cost_those_who_wait_for_others(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hint for one line is looked at for that line alone."""
    others = [reserve(memory, wish(f"topic-{index}")) for index in range(20)]
    busy = reserve(memory, wish("mail"))
    await standing(memory, 21)
    claims = Claims(memory, monkeypatch)
    await memory.enqueue("mail")
    assert await jobs_of(busy)
    assert {lane.topic for request in claims.requests for lane in request.lanes} == {"mail"}
    for task in others:
        task.cancel()


async def test_what_one_has_no_room_for_is_anothers(memory: Tidewheel) -> None:
    """Of two for the same lanes the first may be short of room in a topic; the second is still asked."""
    first = reserve(memory, wish("mail", topic_limits={"mail": 0}))
    await standing(memory, 1)
    second = reserve(memory, wish("mail"))
    await standing(memory, 2)
    await memory.enqueue("mail")
    assert await jobs_of(second)
    assert not first.done()
    first.cancel()


async def test_who_leaves_while_a_claim_is_under_way_costs_the_job_nothing(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given back at once, uncounted, as if nobody had had it."""
    made = await app.enqueue("mail")
    claims = Claims(app, monkeypatch)
    claims.through.clear()
    waiting = reserve(app, wish("mail"))
    await asyncio.wait_for(claims.sent.wait(), PATIENCE)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    claims.through.set()
    (job,) = await jobs_of(reserve(app, wish("mail")))
    assert (job.lease.job_id, job.attempt) == (made.id, 1)
    assert (await app.queue.stats_job(made.id)).reserves == 1


async def test_lines_of_those_who_have_gone_are_forgotten(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million different wishes over a month leave nothing behind."""
    monkeypatch.setattr(dispatcher, "UNSUBSCRIBE_AFTER_SECONDS", 0.001)
    for index in range(20):
        await memory.remote.reserve(wish(f"topic-{index}"), 0)
        await memory.remote.reserve(wish(f"topic-{index}"), 0.001)
    lines = memory.remote._service.dispatcher._queues
    while lines:
        await asyncio.sleep(0.001)


async def test_who_comes_while_a_line_stops_listening_hears_of_jobs(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "UNSUBSCRIBE_AFTER_SECONDS", 0.001)
    closing, closed, original = asyncio.Event(), asyncio.Event(), memory.store.wakeups

    @asynccontextmanager
    async def wakeups(**given: Any) -> AsyncIterator[Any]:
        async with original(**given) as hints:
            yield hints
        closing.set()
        await closed.wait()

    monkeypatch.setattr(memory.store, "wakeups", wakeups)
    first = reserve(memory, wish("mail"))
    await standing(memory, 1)  # its line listens by now, which a short wait may not live to see
    first.cancel()
    await asyncio.wait_for(closing.wait(), PATIENCE)
    monkeypatch.setattr(dispatcher, "UNSUBSCRIBE_AFTER_SECONDS", PATIENCE)
    waiting = reserve(memory, wish("mail"))
    lines = memory.remote._service.dispatcher._queues
    while not memory.remote.waiting or any(line.needs_claim for line in lines.values()):
        await asyncio.sleep(0.001)
    closed.set()
    await standing(memory, 1)
    made = await memory.enqueue("mail")
    assert [job.lease.job_id for job in await jobs_of(waiting)] == [made.id]


async def test_a_store_that_is_away_is_told_to_who_does_not_wait_and_tried_again_for_the_others(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database comes back more often than not."""
    monkeypatch.setattr(dispatcher, "OUTAGE_REST_SECONDS", 0.01)
    claims = Claims(memory, monkeypatch)
    claims.failure = StoreUnavailable("gone for a while")
    waiting = reserve(memory, wish("mail"))
    with pytest.raises(StoreUnavailable):
        await memory.remote.reserve(wish("mail"), 0)
    await memory.enqueue("mail")
    claims.failure = None
    assert await jobs_of(waiting)


async def test_a_wish_that_the_store_refuses_is_nobody_elses_trouble(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for something else waits on."""
    original = memory.store.claim

    async def claim(request: ClaimRequest) -> Claim:
        if request.worker == "odd":
            raise StoreError("no such thing")
        return await original(request)

    monkeypatch.setattr(memory.store, "claim", claim)
    odd = reserve(memory, wish("odd", worker="odd"))
    waiting = reserve(memory, wish("mail"))  # looked at together with it
    with pytest.raises(StoreError, match="no such thing"):
        await odd
    await memory.enqueue("mail")
    assert await jobs_of(waiting)


async def test_a_store_that_hangs_does_not_keep_everybody(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim has a time; then the next one is tried."""
    monkeypatch.setattr(dispatcher, "CLAIM_TIMEOUT_SECONDS", 0.01)
    claims = Claims(memory, monkeypatch)
    claims.through.clear()
    with pytest.raises(StoreUnavailable, match="did not answer"):
        await memory.remote.reserve(wish("mail"), 0)


async def test_there_is_a_limit_to_those_who_wait() -> None:
    async with Tidewheel("memory://", max_waiters=1) as app:
        waiting = reserve(app, wish("mail"))
        await standing(app, 1)
        with pytest.raises(TooManyWaiters, match="max_waiters"):
            await app.remote.reserve(wish("mail"), 1)
        waiting.cancel()


async def test_closing_tells_those_who_wait(tmp_path: Path) -> None:
    """And leaves nothing running that would complain later."""
    app = await Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}").open()
    waiting = reserve(app, wish("mail"))
    await standing(app, 1)
    await app.close()
    with pytest.raises(NotOpen):
        await waiting


async def test_a_server_whose_workers_are_elsewhere_brings_back_the_jobs_of_the_dead() -> None:
    """Somebody has to: none of them reaches the store. It ends with the app."""
    clock = FrozenClock()
    async with Tidewheel("memory://", clock=clock, poll_interval=0.01) as app:
        made = await app.enqueue("mail")
        assert (await app.remote.reserve(wish("mail"), 0))[0].jobs
        clock.advance(61)
        while (await app.get(made.id)).state is not State.PENDING:
            await asyncio.sleep(0.001)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "tidewheel-housekeeping"]


async def test_limits_that_tasks_declare_hold_for_workers_elsewhere(tmp_path: Path) -> None:
    """From the first job on. A worker beside the store writes them when it starts; there may be none."""
    app = Tidewheel(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(limits=TopicLimits(concurrency=1))
    def mail() -> None: ...

    async with app:
        await app.enqueue_many(mail, [{}, {}])
        granted, _ = await app.remote.reserve(wish("mail", limit=2), 0)
        assert len(granted.jobs) == 1


async def test_a_completion_is_accepted_again_by_any_server(app: Tidewheel) -> None:
    """Its first answer was lost with the server that gave it. Under another fence it is refused."""
    made = await app.enqueue("mail")
    (job,) = (await app.remote.reserve(wish("mail"), 0))[0].jobs
    ending = Settlement(job.lease, Completed(b"1"))
    assert await app.remote.settle([ending]) == [True]
    assert await app.remote.settle(
        [ending, Settlement(Lease(made.id, job.lease.fence - 1), Completed())]
    ) == [
        True,
        False,
    ]
    assert await app.remote.settle([Settlement(job.lease, Released())]) == [False]


async def test_an_error_without_a_delay_is_tried_again_as_the_jobs_policy_says(app: Tidewheel) -> None:
    """The job's own, else its task's, else the default; an error that cannot be retried fails it."""
    error = JobError("broken", "it broke")

    async def decided(**options: Any) -> Outcome:
        await app.enqueue("mail", **options)
        (job,) = (await app.remote.reserve(wish("mail"), 0))[0].jobs
        return await app.remote.after_error(job.lease, error)

    own = await decided(retry=Retry.fixed(17, jitter=False))
    assert isinstance(own, Retried)
    assert own.delay == 17
    default = await decided()
    assert isinstance(default, Retried)
    assert 0.5 <= default.delay <= 1.0
    fatal = await app.remote.after_error(Lease(UUID(int=1), 1), JobError("broken", "", retryable=False))
    assert isinstance(fatal, Failed)


async def test_a_job_has_no_more_steps_than_it_may_have(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted here: whoever runs the job may not. The same step again is no other."""
    monkeypatch.setattr(service, "MAX_STEPS", 2)
    await memory.enqueue("mail")
    (job,) = (await memory.remote.reserve(wish("mail"), 0))[0].jobs

    def steps(*names: str) -> list[Report]:
        return [Report(job.lease, step=NewStep(name, b"1", 0.0)) for name in names]

    with pytest.raises(LimitExceeded, match="two"):
        await memory.remote.report(steps("one", "three", "two"))
    assert await memory.remote.report(steps("one")) == [True]
    assert await memory.remote.report(steps("two", "two")) == [True, True]
    with pytest.raises(LimitExceeded, match="three"):
        await memory.remote.report(steps("three"))
    assert await memory.remote.report(steps("one")) == [True]


async def test_steps_are_counted_without_reading_all_of_them_each_time(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read with their outputs: once for a run, and when it seems to have too many."""
    monkeypatch.setattr(service, "MAX_STEPS", 5)
    await memory.enqueue("mail")
    (job,) = (await memory.remote.reserve(wish("mail"), 0))[0].jobs
    reads, read = [], memory.store.finished_steps

    async def counted(lease: Lease) -> tuple[StepRecord, ...] | None:
        reads.append(lease)
        return await read(lease)

    monkeypatch.setattr(memory.store, "finished_steps", counted)
    for name in ("a", "b", "c", "c", "d"):
        await memory.remote.report([Report(job.lease, step=NewStep(name, b"1", 0.0))])
    assert len(reads) == 1
    await memory.remote.report([Report(job.lease, step=NewStep("e", b"1", 0.0))])
    assert len(reads) == 2
    with pytest.raises(LimitExceeded, match="'f'"):
        await memory.remote.report([Report(job.lease, step=NewStep("f", b"1", 0.0))])


async def test_the_stores_clock_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may ask a server for the time; between two looks it is counted on."""
    clock = FrozenClock()
    async with Tidewheel("memory://", clock=clock) as app:
        looks, look = [], app.store.now

        async def counted() -> int:
            looks.append(1)
            return await look()

        monkeypatch.setattr(app.store, "now", counted)
        for _ in range(5):
            assert await app.remote.now() == clock.now()
            clock.advance(0.3)
    assert len(looks) == 2


async def test_who_gets_jobs_is_told_whether_there_may_be_more(memory: Tidewheel) -> None:
    """A worker asks again at once then, and otherwise waits; and with more free slots where that helps."""
    await memory.enqueue_many("mail", [{}, {}, {}])
    grant, _ = await memory.remote.reserve(wish("mail", limit=2), 0)
    assert (len(grant.jobs), grant.next_due_in) == (2, 0.0)
    grant, _ = await memory.remote.reserve(wish("mail", limit=2), 0)
    assert len(grant.jobs) == 1
    assert grant.next_due_in != 0.0
    await memory.limits.set("slow", TopicLimits(concurrency=5))
    await memory.enqueue("slow", {})
    grant, _ = await memory.remote.reserve(wish("slow", free_slots=0), 0)
    assert (grant.jobs, grant.kept_back) == ((), True)
    grant, _ = await memory.remote.reserve(wish("slow", free_slots=1), 0)
    assert (len(grant.jobs), grant.kept_back) == (1, False)


async def test_of_one_name_only_one_is_claimed_for_at_a_time(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a lost reply PostgreSQL gives back what a name was granted and does not know, and must not take
    what the same name is being granted beside it.
    """
    await memory.enqueue_many("mail", [{}] * 6)
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()
    original = memory.store.claim

    async def claim(request: ClaimRequest) -> Claim:
        under_way[request.worker] += 1
        most[request.worker] = max(most[request.worker], under_way[request.worker])
        most["all"] = max(most["all"], under_way.total())
        await asyncio.sleep(0)
        answer = await original(request)
        under_way[request.worker] -= 1
        return answer

    monkeypatch.setattr(memory.store, "claim", claim)
    memory.remote._service.dispatcher._batch_size = dispatcher.MAX_PARALLEL_CLAIMS
    names = ["a", "b", "a", "a", "c", "b"]
    for task in [reserve(memory, wish("mail", worker=name)) for name in names]:
        assert len(await jobs_of(task)) == 1
    assert most == {"a": 1, "b": 1, "c": 1, "all": 3}


async def test_many_with_limits_of_their_own_cost_a_few_claims(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody had to leave anything, nothing is left for the next one either."""
    tasks = [
        reserve(memory, wish("mail", worker=f"w{n}", limit=5, topic_limits={"mail": 3})) for n in range(20)
    ]
    await standing(memory, 20)
    claims = Claims(memory, monkeypatch)
    await memory.enqueue_many("mail", [{}] * 4)
    assert [len(await jobs_of(task)) for task in tasks[:2]] == [3, 1]
    await standing(memory, 18)
    assert len(claims.requests) < 10
    for task in tasks[2:]:
        task.cancel()
