"""Limits of topics: how much runs at once, how fast, in which order, and for whom (Q24)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from tidewheel.core.model import FOREVER, Cancelled, Completed, Failed, JobFilter, Lane, Released, Retried
from tidewheel.core.topic_limits import LimitsOrigin, Rate, TopicLimits
from tidewheel.errors import InvalidInput
from tidewheel.stores.bounds import MAX_SCANNED_KEYS, MAX_SCANNED_PER_LANE
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    TOPIC,
    claim_from,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    ids,
    job,
    settle_one,
)

# -- setting ------------------------------------------------------------------------------------------------


async def test_limits_are_kept_until_they_are_removed(store: Store) -> None:
    """What was set is what is told, of every topic that has some."""
    assert await store.limits() == {}
    everything = TopicLimits(
        concurrency=3,
        rate=Rate(50, 2.5, 10),
        key_rate=Rate(1, 60),
        ordered=True,
        fair=True,
        weights={"acme": 3, "beta": 1},
    )
    assert await store.set_limits("b", everything)
    assert await store.set_limits("a", TopicLimits(key_concurrency=2))
    assert await store.limits() == {"a": TopicLimits(key_concurrency=2), "b": everything}
    assert await store.set_limits("a", TopicLimits(concurrency=9))
    assert await store.set_limits("b", None)
    assert await store.set_limits("b", None)
    assert await store.limits() == {"a": TopicLimits(concurrency=9)}


async def test_what_an_operator_set_stands_over_what_code_declares(store: Store) -> None:
    """Until it is removed; then code has its say again."""
    declared = TopicLimits(concurrency=5, origin=LimitsOrigin.CODE)
    assert await store.set_limits(TOPIC, declared)
    assert await store.set_limits(TOPIC, TopicLimits(concurrency=1))
    assert not await store.set_limits(TOPIC, declared)
    assert (await store.limits())[TOPIC].concurrency == 1
    assert await store.set_limits(TOPIC, None)
    assert await store.set_limits(TOPIC, declared)
    assert await store.limits() == {TOPIC: declared}


async def test_a_pause_and_limits_of_a_topic_leave_each_other_alone(store: Store, clock: FrozenClock) -> None:
    """Neither ends with the other."""
    await enqueue_many(store, 3)
    await store.set_limits(TOPIC, TopicLimits(concurrency=1))
    await store.pause(TOPIC, clock.now() + 10_000_000)
    assert await claim_jobs(store) == []
    assert (await claim_from(store)).next_due_in == 10.0
    await store.pause(TOPIC, None)
    assert len(await claim_jobs(store)) == 1
    await store.pause(TOPIC, FOREVER)
    await store.set_limits(TOPIC, None)
    assert await claim_jobs(store) == []
    await store.pause(TOPIC, None)
    assert len(await claim_jobs(store)) == 2


async def test_topics_without_limits_are_claimed_as_ever(store: Store) -> None:
    """Also beside those that have some, in one order."""
    await store.set_limits("limited", TopicLimits(concurrency=2))
    a = await enqueue_one(store, "limited")
    b = await enqueue_one(store, "plain")
    c = await enqueue_one(store, "limited")
    d = await enqueue_one(store, "limited", priority=1)
    e = await enqueue_one(store, "plain", priority=1)
    assert ids(await claim_jobs(store, "plain", "limited", limit=3)) == [d, e, a]
    assert ids(await claim_jobs(store, "plain", "limited")) == [b]
    assert await claim_jobs(store, "plain", "limited") == []
    assert (await get_job(store, c)).reserves == 0


async def test_limits_that_make_no_sense_are_refused() -> None:
    """With the value, the limit and the remedy."""
    for arguments in (
        {},
        {"concurrency": 0},
        {"key_concurrency": 1_000_001},
        {"concurrency": True},
        {"weights": {"a": 1}, "concurrency": 1},
        {"fair": True, "weights": {"a": 0}},
        {"fair": True, "weights": {"not a tenant": 1}},
        {"ordered": True, "key_concurrency": 2},
    ):
        with pytest.raises(InvalidInput):
            TopicLimits(**arguments)
    for rate in (
        (0,),
        (1, 0.0),
        (1, -1.0),
        (1, float("nan")),
        (1, 1e9),
        (2_000_000,),
        (5, 1.0, 0),
        (5, 0.000001),
    ):
        with pytest.raises(InvalidInput):
            Rate(*rate)


# -- concurrency --------------------------------------------------------------------------------------------


async def test_no_more_of_a_topic_run_than_its_limit(store: Store) -> None:
    """Whoever asks, however many are due; one that ends makes room for one."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=3))
    job_ids = await enqueue_many(store, 6)
    first = await claim_jobs(store, limit=2)
    second = await claim_jobs(store, worker="worker-2")
    assert ids(first) + ids(second) == job_ids[:3]
    assert await claim_jobs(store) == []
    await settle_one(store, first[0].lease, Completed())
    assert ids(await claim_jobs(store)) == [job_ids[3]]


