"""Counts, times and series (Q28)."""

from __future__ import annotations

import pytest

from tidewheel.core.model import Cancelled, Completed, Failed, Outcome, Released, Retried, State
from tidewheel.core.reports import Distribution, MinuteStats, TaskActivity, TopicStats
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    LEASE_SECONDS,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    job,
    make_cancelled,
    make_completed,
    make_failed,
    settle_one,
)

HOUR = 3600.0
MINUTE = 60_000_000


async def test_an_empty_store_has_empty_statistics(store: Store) -> None:
    """Zeroes and nothing measured, not an error."""
    stats = await store.stats(window_seconds=HOUR)
    assert (stats.pending, stats.running, stats.completed, stats.failed, stats.cancelled) == (0,) * 5
    assert (stats.delayed, stats.oldest_due_at, stats.topics, stats.series) == (0, None, (), ())
    assert (stats.run_time, stats.wait_time) == (Distribution(), Distribution())
    assert (stats.success_rate, stats.window_seconds) == (None, HOUR)


async def test_counts_by_state_overall_and_by_topic(store: Store) -> None:
    """All kept jobs, each in one state; topics by name."""
    await make_completed(store, "b")
    await make_failed(store, "b")
    await make_cancelled(store, "a")
    await enqueue_one(store, "a", delay=60)
    await enqueue_many(store, 2, "b")
    await claim_one(store, "b")
    stats = await store.stats(window_seconds=HOUR)
    assert (stats.pending, stats.running, stats.completed, stats.failed, stats.cancelled) == (2, 1, 1, 1, 1)
    assert stats.delayed == 1
    assert stats.success_rate == 0.5
    assert stats.topics == (
        TopicStats("a", pending=1, cancelled=1),
        TopicStats("b", pending=1, running=1, completed=1, failed=1),
    )
    assert list(stats.topics) == await store.topics()


async def test_the_success_rate_is_of_jobs_that_ended_in_the_window(store: Store, clock: FrozenClock) -> None:
    """Neither of older ones nor of cancelled ones, and whatever has been deleted since."""
    await make_failed(store)
    clock.advance(2 * HOUR)
    assert (await store.stats(window_seconds=HOUR)).success_rate is None
    for _ in range(2):
        await make_completed(store)
    await store.delete([await make_completed(store), await make_cancelled(store)])
    last = await make_failed(store)
    assert (await store.stats(window_seconds=HOUR)).success_rate == 0.75
    assert (await store.stats(window_seconds=24 * HOUR)).success_rate == 0.6
    await store.delete([last])
    assert (await store.stats(window_seconds=HOUR)).success_rate == 0.75


async def test_delayed_jobs_stop_being_delayed_when_they_are_due(store: Store, clock: FrozenClock) -> None:
    """Whether or not anybody has claimed since."""
    await enqueue_one(store, delay=10)
    clock.advance(10)
    stats = await store.stats(window_seconds=HOUR)
    assert (stats.pending, stats.delayed) == (1, 0)


async def test_the_oldest_due_job_is_the_one_due_longest(store: Store, clock: FrozenClock) -> None:
    """By when it became due, whatever its priority, number or topic."""
    start = clock.now()
    await enqueue_one(store, "a", delay=30)
    await enqueue_one(store, "b", delay=10, priority=-5)
    late = await enqueue_one(store, "a", delay=20, priority=9)
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at is None
    clock.advance(40)
    prompt = await enqueue_one(store, "c")
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at == start + 10_000_000
    await claim_jobs(store, "b")
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at == start + 20_000_000
    await store.cancel([late])
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at == start + 30_000_000
    await claim_jobs(store, "a")
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at == clock.now()
    await store.delete([prompt])
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at is None


async def test_the_oldest_due_job_is_found_among_many_lanes(store: Store, clock: FrozenClock) -> None:
    """Whether it is the first of all jobs, behind others that are delayed, or behind others of its lane."""
    start = clock.now()
    await enqueue_one(store, "lane-50", priority=-5)
    clock.advance(1)
    await store.enqueue([job(f"lane-{number}", priority=number % 3) for number in range(120)])
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at == start
    await claim_jobs(store, "lane-50", limit=2)
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at == start + 1_000_000


async def test_the_oldest_due_job_is_found_behind_many_delayed_ones(store: Store, clock: FrozenClock) -> None:
    """However many came before it; and whatever is ready for a second time before it."""
    for topic in ("a", "b"):
        await enqueue_many(store, 600, topic, delay=HOUR)
    again = await enqueue_one(store, "lane-50", priority=-5)
    await store.cancel([again])
    clock.advance(1)
    await enqueue_one(store, "lane-50", priority=-5)
    clock.advance(1)
    await store.enqueue([job(f"lane-{number}", priority=number % 3) for number in range(120)])
    clock.advance(1)
    await store.requeue([again])  # due as of now, and still the first of its lane and priority
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at == clock.now() - 2_000_000


