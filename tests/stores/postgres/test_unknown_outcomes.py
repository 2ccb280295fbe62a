"""Connections that break while a verb is under way: what became of it is known when it is asked again."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.stores import opened, raw
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ActionResult,
    Cancelled,
    Completed,
    Failed,
    FailureOrigin,
    JobError,
    KeyLifetime,
    Lease,
    OnDuplicate,
    Outcome,
    Released,
    Retried,
    Settlement,
    State,
)
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.postgres import PostgresStore, claims, enqueue
from tidewheel.stores.protocol import Store
from tidewheel.testing.conformance.helpers import (
    BOOM,
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    job,
    settle_one,
)

T = TypeVar("T")

ALIKE = "enqueued_events"
"""Part of the plain statement that writes jobs without anything special, at the first try."""
LOSSES = ["reply", "request"]
"""What is lost: the answer to a statement that was committed, or the statement itself."""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue, "PAUSE_SECONDS", 0.01)


@pytest.fixture
async def direct(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as [store]:
        yield store


@pytest.fixture
async def proxy(postgres_url: str, direct: PostgresStore) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
async def store(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """One whose connections can be made to fail."""
    async with opened(proxy.url, migrated=False) as [store]:
        yield store


def lose(proxy: Proxy, what: str, statement: str) -> Any:
    return {"reply": proxy.lose_reply, "request": proxy.lose_request}[what](f".{statement}(")


async def all_numbers(url: str) -> list[int]:
    async with raw(url) as connection:
        return [row[0] for row in await connection.fetch("SELECT number FROM all_jobs ORDER BY number")]


# -- enqueue ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", LOSSES)
async def test_an_enqueue_of_plain_jobs_whose_connection_breaks_is_written_once(
    store: Store, direct: Store, proxy: Proxy, postgres_url: str, what: str
) -> None:
    """Nearly all are written by another statement than those with keys or large bodies."""
    lost = {"reply": proxy.lose_reply, "request": proxy.lose_request}[what](ALIKE)
    jobs = [job() for _ in range(3)]
    answers = await store.enqueue(jobs)
    assert lost.is_set()
    assert [answer.job_id for answer in answers] == [one.id for one in jobs]
    assert [answer.number for answer in answers] == await all_numbers(postgres_url)
    assert await direct.check() == []


@pytest.mark.parametrize("what", LOSSES)
async def test_an_enqueue_whose_connection_breaks_is_written_once(
    store: Store, direct: Store, proxy: Proxy, postgres_url: str, what: str
) -> None:
    """The caller gets a normal answer, and there is exactly one job for each one it gave."""
    await enqueue_one(store)
    happened = lose(proxy, what, "enqueue")
    jobs = [job(), job(payload=b'{"large": "%s"}' % (b"x" * 2000)), job(delay=60.0)]
    answers = await store.enqueue(jobs)
    assert happened.is_set()
    assert [answer.job_id for answer in answers] == [one.id for one in jobs]
    assert not any(answer.duplicate for answer in answers)
    numbers = await all_numbers(postgres_url)
    assert len(numbers) == 4
    assert [answer.number for answer in answers] == numbers[1:]
    assert [(await get_job(direct, one.id)).payload for one in jobs] == [one.payload for one in jobs]
    assert await direct.check() == []


@pytest.mark.parametrize("what", LOSSES)
@pytest.mark.parametrize("until", KeyLifetime)
async def test_an_enqueue_with_keys_whose_connection_breaks_is_no_duplicate_of_itself(
    store: Store, direct: Store, proxy: Proxy, what: str, until: KeyLifetime
) -> None:
    """Sent again, a job finds its own key taken by itself, which is not what duplicate means."""
    holder = await enqueue_one(store, key="taken", key_until=until)
    happened = lose(proxy, what, "enqueue")
    mine, again, taken = (job(key=key, key_until=until) for key in ("mine", "mine", "taken"))
    answers = await store.enqueue([mine, again, taken])
    assert happened.is_set()
    assert [(answer.job_id, answer.duplicate) for answer in answers] == [
        (mine.id, False),
        (mine.id, True),
        (holder, True),
    ]
    assert await direct.check() == []


@pytest.mark.parametrize("what", LOSSES)
async def test_a_replacement_whose_connection_breaks_takes_effect_once(
    store: Store, direct: Store, proxy: Proxy, what: str
) -> None:
    """Debouncing twice with the same job is debouncing once."""
    holder = await enqueue_one(store, key="k", delay=60.0)
    happened = lose(proxy, what, "enqueue")
    [answer] = await store.enqueue(
        [job(key="k", on_duplicate=OnDuplicate.REPLACE, payload=b"[%s]" % (b"7," * 1000 + b"7"), delay=5.0)]
    )
    assert happened.is_set()
    assert (answer.job_id, answer.duplicate, answer.replaced) == (holder, True, True)
    assert (await get_job(direct, holder)).payload == b"[%s]" % (b"7," * 1000 + b"7")
    assert await direct.check() == []


async def test_an_enqueue_that_was_claimed_and_completed_meanwhile_is_not_run_again(
    store: Store, direct: Store, proxy: Proxy, postgres_url: str
) -> None:
    """Another worker may be done with the job before its enqueuer learns that it exists."""
    happened = proxy.lose_reply(ALIKE)
    again = proxy.lose_request(".enqueue(")  # the second try does not get through either
    new = job()
    enqueueing = asyncio.create_task(store.enqueue([new]))
    await happened.wait()
    assert await settle_one(direct, (await claim_one(direct)).lease, Completed(b"1"))
    [answer] = await enqueueing
    assert again.is_set()
    assert (answer.job_id, answer.duplicate) == (new.id, False)
    assert len(await all_numbers(postgres_url)) == 1
    assert (await get_job(direct, new.id)).state is State.COMPLETED


# -- settle ----------------------------------------------------------------------------------------------

CANCELLED = JobError("job_canceled", "enough", retryable=False)
OUTCOMES: dict[str, tuple[Outcome, State]] = {
    "completed": (Completed(b'"done"'), State.COMPLETED),
    "failed": (Failed(BOOM), State.FAILED),
    "buried": (Failed(BOOM, FailureOrigin.BURIED), State.FAILED),
    "cancelled": (Cancelled(CANCELLED), State.CANCELLED),
    "retried": (Retried(60.0, BOOM), State.PENDING),
    "released": (Released(60.0), State.PENDING),
}


@pytest.mark.parametrize("what", LOSSES)
@pytest.mark.parametrize(("outcome", "state"), OUTCOMES.values(), ids=OUTCOMES)
async def test_a_settlement_whose_connection_breaks_is_accepted_when_it_is_sent_again(
    store: Store, direct: Store, proxy: Proxy, what: str, outcome: Outcome, state: State
) -> None:
    """The holder of the lease is told that its outcome counts, and it counts once."""
    job_id = await enqueue_one(store, max_attempts=5)
    lease = (await claim_one(store)).lease
    happened = lose(proxy, what, "settle")
    settlement = Settlement(lease, outcome, 0.01)
    with pytest.raises(StoreUnavailable):
        await store.settle([settlement])
    assert happened.is_set()
    assert await store.settle([settlement]) == [True]
    assert await store.settle([settlement]) == [False]
    record = await get_job(direct, job_id)
    assert record.state is state
    assert len(record.attempts) == (0 if isinstance(outcome, Completed | Released) else 1)
    assert record.attempt == (0 if isinstance(outcome, Released) else 1)
    assert await direct.check() == []
    stats = await direct.stats(window_seconds=3600.0)
    assert stats.completed == (state is State.COMPLETED)


@pytest.mark.parametrize("what", LOSSES)
async def test_a_mixed_batch_whose_connection_breaks_is_answered_lease_by_lease(
    store: Store, direct: Store, proxy: Proxy, what: str
) -> None:
    """Among settlements that are sent again, one that was stale all along is still refused."""
    await enqueue_many(store, 3, max_attempts=5)
    first, second, third = (claimed.lease for claimed in await claim_jobs(store))
    stale = Lease(third.job_id, third.fence - 1000)
    batch = [
        Settlement(first, Completed(b"1"), 0.01),
        Settlement(second, Retried(60.0, BOOM), 0.01),
        Settlement(stale, Completed(b"1"), 0.01),
    ]
    lose(proxy, what, "settle")
    with pytest.raises(StoreUnavailable):
        await store.settle(batch)
    assert await store.settle(batch) == [True, True, False]
    assert (await get_job(direct, third.job_id)).state is State.RUNNING
    assert await direct.check() == []


@pytest.mark.parametrize("what", LOSSES)
async def test_packed_jobs_whose_completion_breaks_are_completed_when_it_is_sent_again(
    store: Store, direct: Store, proxy: Proxy, what: str
) -> None:
    """Some of them have left the pack by then, and one is held by somebody else."""
    await enqueue_many(store, 70)
    leases = [one.lease for one in await claim_jobs(store, limit=70)]
    batch = [Settlement(lease, Completed(b"1"), 0.01) for lease in leases[:65]]
    happened = lose(proxy, what, "complete_batched")
    with pytest.raises(StoreUnavailable):
        await store.settle(batch)
    assert happened.is_set()
    assert await direct.mark_started(leases[66:68]) == [True, True]
    foreign = Lease(leases[68].job_id, leases[69].fence)
    batch += [Settlement(lease, Completed(b"1"), 0.01) for lease in (*leases[65:68], foreign)]
    assert await store.settle(batch) == [True] * 68 + [False]
    assert (await get_job(direct, leases[69].job_id)).state is State.RUNNING
    assert await direct.check() == []


async def test_a_settlement_is_accepted_however_often_its_connection_breaks(
    store: Store, direct: Store, proxy: Proxy
) -> None:
    """Also when the question what became of it is lost, together with outcomes sent for the first time."""
    await enqueue_many(store, 2)
    first, second = (Settlement(claimed.lease, Completed(b"1"), 0.01) for claimed in await claim_jobs(store))
    for statement, batch in (
        ("settle", [first]),
        ("find_settled", [first, second]),
        ("settle", [first, second]),
    ):
        happened = proxy.lose_reply(f".{statement}(")
        with pytest.raises(StoreUnavailable):
            await store.settle(batch)
        assert happened.is_set()
    assert await store.settle([first, second]) == [True, True]
    assert await direct.check() == []


async def test_a_settlement_that_was_cancelled_is_accepted_when_it_is_sent_again(
    store: Store, direct: Store, proxy: Proxy
) -> None:
    """Whoever gives up waiting for the reply knows as little as one whose connection broke."""
    await enqueue_one(store)
    settlement = Settlement((await claim_one(store)).lease, Completed(b"1"), 0.01)
    async with asyncio.timeout(PATIENCE):
        happened = proxy.lose_reply(".settle(", cut=False)
        settling = asyncio.create_task(store.settle([settlement]))
        await happened.wait()
        settling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await settling
    assert await store.settle([settlement]) == [True]
    assert (await get_job(direct, settlement.lease.job_id)).state is State.COMPLETED


TOO_LATE: dict[str, Callable[[], Outcome]] = {
    "completed": lambda: Completed(b'"mine"'),
    "failed": lambda: Failed(BOOM),
    "cancelled": lambda: Cancelled(CANCELLED),
    "retried": lambda: Retried(60.0, BOOM),
}


@pytest.mark.parametrize("max_attempts", [1, 5])
@pytest.mark.parametrize("outcome", TOO_LATE.values(), ids=TOO_LATE)
async def test_a_settlement_that_never_arrived_is_refused_once_its_lease_has_ended(
    store: PostgresStore,
    direct: PostgresStore,
    proxy: Proxy,
    postgres_url: str,
    outcome: Callable[[], Outcome],
    max_attempts: int,
) -> None:
    """A rescue ends a lease under the same fence; that is not the settlement its holder asks about."""
    job_id = await enqueue_one(store, max_attempts=max_attempts)
    lease = (await claim_one(store)).lease
    proxy.lose_request(".settle(")
    settlement = Settlement(lease, outcome(), 0.01)
    with pytest.raises(StoreUnavailable):
        await store.settle([settlement])
    async with raw(postgres_url) as connection:
        await connection.execute("UPDATE jobs SET leased_until = 1")
    rescued = await direct.rescue()
    assert (rescued.returned, rescued.failed) == ((1, 0) if max_attempts > 1 else (0, 1))
    assert await store.settle([settlement]) == [False]
    record = await get_job(direct, job_id)
    assert record.state is (State.PENDING if max_attempts > 1 else State.FAILED)
    assert [attempt.error.code for attempt in record.attempts] == ["worker_lost"]


# -- claim -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", LOSSES)
async def test_jobs_of_a_claim_whose_connection_breaks_come_with_the_next_one(
    store: Store, direct: Store, proxy: Proxy, what: str
) -> None:
    """What a worker was granted without learning of it is granted to it again, without a counted attempt."""
    put_in = await enqueue_many(store, 10)
    held = await claim_jobs(store, limit=3)
    happened = lose(proxy, what, "claim")
    with pytest.raises(StoreUnavailable):
        await claim_from(store, limit=4)
    assert happened.is_set()
    again = await claim_jobs(store)
    assert [claimed.lease.job_id for claimed in again] == put_in[3:]
    assert {claimed.attempt for claimed in again} == {1}
    assert not any(claimed.losses for claimed in again)
    # What it was holding before is still its own.
    leases = [claimed.lease for claimed in [*held, *again]]
    assert await store.extend(leases, 60.0) == [True] * 10
    assert await direct.check() == []


@pytest.mark.parametrize("what", LOSSES)
async def test_a_job_that_was_granted_by_itself_without_an_answer_can_be_asked_for_again(
    store: Store, direct: Store, proxy: Proxy, what: str
) -> None:
    """By the same worker, and what it holds besides is still its own."""
    wanted, other = await enqueue_many(store, 2)
    held = await store.claim_job(other, worker="hand", lease_seconds=60)
    assert held is not None
    happened = lose(proxy, what, "claim_job")
    with pytest.raises(StoreUnavailable):
        await store.claim_job(wanted, worker="hand", lease_seconds=60)
    assert happened.is_set()
    again = await store.claim_job(wanted, worker="hand", lease_seconds=60)
    assert again is not None
    assert again.attempt == 1
    assert await store.extend([held.lease, again.lease], 60.0) == [True, True]
    assert await direct.check() == []


async def test_a_worker_that_was_not_heard_of_for_long_keeps_what_it_holds(
    direct: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it was told of before is not remembered for as many names as there can be; a later reply that gets
    lost gives back only what came after that.
    """
    monkeypatch.setattr(claims, "MAX_TRACKED_WORKERS", 2)
    await enqueue_many(direct, 4)
    [held] = await claim_jobs(direct, worker="long", limit=1)
    for name in ("x", "y"):
        assert await claim_jobs(direct, worker=name, limit=1)
    direct._claimer._mark_reply_lost("long")  # as a lost reply does
    [another] = await claim_jobs(direct, worker="long", limit=1)
    assert await direct.extend([held.lease, another.lease], 60.0) == [True, True]
    for number in range(5):
        direct._claimer._mark_reply_lost(f"gone-{number}")
    # Nobody's names gather for ever.
    assert list(direct._claimer._workers_with_lost_reply) == [
        "gone-3",
        "gone-4",
    ]