@pytest.mark.parametrize(
    "outcome",
    [Completed(), Failed(BOOM), Cancelled(BOOM), Retried(60, BOOM), Released(60)],
    ids=lambda o: type(o).__name__,
)
async def test_a_slot_is_free_however_its_job_ends(store: Store, outcome: object) -> None:
    """Nothing is counted that could be counted wrongly."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=1))
    await enqueue_one(store)
    waiting = await enqueue_one(store)
    running = await claim_one(store)
    assert await claim_jobs(store) == []
    await settle_one(store, running.lease, outcome)  # type: ignore[arg-type]
    assert ids(await claim_jobs(store)) == [waiting]


async def test_the_slot_of_a_dead_worker_is_free_when_its_lease_ends(
    store: Store, clock: FrozenClock
) -> None:
    """Not earlier, not later, and not twice."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=2))
    job_ids = await enqueue_many(store, 4)
    await claim_jobs(store, limit=2, lease_seconds=30)
    clock.advance(29.999999)
    assert await claim_jobs(store) == []
    clock.advance(0.000001)
    again = [*await claim_jobs(store), *await claim_jobs(store)]  # suspects come alone
    assert ids(again) == job_ids[:2]
    assert await claim_jobs(store) == []


async def test_what_runs_when_a_limit_is_set_counts(store: Store) -> None:
    """Also jobs without a key, however their store keeps them while they run."""
    await enqueue_many(store, 60)
    running = await claim_jobs(store, limit=40)
    await store.set_limits(TOPIC, TopicLimits(concurrency=40))
    assert await claim_jobs(store) == []
    for one in running[:2]:
        await settle_one(store, one.lease, Completed())
    assert len(await claim_jobs(store)) == 2


async def test_all_tasks_of_a_topic_share_its_limit(store: Store) -> None:
    """Also those that the claimer does not run."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=2))
    await enqueue_one(store, task="a")
    b = await enqueue_many(store, 2, task="b")
    await claim_one(store, Lane(TOPIC, "a"))
    assert ids(await claim_jobs(store, Lane(TOPIC, "b"))) == b[:1]
    assert await claim_jobs(store, Lane(TOPIC, "b"), Lane(TOPIC, "a")) == []


async def test_keys_are_limited_one_by_one(store: Store) -> None:
    """Jobs without a key are not; a full key is passed over."""
    await store.set_limits(TOPIC, TopicLimits(key_concurrency=2))
    a = await enqueue_many(store, 3, limit_key="a")
    b = await enqueue_many(store, 3, limit_key="b")
    none = await enqueue_many(store, 3)
    running = await claim_jobs(store)
    assert ids(running) == [*a[:2], *b[:2], *none]
    assert await claim_jobs(store) == []
    await settle_one(store, running[2].lease, Completed())
    assert ids(await claim_jobs(store)) == [b[2]]


async def test_keys_of_two_tenants_have_nothing_to_do_with_each_other(store: Store) -> None:
    """The same word of two tenants is two keys: neither can tell what the other runs."""
    await store.set_limits(TOPIC, TopicLimits(key_concurrency=1, key_rate=Rate(1, 60, 1)))
    mine = await enqueue_many(store, 2, limit_key="k", tenant="mine")
    theirs = await enqueue_many(store, 2, limit_key="k", tenant="theirs")
    running = await claim_jobs(store)
    assert ids(running) == [mine[0], theirs[0]]
    assert await claim_jobs(store) == []
    await store.set_limits(TOPIC, TopicLimits(key_concurrency=1))
    await settle_one(store, running[1].lease, Completed())
    assert ids(await claim_jobs(store)) == [theirs[1]]


async def test_both_limits_hold_at_once(store: Store) -> None:
    """Of the topic, and of each key."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=3, key_concurrency=2))
    a = await enqueue_many(store, 3, limit_key="a")
    b = await enqueue_many(store, 3, limit_key="b")
    assert ids(await claim_jobs(store)) == [*a[:2], b[0]]