async def test_a_job_given_back_can_be_the_oldest_due(store: Store, clock: FrozenClock) -> None:
    """It became due when it became due, not when it came back."""
    start = clock.now()
    await enqueue_one(store, priority=-1)
    clock.advance(5)
    await enqueue_one(store, priority=1)
    clock.advance(5)
    first, second = await claim_jobs(store)
    await settle_one(store, first.lease, Retried(1, BOOM))
    await settle_one(store, second.lease, Released())
    clock.advance(5)
    assert (await store.stats(window_seconds=HOUR)).oldest_due_at == start


async def test_the_series_counts_what_happened_in_each_minute(store: Store, clock: FrozenClock) -> None:
    """Oldest first, minutes without anything left out, duplicates not counted as enqueued."""
    first = clock.now() - clock.now() % MINUTE
    await store.enqueue([job(key="k"), job(key="k"), job(), job("other"), job()])
    clock.advance(180)
    await settle_one(store, (await claim_one(store)).lease, Completed())
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    await settle_one(store, (await claim_one(store)).lease, Retried(0, BOOM))
    await settle_one(store, (await claim_one(store)).lease, Released())
    await settle_one(store, (await claim_one(store)).lease, Cancelled(BOOM))
    stats = await store.stats(window_seconds=HOUR)
    assert stats.series == (
        MinuteStats(first, enqueued=4),
        MinuteStats(first + 3 * MINUTE, completed=1, failed=1, retried=1, cancelled=1),
    )


async def test_endings_by_the_store_itself_are_in_the_series(store: Store, clock: FrozenClock) -> None:
    """Cancelled by an operator, expired, failed for a lost worker."""
    await make_cancelled(store)
    await enqueue_one(store, expires_in=30.0)
    await enqueue_one(store, "other", max_attempts=1)
    await claim_one(store, "other", lease_seconds=30)
    clock.advance(30)
    await store.rescue()
    [minute] = (await store.stats(window_seconds=HOUR)).series
    assert (minute.enqueued, minute.cancelled, minute.failed) == (3, 2, 1)