async def test_a_lost_reply_to_one_workers_claim_leaves_the_others_alone(
    store: Store, direct: Store, proxy: Proxy
) -> None:
    """Giving back concerns the worker that was not answered, whoever else claims through the same store."""
    await enqueue_many(store, 6)
    theirs = await claim_jobs(store, worker="other", limit=2)
    elsewhere = await claim_jobs(direct, worker="elsewhere", limit=2)
    proxy.lose_reply(".claim(")
    with pytest.raises(StoreUnavailable):
        await claim_from(store, worker="unlucky")
    assert await claim_jobs(store, worker="other") == []
    assert len(await claim_jobs(store, worker="unlucky")) == 2
    leases = [claimed.lease for claimed in [*theirs, *elsewhere]]
    assert await direct.extend(leases, 60.0) == [True] * 4


async def test_a_job_cancelled_while_nobody_knew_that_it_was_granted_is_not_granted_again(
    store: Store, direct: Store, proxy: Proxy
) -> None:
    """What is given back with a request to cancel it ends as cancelled, as if its worker had released it."""
    cancelled, other = await enqueue_many(store, 2)
    proxy.lose_reply(".claim(")
    with pytest.raises(StoreUnavailable):
        await claim_from(store)
    assert await direct.cancel([cancelled]) == [ActionResult.REQUESTED]
    assert [claimed.lease.job_id for claimed in await claim_jobs(store)] == [other]
    record = await direct.get(cancelled)
    assert record is not None
    assert (record.state, record.attempt) == (State.CANCELLED, 0)
    assert await direct.check() == []


