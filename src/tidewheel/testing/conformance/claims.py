"""Claims: order, lanes and leases, concurrent claimers, and the time of the next claim.

Concurrent claimers get every job exactly once, best first, and leave none behind. ``Claim.next_due_in`` says
when the next claim is worthwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from uuid import UUID

from tidewheel.core.model import (
    FOREVER,
    BodyFormat,
    Claimed,
    ClaimRequest,
    Completed,
    JobFilter,
    Lane,
    Released,
    Retried,
    Settlement,
    State,
)
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    LEASE_SECONDS,
    TOPIC,
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    ids,
    job,
    make_completed,
    settle_one,
)


async def test_a_claim_carries_what_the_handler_needs(store: Store) -> None:
    """Everything given at enqueue reaches the worker with the lease."""
    job_id = await enqueue_one(
        store,
        task="send",
        payload=b"[1]",
        tenant="acme",
        priority=4,
        max_attempts=2,
        timeout=9.5,
        retry='{"kind":"fixed"}',
        key="k",
        correlation_id="c",
        user_id="u",
        service_id="s",
        headers="{}",
    )
    record = await get_job(store, job_id)
    claimed = await claim_one(store, lease_seconds=7.5)
    assert (claimed.lease.job_id, claimed.number) == (job_id, record.number)
    assert (claimed.topic, claimed.task, claimed.tenant) == (TOPIC, "send", "acme")
    assert (claimed.priority, claimed.attempt, claimed.max_attempts) == (4, 1, 2)
    assert (claimed.timeout, claimed.retry, claimed.lease_seconds) == (9.5, '{"kind":"fixed"}', 7.5)
    assert (claimed.payload, claimed.checkpoint, claimed.key) == (b"[1]", None, "k")
    assert (claimed.created_at, claimed.run_at) == (record.created_at, record.run_at)
    assert (claimed.correlation_id, claimed.user_id, claimed.service_id) == ("c", "u", "s")
    assert (claimed.headers, claimed.losses) == ("{}", 0)
    assert record.headers == "{}"


async def test_a_claim_brings_bodies_of_every_kind_and_size(store: Store) -> None:
    """As they were put in, also side by side."""
    bodies = [b"[1]", b'"' + b"x" * 4094 + b'"', b'"' + b"y" * 4095 + b'"', '"ä"'.encode()]
    raw = [b"", bytes(range(256)), bytes(range(256)) * 400]
    for body in bodies:
        await enqueue_one(store, payload=body)
    for body in raw:
        await enqueue_one(store, payload=body, format=BodyFormat.BYTES)
    claimed = await claim_jobs(store, limit=10)
    assert [job.payload for job in claimed] == [*bodies, *raw]
    assert [job.format for job in claimed] == [BodyFormat.JSON] * 4 + [BodyFormat.BYTES] * 3


async def test_a_claimed_job_shows_who_has_it_and_for_how_long(store: Store, clock: FrozenClock) -> None:
    """Running, with worker, fence, end of lease and a counted attempt; not started yet."""
    job_id = await enqueue_one(store)
    clock.advance(1)
    claimed = await claim_one(store, lease_seconds=30, worker="anna")
    record = await get_job(store, job_id)
    assert (record.state, record.worker, record.attempt) == (State.RUNNING, "anna", 1)
    assert (record.fence, record.claimed_at) == (claimed.lease.fence, clock.now())
    assert (record.leased_until, record.started_at) == (clock.now() + 30_000_000, None)


async def test_a_claimed_job_is_nobody_elses(store: Store) -> None:
    """While a lease holds, no other claim gets the job."""
    await enqueue_one(store)
    assert len(await claim_jobs(store)) == 1
    assert await claim_jobs(store, worker="worker-2") == []


async def test_higher_priority_first_then_first_in(store: Store) -> None:
    """The order within a topic."""
    low = await enqueue_many(store, 2, priority=-1)
    normal = await enqueue_many(store, 2)
    high = await enqueue_many(store, 2, priority=150)
    assert ids(await claim_jobs(store)) == high + normal + low


async def test_the_order_is_by_number_not_by_due_time(store: Store, clock: FrozenClock) -> None:
    """Once due, a delayed job takes the place its number gives it."""
    delayed = await enqueue_one(store, delay=10)
    prompt = await enqueue_one(store)
    clock.advance(10)
    assert ids(await claim_jobs(store)) == [delayed, prompt]


async def test_across_lanes_the_highest_head_then_the_lowest_number(store: Store) -> None:
    """Topics and tasks are merged as if they were one line."""
    first = await enqueue_one(store, "a", task="x")
    second = await enqueue_one(store, "b")
    urgent = await enqueue_one(store, "c", task="y", priority=1)
    third = await enqueue_one(store, "a", task="z")
    fourth = await enqueue_one(store, "b")
    claimed = await claim_jobs(store, "b", "a", "c")
    assert ids(claimed) == [urgent, first, second, third, fourth]


async def test_the_limit_takes_the_best_and_leaves_the_rest(store: Store) -> None:
    """No more than asked for, and the next claim goes on where this one stopped."""
    job_ids = await enqueue_many(store, 5)
    assert ids(await claim_jobs(store, limit=2)) == job_ids[:2]
    assert ids(await claim_jobs(store, limit=2)) == job_ids[2:4]
    assert ids(await claim_jobs(store, limit=2)) == job_ids[4:]


async def test_a_lane_of_a_task_gets_only_that_task(store: Store) -> None:
    """A worker is not given jobs it has no handler for."""
    send = await enqueue_one(store, task="send")
    bare = await enqueue_one(store)
    other = await enqueue_one(store, task="other")
    assert ids(await claim_jobs(store, Lane(TOPIC, "send"))) == [send]
    assert ids(await claim_jobs(store, Lane(TOPIC, ""))) == [bare]
    assert await claim_jobs(store, Lane(TOPIC, "unknown")) == []
    assert ids(await claim_jobs(store, Lane(TOPIC, None))) == [other]


async def test_a_lane_of_another_topic_gets_nothing(store: Store) -> None:
    """A task's jobs in another topic are another lane."""
    await enqueue_one(store, "one", task="send")
    assert await claim_jobs(store, Lane("two", "send")) == []
    assert await claim_jobs(store, "two") == []