async def test_a_retry_that_ends_as_cancelled_is_counted_as_cancelled(store: Store) -> None:
    """What became of the job is what is counted."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store)
    await store.cancel([job_id])
    await settle_one(store, claimed.lease, Retried(0, BOOM))
    [minute] = (await store.stats(window_seconds=HOUR)).series
    assert (minute.cancelled, minute.retried) == (1, 0)


async def test_a_minute_of_releases_and_rescues_is_not_in_the_series(
    store: Store, clock: FrozenClock
) -> None:
    """Nothing that is counted happened in it."""
    await enqueue_one(store)
    clock.advance(120)
    await settle_one(store, (await claim_one(store)).lease, Released(), 1.0)
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    assert (await store.rescue()).returned == 1
    assert [one.enqueued for one in (await store.stats(window_seconds=HOUR)).series] == [1]


async def test_the_window_covers_the_minutes_that_began_in_it(store: Store, clock: FrozenClock) -> None:
    """A minute is in or out as a whole, by its start."""
    clock.advance((MINUTE - clock.now() % MINUTE) / 1e6)
    start = clock.now()
    await enqueue_one(store)
    clock.advance(600)
    assert [one.minute for one in (await store.stats(window_seconds=600)).series] == [start]
    clock.advance(0.000001)
    assert (await store.stats(window_seconds=600)).series == ()
    assert len((await store.stats(window_seconds=601)).series) == 1


async def test_minutes_that_are_still_to_come_are_left_out(store: Store, clock: FrozenClock) -> None:
    """After a step back of the clock, what was counted before it is not of the last hour."""
    clock.advance((MINUTE - clock.now() % MINUTE) / 1e6)
    await make_completed(store)
    await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Completed(), 1.0)
    counted = await store.stats(window_seconds=HOUR)
    clock.step(-600)
    stats = await store.stats(window_seconds=HOUR)
    assert (stats.series, stats.run_time, stats.wait_time) == ((), Distribution(), Distribution())
    assert stats.completed == 2, "jobs are counted as before"
    [lane] = await store.lanes(window_seconds=HOUR)
    assert (lane.completed, lane.activity) == (2, TaskActivity())
    begin = clock.now()
    await enqueue_one(store)
    assert (await store.stats(window_seconds=HOUR)).series == (MinuteStats(begin, enqueued=1),)
    clock.advance(600)
    assert (await store.stats(window_seconds=HOUR)).series == (
        MinuteStats(begin, enqueued=1),
        *counted.series,
    )


async def test_two_days_of_minutes_are_kept(store: Store, clock: FrozenClock) -> None:
    """However wide the window, nothing older is told."""
    clock.advance((MINUTE - clock.now() % MINUTE) / 1e6)
    await enqueue_one(store)
    clock.advance(48 * HOUR)
    assert len((await store.stats(window_seconds=100 * HOUR)).series) == 1
    clock.advance(0.000001)
    assert (await store.stats(window_seconds=100 * HOUR)).series == (), "thrown away already or not"


async def test_run_times_and_wait_times_are_summed_up(store: Store, clock: FrozenClock) -> None:
    """Run time is what the worker measured; wait time is from due to the recorded start."""
    for run_seconds in (1.0, 2.0, 3.0, 10.0):
        await enqueue_one(store)
        claimed = await claim_one(store)
        clock.advance(4)
        await store.mark_started([claimed.lease])
        clock.advance(run_seconds)
        await settle_one(store, claimed.lease, Completed(), run_seconds)
    stats = await store.stats(window_seconds=HOUR)
    assert (stats.run_time.count, stats.run_time.average) == (4, 4.0)
    assert stats.run_time.p50 == pytest.approx(2.0, rel=0.125)
    assert stats.run_time.p95 == pytest.approx(10.0, rel=0.125)
    assert stats.run_time.p99 == pytest.approx(10.0, rel=0.125)
    assert (stats.wait_time.count, stats.wait_time.average) == (4, 4.0)


async def test_without_a_recorded_start_the_wait_ends_where_the_run_began(
    store: Store, clock: FrozenClock
) -> None:
    """Settle time less run time, and never below zero."""
    await enqueue_one(store)
    claimed = await claim_one(store)
    clock.advance(10)
    await settle_one(store, claimed.lease, Completed(), 4.0)
    assert (await store.stats(window_seconds=HOUR)).wait_time.average == 6.0
    await enqueue_one(store)
    claimed = await claim_one(store)
    await settle_one(store, claimed.lease, Completed(), 4.0)
    assert (await store.stats(window_seconds=HOUR)).wait_time.average == 3.0


@pytest.mark.parametrize(
    ("outcome", "run_times"),
    [
        (Completed(), 1),
        (Retried(0, BOOM), 1),
        (Failed(BOOM), 1),
        (Released(), 0),
        (Cancelled(BOOM), 0),
    ],
)
async def test_which_settlements_are_measured(store: Store, outcome: Outcome, run_times: int) -> None:
    """Attempts that ran their course count as run time; every handler that started had waited."""
    await enqueue_many(store, 2)
    first, second = await claim_jobs(store)
    await settle_one(store, first.lease, outcome, 1.0)
    await settle_one(store, second.lease, outcome)
    stats = await store.stats(window_seconds=HOUR)
    assert (stats.run_time.count, stats.wait_time.count) == (run_times, 1)


async def test_times_outside_the_window_are_left_out(store: Store, clock: FrozenClock) -> None:
    """Percentiles of the last hour are of the last hour."""
    await enqueue_one(store)
    await settle_one(store, (await claim_one(store)).lease, Completed(), 1.0)
    clock.advance(2 * HOUR)
    stats = await store.stats(window_seconds=HOUR)
    assert (stats.run_time, stats.wait_time, stats.completed) == (Distribution(), Distribution(), 1)


async def test_a_tenant_sees_its_own_counts_only(store: Store, clock: FrozenClock) -> None:
    """Nothing of anybody else can be seen or inferred; times and series are everybody's, so not shown."""
    await enqueue_one(store, "theirs", tenant="them")
    clock.advance(5)
    await enqueue_one(store, "shared", tenant="them", delay=60)
    await enqueue_one(store, "shared", tenant="us", delay=60)
    mine = clock.now()
    await make_completed(store, "shared", tenant="us")
    await enqueue_one(store, "shared", tenant="us")
    await store.pause("theirs", mine + MINUTE)
    await store.pause("shared", mine + MINUTE)
    stats = await store.stats(window_seconds=HOUR, tenant="us")
    assert (stats.pending, stats.completed, stats.delayed, stats.oldest_due_at) == (2, 1, 1, mine)
    assert stats.topics == (TopicStats("shared", pending=2, completed=1, paused_until=mine + MINUTE),)
    assert (stats.run_time, stats.wait_time, stats.series) == (Distribution(), Distribution(), ())
    nobody = await store.stats(window_seconds=HOUR, tenant="nobody")
    assert (nobody.pending, nobody.topics, nobody.oldest_due_at) == (0, (), None)


async def test_counts_follow_a_job_through_its_whole_life(store: Store, clock: FrozenClock) -> None:
    """After every move each job is counted once, in its present state."""
    job_id = await enqueue_one(store, delay=1)

    async def now_in(state: State) -> bool:
        stats = await store.stats(window_seconds=HOUR)
        counts = {name: getattr(stats, name) for name in State}
        return counts == {name: int(name is state) for name in State} and await store.check() == []

    assert await now_in(State.PENDING)
    clock.advance(1)
    claimed = await claim_one(store)
    assert await now_in(State.RUNNING)
    await settle_one(store, claimed.lease, Retried(5, BOOM))
    assert await now_in(State.PENDING)
    clock.advance(5)
    await claim_one(store)
    clock.advance(LEASE_SECONDS)
    await store.rescue()
    assert await now_in(State.PENDING)
    await settle_one(store, (await claim_one(store)).lease, Failed(BOOM))
    assert await now_in(State.FAILED)
    await store.requeue([job_id])
    await store.cancel([job_id])
    assert await now_in(State.CANCELLED)
    await store.requeue([job_id])
    await settle_one(store, (await claim_one(store)).lease, Completed())
    assert await now_in(State.COMPLETED)
    await store.delete([job_id])
    assert (await store.stats(window_seconds=HOUR)).completed == 0