async def test_a_job_granted_by_its_id_runs_beyond_the_limit_and_counts(store: Store) -> None:
    """Whoever names a job gets it; others see one slot less."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=2))
    job_ids = await enqueue_many(store, 4)
    await claim_jobs(store)
    named = await store.claim_job(job_ids[3], worker="by-hand", lease_seconds=60)
    assert named is not None
    assert await claim_jobs(store) == []
    await store.set_limits(TOPIC, TopicLimits(concurrency=3))
    assert await claim_jobs(store) == []


async def test_a_claim_passes_over_any_number_of_jobs_without_room(store: Store) -> None:
    """A full key does not hide the others, however long its line."""
    await store.set_limits(TOPIC, TopicLimits(key_concurrency=1))
    crowd = [job(limit_key="full", task="t") for _ in range(MAX_SCANNED_PER_LANE + 50)]
    await store.enqueue(crowd)
    other = await enqueue_one(store, limit_key="other", task="t")
    [first, second] = await claim_jobs(store, Lane(TOPIC, "t"), limit=5)
    assert ids([first, second]) == [crowd[0].id, other]
    late = await enqueue_one(store, limit_key="late", task="t")
    assert ids(await claim_jobs(store, Lane(TOPIC, "t"))) == [late]


async def test_room_is_filled_from_beyond_the_first_jobs(store: Store) -> None:
    """Several tasks, keys full at the front of each: what has room further back is found in order."""
    await store.set_limits(TOPIC, TopicLimits(key_concurrency=1))
    for task in ("t", "u"):
        await store.enqueue([job(limit_key="full", task=task) for _ in range(60)])
    u = await enqueue_one(store, limit_key="x", task="u")
    t = await enqueue_one(store, limit_key="y", task="t")
    assert ids(await claim_jobs(store))[1:] == [u, t]


async def test_free_slots_bound_what_is_taken_of_limited_topics_only(store: Store) -> None:
    """A job that waits in a worker's hands would use up a limit for nothing."""
    await store.set_limits("limited", TopicLimits(concurrency=9))
    await store.set_limits("fair", TopicLimits(fair=True))
    limited = await enqueue_many(store, 5, "limited")
    fair = await enqueue_many(store, 2, "fair")
    plain = await enqueue_many(store, 2, "plain")
    claimed = await claim_from(store, "limited", "fair", "plain", free=2, limit=8)
    assert ids(list(claimed.jobs)) == [*limited[:2], *fair, *plain]
    assert claimed.needs_more_slots
    none = await claim_from(store, "limited", free=0, limit=8)
    assert (none.jobs, none.needs_more_slots, none.next_due_in) == ((), True, 60.0)
    rest = await claim_from(store, "limited", free=5, limit=8)
    assert (ids(list(rest.jobs)), rest.needs_more_slots) == (limited[2:], False)


async def test_a_worker_s_own_limit_on_a_topic_holds_beside_the_cluster_s(store: Store) -> None:
    """Whichever is smaller."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=3))
    job_ids = await enqueue_many(store, 5)
    assert ids(await claim_jobs(store, topic_limits={TOPIC: 2})) == job_ids[:2]
    assert ids(await claim_jobs(store, topic_limits={TOPIC: 2})) == job_ids[2:3]


async def test_a_suspect_of_a_limited_topic_is_granted_alone(store: Store, clock: FrozenClock) -> None:
    """As everywhere: whoever may have killed its worker takes nobody along."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=5))
    job_ids = await enqueue_many(store, 4)
    await claim_jobs(store, limit=2, lease_seconds=10)
    clock.advance(10)
    for job_id in job_ids[:2]:
        alone = await claim_jobs(store)
        assert (ids(alone), alone[0].losses) == ([job_id], 1)
    assert ids(await claim_jobs(store)) == job_ids[2:]


# -- rates --------------------------------------------------------------------------------------------------