async def test_lanes_that_overlap_grant_a_job_once(store: Store) -> None:
    """Naming a topic and a task of it does not double the task's jobs."""
    job_ids = [
        await enqueue_one(store, task="send"),
        await enqueue_one(store),
        await enqueue_one(store, task="send"),
    ]
    lanes = (Lane(TOPIC), Lane(TOPIC, "send"), Lane(TOPIC), Lane(TOPIC, ""))
    assert ids(await claim_jobs(store, *lanes)) == job_ids


async def test_a_claim_without_lanes_gets_nothing(store: Store) -> None:
    """A worker that can run nothing is given nothing."""
    await enqueue_one(store)
    assert (await store.claim(ClaimRequest("worker", (), 10, 60.0))).jobs == ()


async def test_topic_limits_cap_what_a_claim_takes_of_a_topic(store: Store) -> None:
    """A full topic gives way to the others, whatever its priority."""
    a = await enqueue_many(store, 3, "a", priority=9)
    b = await enqueue_many(store, 3, "b")
    claimed = await claim_jobs(store, "a", "b", topic_limits={"a": 1, "unasked": 5})
    assert ids(claimed) == [a[0], *b]
    assert await claim_jobs(store, "a", "b", topic_limits={"a": 0}) == []
    assert ids(await claim_jobs(store, "a", "b", topic_limits={"a": 10})) == a[1:]


async def test_a_topic_limit_counts_all_lanes_of_the_topic(store: Store) -> None:
    """The cap is the topic's, not each task's."""
    first = await enqueue_one(store, task="x")
    second = await enqueue_one(store, task="y")
    third = await enqueue_one(store, task="x")
    lanes = (Lane(TOPIC, "x"), Lane(TOPIC, "y"))
    assert ids(await claim_jobs(store, *lanes, topic_limits={TOPIC: 2})) == [first, second]
    assert ids(await claim_jobs(store, *lanes)) == [third]


async def test_a_jobs_own_lease_length_overrides_the_workers(store: Store, clock: FrozenClock) -> None:
    """A time to run given at enqueue is kept."""
    await enqueue_one(store, lease_seconds=5.0)
    claimed = await claim_one(store, lease_seconds=60)
    assert claimed.lease_seconds == 5.0
    assert (await get_job(store, claimed.lease.job_id)).leased_until == clock.now() + 5_000_000


async def test_fences_are_never_shared_and_only_grow(store: Store) -> None:
    """Each claim's are above all given before, also to other jobs; within one claim their order is open."""
    await enqueue_many(store, 3)
    highest = 0
    for _ in range(3):
        claimed = await claim_jobs(store)
        fences = [one.lease.fence for one in claimed]
        assert len(set(fences)) == 3
        assert min(fences) > highest
        highest = max(fences)
        for one in claimed:
            await settle_one(store, one.lease, Released())