async def test_two_workers_of_one_name_do_not_give_back_each_others_jobs(
    store: Store, direct: Store, proxy: Proxy
) -> None:
    """One was restarted under the same name while the old one still holds jobs, and has a claim go wrong."""
    await enqueue_many(store, 4)
    old = await claim_jobs(direct, worker="same", limit=2)
    proxy.lose_reply(".claim(")
    with pytest.raises(StoreUnavailable):
        await claim_from(store, worker="same", limit=1)
    assert len(await claim_jobs(store, worker="same")) == 2
    assert await direct.extend([claimed.lease for claimed in old], 60.0) == [True, True]


async def test_a_connection_may_be_cut_at_any_byte(store: Store, direct: Store, proxy: Proxy) -> None:
    """Whatever part of whichever reply arrives: in the end every job was written, run and completed once."""
    lengths = range(0, 4000, 130)
    for length in lengths:
        new = [job(key=f"{length}-{number}", payload=b"1" * 600) for number in range(2)]
        proxy.cut_after(length)
        answers = await store.enqueue(new)
        assert [(answer.job_id, answer.duplicate) for answer in answers] == [(one.id, False) for one in new]
        claimed = (await patiently(functools.partial(claim_from, store))).jobs
        assert [(one.lease.job_id, one.attempt) for one in claimed] == [(one.id, 1) for one in new]
        settlements = [Settlement(one.lease, Completed(one.payload), 0.01) for one in claimed]
        assert await patiently(functools.partial(store.settle, settlements)) == [True, True]
    assert (await direct.stats(window_seconds=3600.0)).completed == 2 * len(lengths)
    assert await direct.check() == []