async def test_a_rate_lets_a_burst_start_and_then_one_at_a_time(store: Store, clock: FrozenClock) -> None:
    """And tells when the next may start, to the microsecond."""
    await store.set_limits(TOPIC, TopicLimits(rate=Rate(10, 1.0, 3)))
    job_ids = await enqueue_many(store, 8)
    first = await claim_from(store, lease_seconds=600)
    assert (ids(list(first.jobs)), first.next_due_in) == (job_ids[:3], 0.1)
    clock.advance(0.099999)
    assert await claim_jobs(store) == []
    clock.advance(0.000001)
    second = await claim_from(store, lease_seconds=600)
    assert (ids(list(second.jobs)), second.next_due_in) == ([job_ids[3]], 0.1)
    clock.advance(100)
    assert ids(await claim_jobs(store)) == job_ids[4:7]


async def test_a_rate_holds_over_any_stretch_of_time(store: Store, clock: FrozenClock) -> None:
    """Never more than the burst and what the stretch allows, and nothing of it is lost to claims that come
    late.
    """
    await store.set_limits(TOPIC, TopicLimits(rate=Rate(50, 1.0, 10)))
    await enqueue_many(store, 200)
    starts: list[float] = []
    for _ in range(60):
        for one in await claim_jobs(store, lease_seconds=600):
            starts.append(clock.now() / 1e6)
            await settle_one(store, one.lease, Completed())
        clock.advance(0.05)
    span = starts[-1] - starts[0]
    assert len(starts) >= 10 + 49 * span * 0.99
    for position, began in enumerate(starts):
        within = sum(began <= other <= began + 1.0 for other in starts[position:])
        assert within <= 10 + 50 + 1


async def test_what_a_rate_takes_is_not_given_back(store: Store) -> None:
    """A start is a start, however the job ends."""
    await store.set_limits(TOPIC, TopicLimits(rate=Rate(1, 60, 1)))
    await enqueue_many(store, 2)
    await settle_one(store, (await claim_one(store)).lease, Completed())
    told = await claim_from(store)
    assert (told.jobs, told.next_due_in) == ((), 60.0)


async def test_each_key_has_a_rate_of_its_own(store: Store, clock: FrozenClock) -> None:
    """A key that used its rate up is passed over; the next start of any is told."""
    await store.set_limits(TOPIC, TopicLimits(key_rate=Rate(2, 1.0, 1)))
    a = await enqueue_many(store, 2, limit_key="a")
    b = await enqueue_many(store, 2, limit_key="b")
    assert ids(await claim_jobs(store, limit=1)) == a[:1]
    clock.advance(0.2)
    told = await claim_from(store)
    assert (ids(list(told.jobs)), round(told.next_due_in or 0, 6)) == (b[:1], 0.3)
    clock.advance(0.3)
    assert ids(await claim_jobs(store)) == a[1:]
    clock.advance(0.2)
    assert ids(await claim_jobs(store)) == b[1:]


async def test_a_rate_that_is_changed_holds_nobody_up_for_what_the_one_before_took(
    store: Store, clock: FrozenClock
) -> None:
    """Not for the hour of a slip of the pen; nor is a burst given anew."""
    await store.set_limits(TOPIC, TopicLimits(rate=Rate(1, 3600, 5), key_rate=Rate(1, 7200, 5)))
    job_ids = await enqueue_many(store, 12, limit_key="a")
    assert ids(await claim_jobs(store, lease_seconds=99_999)) == job_ids[:5]
    changed = TopicLimits(rate=Rate(10, 1.0, 2), key_rate=Rate(10, 1.0, 2))
    await store.set_limits(TOPIC, changed)
    told = await claim_from(store)
    assert (told.jobs, told.next_due_in) == ((), 0.1)
    clock.advance(0.1)
    assert ids(await claim_jobs(store)) == job_ids[5:6]
    await store.set_limits(TOPIC, changed)
    assert await claim_jobs(store) == []
    clock.advance(0.2)
    assert ids(await claim_jobs(store)) == job_ids[6:8]


async def test_meters_that_are_back_at_zero_are_pruned(store: Store, clock: FrozenClock) -> None:
    """A thousand keys that were used once leave nothing behind; the others stay."""
    await store.set_limits(TOPIC, TopicLimits(key_rate=Rate(1, 10, 1)))
    await enqueue_many(store, 1, limit_key="old")
    await claim_jobs(store)
    clock.advance(9)
    again = await enqueue_many(store, 2, limit_key="new")
    assert ids(await claim_jobs(store)) == again[:1]
    clock.advance(1)
    await store.prune()
    assert await claim_jobs(store) == []
    old = await enqueue_one(store, limit_key="old")
    assert ids(await claim_jobs(store)) == [old]