async def test_each_claim_counts_an_attempt(store: Store) -> None:
    """Numbered from 1; retries go on counting."""
    await enqueue_one(store)
    for attempt in (1, 2, 3):
        claimed = await claim_one(store)
        assert claimed.attempt == attempt
        assert claimed.last_attempt is (attempt == 3)
        await settle_one(store, claimed.lease, Retried(0, BOOM))


async def test_a_job_that_comes_back_keeps_its_place(store: Store) -> None:
    """Retried, released and requeued jobs are older than what was enqueued meanwhile."""
    retried, released, requeued = await enqueue_many(store, 3)
    first, second, third = await claim_jobs(store)
    await enqueue_one(store)
    await settle_one(store, first.lease, Retried(0, BOOM))
    await settle_one(store, second.lease, Released())
    await settle_one(store, third.lease, Released())
    await store.cancel([requeued])
    await store.requeue([requeued])
    assert ids(await claim_jobs(store))[:3] == [retried, released, requeued]


async def test_jobs_of_all_tenants_are_claimed_together(store: Store) -> None:
    """Tenants narrow what callers see, not what workers run."""
    job_ids = [await enqueue_one(store, tenant=tenant) for tenant in ("a", "b", "a")]
    assert ids(await claim_jobs(store)) == job_ids


async def test_cancelled_and_deleted_jobs_are_not_granted(store: Store, clock: FrozenClock) -> None:
    """Whatever is no longer pending is passed over, due or delayed."""
    cancelled, deleted, kept = await enqueue_many(store, 3)
    delayed_cancelled, delayed_deleted, delayed_kept = await enqueue_many(store, 3, delay=5)
    await store.cancel([cancelled, delayed_cancelled])
    await store.delete([deleted, delayed_deleted])
    assert ids(await claim_jobs(store)) == [kept]
    clock.advance(5)
    assert ids(await claim_jobs(store)) == [delayed_kept]


CLAIMERS = 4
JOBS = 400


async def _run_in_parallel(store: Store, work: Callable[[Store, int], Awaitable[None]]) -> None:
    """Run ``work`` once per claimer, each on a thread, a loop and a sibling of its own, all at once."""
    start = threading.Barrier(CLAIMERS)

    async def one(number: int) -> None:
        sibling = store.sibling()
        await sibling.open()
        try:
            await asyncio.to_thread(start.wait)
            await work(sibling, number)
        finally:
            await sibling.close()

    await asyncio.gather(*(asyncio.to_thread(asyncio.run, one(number)) for number in range(CLAIMERS)))


async def test_concurrent_claimers_never_get_the_same_job(store: Store) -> None:
    """Every job is granted once, under a fence of its own."""
    new = [job(priority=index % 3) for index in range(JOBS)]
    await store.enqueue(new)
    taken: list[list[Claimed]] = [[] for _ in range(CLAIMERS)]

    async def drain(sibling: Store, number: int) -> None:
        while jobs := (await claim_from(sibling, worker=f"worker-{number}", limit=7)).jobs:
            taken[number] += jobs

    await _run_in_parallel(store, drain)
    everything = [claimed for one in taken for claimed in one]
    assert Counter(claimed.lease.job_id for claimed in everything) == Counter(one.id for one in new)
    assert len({claimed.lease.fence for claimed in everything}) == JOBS
    for one in taken:  # between claimers there is no order: their claims may overlap
        assert one == sorted(one, key=lambda claimed: (-claimed.priority, claimed.number))
    assert await store.check() == []


async def test_concurrent_claimers_all_get_their_share(store: Store) -> None:
    """With enough to do nobody goes away with empty hands."""
    await store.enqueue([job() for _ in range(CLAIMERS * 10)])
    shares = [0] * CLAIMERS

    async def take_ten(sibling: Store, number: int) -> None:
        for _ in range(10):
            shares[number] += len((await claim_from(sibling, limit=1)).jobs)

    await _run_in_parallel(store, take_ten)
    assert shares == [10] * CLAIMERS


async def test_concurrent_settlements_of_one_lease_succeed_once(store: Store) -> None:
    """Exactly one of them is told True."""
    await store.enqueue([job() for _ in range(20)])
    leases = [claimed.lease for claimed in (await claim_from(store)).jobs]
    wins: list[list[bool]] = [[] for _ in range(CLAIMERS)]

    async def settle_all(sibling: Store, number: int) -> None:
        for lease in leases:
            wins[number] += await sibling.settle([Settlement(lease, Completed(str(number).encode()))])

    await _run_in_parallel(store, settle_all)
    assert [sum(answers) for answers in zip(*wins, strict=True)] == [1] * len(leases)