async def test_connections_cut_at_random_lose_and_double_nothing(
    proxy: Proxy, direct: Store, postgres_url: str
) -> None:
    """Producers and workers at full speed while the network fails: what was acknowledged is there, once."""
    dice = random.Random(5)
    over = time.monotonic() + 1.5
    enqueued: set[UUID] = set()
    completed: Counter[UUID] = Counter()
    producing = 3  # what the last of them is answered late has to be worked on, too

    async def produce(store: Store) -> None:
        nonlocal producing
        while time.monotonic() < over or len(enqueued) <= 3:  # more than three, however slow the machine
            [answer] = await store.enqueue([job(max_attempts=None, key=dice.choice([None, str(new_id())]))])
            assert not answer.duplicate
            enqueued.add(answer.job_id)
        producing -= 1

    async def work(store: Store, worker: str) -> None:
        while producing or len(completed) < len(enqueued):
            claimed = (await patiently(functools.partial(claim_from, store, worker=worker, limit=10))).jobs
            outcomes: list[Outcome] = [Completed(b"1"), Completed(b"1"), Retried(0.0, BOOM), Released()]
            batch = [Settlement(one.lease, dice.choice(outcomes), 0.001) for one in claimed]
            answers = await patiently(functools.partial(store.settle, batch))
            for settlement, accepted in zip(batch, answers, strict=True):
                # A job given back and granted again meanwhile may seem lost; one completed, never.
                assert accepted or not isinstance(settlement.outcome, Completed)
                if isinstance(settlement.outcome, Completed):
                    completed[settlement.lease.job_id] += 1

    async def cut() -> None:
        while time.monotonic() < over:
            await asyncio.sleep(dice.uniform(0.02, 0.25))
            if dice.random() < 0.5:
                proxy.cut()
            else:
                proxy.cut_after(dice.randrange(1500))

    async with opened(*[proxy.url] * 3, migrated=False) as stores, asyncio.timeout(PATIENCE):
        workers = [work(store, f"worker-{number}") for number, store in enumerate(stores * 2)]
        await asyncio.gather(*map(produce, stores), *workers, cut())
    assert completed == Counter(dict.fromkeys(enqueued, 1))
    assert len(await all_numbers(postgres_url)) == len(enqueued) > 3
    assert await direct.check() == []


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """Try until it works."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0.005)


# -- the rest --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", LOSSES)
async def test_other_verbs_say_unavailable_and_can_be_repeated(store: Store, proxy: Proxy, what: str) -> None:
    """Extending, starting, cancelling and reading have no second meaning when they are done twice."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    for statement, call in {
        "extend": lambda: store.extend([lease], 60.0),
        "mark_started": lambda: store.mark_started([lease]),
        "cancel_requests": lambda: store.cancel_requests([lease]),
        "cancel": lambda: store.cancel([job_id]),
        "rescue": store.rescue,
        "prune": store.prune,
        "now_us": store.now,
    }.items():
        happened = lose(proxy, what, statement)
        with pytest.raises(StoreUnavailable):
            await call()
        assert happened.is_set(), statement
        await call()
    assert (await get_job(store, job_id)).cancel_requested