# -- strict order -------------------------------------------------------------------------------------------

ORDERED = TopicLimits(ordered=True)


async def test_strict_order_runs_one_of_a_key_after_the_other(store: Store) -> None:
    """In the order in which they were enqueued, whatever their priority; other keys go on."""
    await store.set_limits(TOPIC, ORDERED)
    a = [await enqueue_one(store, limit_key="a"), await enqueue_one(store, limit_key="a", priority=9)]
    b = await enqueue_one(store, limit_key="b")
    free = await enqueue_many(store, 2)
    running = await claim_jobs(store)
    assert ids(running) == [a[0], b, *free]
    assert await claim_jobs(store) == []
    await settle_one(store, running[0].lease, Completed())
    assert ids(await claim_jobs(store)) == [a[1]]


async def test_strict_order_waits_for_a_retry(store: Store, clock: FrozenClock) -> None:
    """First in, first out, across retries and releases."""
    await store.set_limits(TOPIC, ORDERED)
    first, second = await enqueue_many(store, 2, limit_key="a")
    await settle_one(store, (await claim_one(store)).lease, Retried(10, BOOM))
    assert await claim_jobs(store) == []
    assert (await claim_from(store)).next_due_in == 10.0
    clock.advance(10)
    again = await claim_jobs(store)
    assert ids(again) == [first]
    await settle_one(store, again[0].lease, Released(5))
    assert await claim_jobs(store) == []
    clock.advance(5)
    await settle_one(store, (await claim_one(store)).lease, Completed())
    assert ids(await claim_jobs(store)) == [second]


async def test_strict_order_goes_on_after_a_failure_or_a_cancellation(store: Store) -> None:
    """What has ended holds nobody up."""
    await store.set_limits(TOPIC, ORDERED)
    first, second, third, fourth = await enqueue_many(store, 4, limit_key="a")
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    await store.cancel([second])
    await store.delete([third])
    assert ids(await claim_jobs(store)) == [fourth]
    await store.requeue([first])
    assert await claim_jobs(store) == []


async def test_a_delayed_job_joins_its_line_when_it_is_due(store: Store, clock: FrozenClock) -> None:
    """Until then nobody waits for it; then it comes first, by its number."""
    await store.set_limits(TOPIC, ORDERED)
    delayed = await enqueue_one(store, limit_key="a", delay=10)
    prompt = await enqueue_many(store, 2, limit_key="a")
    await settle_one(store, (await claim_one(store)).lease, Completed())
    clock.advance(10)
    assert ids(await claim_jobs(store)) == [delayed]
    assert (await get_job(store, prompt[1])).reserves == 0


async def test_strict_order_holds_across_the_tasks_of_a_topic(store: Store) -> None:
    """A job of a task that nobody here runs holds its key up all the same."""
    await store.set_limits(TOPIC, ORDERED)
    await enqueue_one(store, task="a", limit_key="k")
    await enqueue_one(store, task="b", limit_key="k")
    assert await claim_jobs(store, Lane(TOPIC, "b")) == []
    assert len(await claim_jobs(store, Lane(TOPIC, "a"), Lane(TOPIC, "b"))) == 1


async def test_strict_order_finds_the_first_of_each_key_behind_a_crowd(store: Store) -> None:
    """Also where a later job of the key is more urgent than its first one."""
    await store.set_limits(TOPIC, ORDERED)
    await store.enqueue([job(limit_key="full", task="t") for _ in range(MAX_SCANNED_PER_LANE + 20)])
    first = await enqueue_one(store, limit_key="x", task="t", priority=-5)
    await enqueue_one(store, limit_key="x", task="t", priority=-1)
    assert ids(await claim_jobs(store, Lane(TOPIC, "t")))[1:] == [first]


# -- fair share ---------------------------------------------------------------------------------------------


async def _tenants(store: Store, **options: object) -> Counter[str]:
    return Counter(one.tenant for one in await claim_jobs(store, **options))