async def test_concurrent_enqueues_of_one_key_write_one_job(store: Store) -> None:
    """The losers are told who won."""
    holders: list[list[UUID]] = [[] for _ in range(CLAIMERS)]

    async def enqueue_keys(sibling: Store, number: int) -> None:
        for key in range(20):
            [answer] = await sibling.enqueue([job(key=str(key))])
            holders[number].append(answer.job_id)

    await _run_in_parallel(store, enqueue_keys)
    assert all(len(set(same_key)) == 1 for same_key in zip(*holders, strict=True))
    assert (await store.count(JobFilter(state=State.PENDING))).total == 20


async def test_enqueueing_and_draining_at_once_loses_nothing(store: Store) -> None:
    """Producers and workers share the store; in the end everything is completed, once."""
    done: list[list[UUID]] = [[] for _ in range(CLAIMERS)]

    async def work(sibling: Store, number: int) -> None:
        for _ in range(10):
            await sibling.enqueue([job() for _ in range(5)])
            jobs = (await claim_from(sibling, limit=3)).jobs
            answers = await sibling.settle([Settlement(claimed.lease, Completed()) for claimed in jobs])
            assert all(answers)
            done[number] += [claimed.lease.job_id for claimed in jobs]
        while jobs := (await claim_from(sibling, limit=10)).jobs:
            await sibling.settle([Settlement(claimed.lease, Completed()) for claimed in jobs])
            done[number] += [claimed.lease.job_id for claimed in jobs]

    await _run_in_parallel(store, work)
    finished = [job_id for one in done for job_id in one]
    assert len(finished) == len(set(finished)) == CLAIMERS * 50
    assert (await store.count(JobFilter(state=State.COMPLETED))).total == CLAIMERS * 50
    assert await store.check() == []


async def test_an_empty_store_says_wait_to_be_woken(store: Store) -> None:
    """None: nothing will become due by itself."""
    assert (await claim_from(store)).next_due_in is None


async def test_the_next_delayed_job_is_announced(store: Store, clock: FrozenClock) -> None:
    """In seconds from now, by the store's clock."""
    await enqueue_one(store, delay=30)
    await enqueue_one(store, delay=12.5)
    assert (await claim_from(store)).next_due_in == 12.5
    clock.advance(2)
    assert (await claim_from(store)).next_due_in == 10.5


async def test_a_job_put_off_by_a_retry_is_announced(store: Store) -> None:
    """Its worker need not remember it."""
    await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Retried(8, BOOM))
    assert (await claim_from(store)).next_due_in == 8


async def test_the_next_end_of_a_lease_is_announced(store: Store, clock: FrozenClock) -> None:
    """Somebody has to be there when a dead worker's job comes free, whichever topic it is of."""
    await enqueue_one(store)
    await claim_one(store, lease_seconds=20)
    await enqueue_one(store, "other", delay=100)
    assert (await claim_from(store)).next_due_in == 20
    clock.advance(5)
    assert (await claim_from(store, "other")).next_due_in == 15


async def test_the_end_of_a_pause_is_announced_when_jobs_wait_for_it(
    store: Store, clock: FrozenClock
) -> None:
    """Only of a topic that was asked for and has jobs that are due."""
    until = clock.now() + 40_000_000
    await make_completed(store)
    await store.pause(TOPIC, until)
    assert (await claim_from(store)).next_due_in is None
    await enqueue_one(store)
    assert (await claim_from(store)).next_due_in == 40
    assert (await claim_from(store, "other")).next_due_in is None


async def test_a_pause_without_end_announces_nothing(store: Store) -> None:
    """Somebody will resume it, and that wakes."""
    await store.pause(TOPIC, FOREVER)
    await enqueue_one(store)
    assert (await claim_from(store)).next_due_in is None


async def test_what_a_claim_grants_is_not_announced_by_it(store: Store) -> None:
    """The worker knows the leases it was just given."""
    await enqueue_one(store)
    assert (await claim_from(store)).next_due_in is None


async def test_a_claim_that_took_all_it_may_says_ask_again_at_once(store: Store) -> None:
    """A full hand says nothing about what is left."""
    await enqueue_many(store, 3)
    assert (await claim_from(store, limit=2)).next_due_in == 0
    assert (await claim_from(store, limit=2)).next_due_in == LEASE_SECONDS


async def test_the_earliest_of_all_reasons_wins(store: Store, clock: FrozenClock) -> None:
    """Delayed job, lease, pause: whichever comes first."""
    await enqueue_one(store, "paused")
    await store.pause("paused", clock.now() + 10_000_000)
    await enqueue_one(store)
    await claim_one(store, lease_seconds=20)
    assert (await claim_from(store, TOPIC, "paused")).next_due_in == 10
    await enqueue_one(store, delay=5)
    assert (await claim_from(store, TOPIC, "paused")).next_due_in == 5