async def test_tenants_share_what_runs(store: Store) -> None:
    """The one that came later gets its half, though the other one has a hundred waiting."""
    await store.set_limits(TOPIC, TopicLimits(fair=True))
    await enqueue_many(store, 100, tenant="large")
    assert await _tenants(store, limit=10) == {"large": 10}
    await enqueue_many(store, 20, tenant="small")
    assert await _tenants(store, limit=10) == {"small": 10}
    assert await _tenants(store, limit=10) == {"large": 5, "small": 5}


async def test_weights_say_how_large_a_share_is(store: Store) -> None:
    """Three to one."""
    await store.set_limits(TOPIC, TopicLimits(fair=True, weights={"gold": 3}))
    await enqueue_many(store, 50, tenant="plain")
    await enqueue_many(store, 50, tenant="gold")
    assert await _tenants(store, limit=40) == {"gold": 30, "plain": 10}


async def test_a_fair_share_is_inside_one_priority(store: Store) -> None:
    """What is urgent comes first, whoever it belongs to."""
    await store.set_limits(TOPIC, TopicLimits(fair=True))
    await enqueue_many(store, 5, tenant="calm")
    await enqueue_many(store, 5, tenant="urgent", priority=1)
    assert await _tenants(store, limit=6) == {"urgent": 5, "calm": 1}


async def test_jobs_from_before_a_topic_was_fair_are_shared_too(store: Store) -> None:
    """And those of one tenant alone are all granted."""
    await enqueue_many(store, 6, tenant="before")
    await store.set_limits(TOPIC, TopicLimits(fair=True))
    await enqueue_many(store, 6, tenant="after")
    assert await _tenants(store, limit=6) == {"before": 3, "after": 3}
    assert await _tenants(store) == {"before": 3, "after": 3}


async def test_fair_shares_and_limits_go_together(store: Store) -> None:
    """Four slots for two tenants, one at a time of a key."""
    await store.set_limits(TOPIC, TopicLimits(fair=True, concurrency=4, key_concurrency=1))
    await enqueue_many(store, 5, tenant="a")
    await enqueue_many(store, 5, tenant="b", limit_key="k")
    await enqueue_many(store, 5, tenant="b", limit_key="l")
    assert await _tenants(store) == {"a": 2, "b": 2}
    assert await claim_jobs(store) == []


async def test_no_name_of_a_key_hides_other_tenants(store: Store) -> None:
    """Whoever calls a thousand keys so that they come last takes nobody's share."""
    await store.set_limits(TOPIC, TopicLimits(fair=True))
    last = "\U0010ffff" * 2
    await store.enqueue([job(tenant="a", limit_key=f"{last}{number}") for number in range(MAX_SCANNED_KEYS)])
    other = await enqueue_one(store, tenant="b")
    assert other in ids(await claim_jobs(store, limit=2))


async def test_an_empty_limit_key_is_shown_as_none(store: Store) -> None:
    """What a store notes for itself is nobody's key."""
    await store.set_limits(TOPIC, TopicLimits(fair=True, concurrency=1))
    job_id = await enqueue_one(store)
    assert (await get_job(store, job_id)).limit_key is None
    await claim_jobs(store)
    assert (await get_job(store, job_id)).limit_key is None
    [shown] = (await store.list_jobs(JobFilter(), limit=5)).items
    assert shown.limit_key is None


# -- all at once --------------------------------------------------------------------------------------------


async def test_many_claimers_at_once_never_pass_a_limit(store: Store) -> None:
    """Each through a handle of its own."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=5, key_concurrency=2))
    await store.enqueue([job(limit_key=f"k{number % 4}") for number in range(40)])
    siblings = [store.sibling() for _ in range(6)]
    await asyncio.gather(*[sibling.open() for sibling in siblings])
    try:
        for _ in range(4):
            granted = [
                one
                for claimed in await asyncio.gather(
                    *[claim_jobs(sibling, limit=3, worker=f"w{n}") for n, sibling in enumerate(siblings)]
                )
                for one in claimed
            ]
            assert len(granted) == 5
            keys = Counter([(await get_job(store, one.lease.job_id)).limit_key for one in granted])
            assert max(keys.values()) <= 2
            for one in granted:
                assert await settle_one(store, one.lease, Completed())
    finally:
        await asyncio.gather(*[sibling.close() for sibling in siblings])
