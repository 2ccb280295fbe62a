"""Jobs waiting in a worker, and how many it asks for."""

from __future__ import annotations

from uuid import UUID

from tidewheel import Tidewheel
from tidewheel.core.clock import SystemClock
from tidewheel.core.model import BodyFormat, Claimed, Lease
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker.active_jobs import ActiveJob
from tidewheel.worker.slots import (
    BUSY_OFFER_DELAY_SECONDS,
    MIN_CLAIM_SIZE,
    OFFER_DELAY_SECONDS,
    TARGET_CLAIM_SECONDS,
    Slots,
)

_app = Tidewheel("memory://")


@_app.task
async def noop() -> None: ...


def held(priority: int = 0, *, losses: int = 0) -> ActiveJob:
    job = Claimed(
        Lease(UUID(int=1), 1), "noop", "noop", "root", priority, 1, 3, None, None, 60.0, b"{}",
        BodyFormat.JSON, None, 1, 0, 0, None, None, None, None, None, losses,
    )  # fmt: skip
    return ActiveJob.from_claim(0.0, job, noop)


def slots(concurrency: int = 10, prefetch: int | None = None) -> Slots:
    return Slots(concurrency, prefetch, {}, SystemClock())


def order(waiting: Slots) -> list[tuple[int, int]]:
    return [(one.job.priority, one.job.losses) for one in waiting.waiting]


def test_an_urgent_job_overtakes_what_was_claimed_before_it() -> None:
    """A thousand prefetched jobs are no reason for an urgent one to wait."""
    some = slots()
    for priority in (5, 0, 0, 7, 0, 7):
        some.queue_job(held(priority))
    assert [priority for priority, _ in order(some)] == [7, 7, 5, 0, 0, 0]


def test_jobs_of_one_priority_start_in_the_order_they_were_claimed() -> None:
    """First in, first out."""
    some = slots()
    jobs = [held() for _ in range(5)]
    for job in jobs:
        some.queue_job(job)
    assert list(some.waiting) == jobs


def test_suspects_go_first_in_the_order_they_were_claimed() -> None:
    """Other jobs wait behind them, because few may run while a suspect does."""
    some = slots()
    some.queue_job(held(0, losses=1))
    some.queue_job(held(9))
    some.queue_job(held(0))
    some.queue_job(held(5, losses=2))
    assert order(some) == [(0, 1), (5, 2), (9, 0), (0, 0)]


def test_a_job_that_lost_two_workers_runs_alone() -> None:
    """After the first loss it shares half of the slots; an ordinary job shares all of them."""
    assert [slots(10).max_concurrent_with(held(losses=losses)) for losses in range(5)] == [10, 5, 1, 1, 1]
    assert [slots(100).max_concurrent_with(held(losses=losses)) for losses in range(4)] == [100, 50, 1, 1]
    assert [slots(2).max_concurrent_with(held(losses=losses)) for losses in range(2)] == [2, 1]
    assert [slots(1).max_concurrent_with(held(losses=losses)) for losses in range(2)] == [1, 1]


def test_a_running_suspect_narrows_its_worker_until_it_leaves() -> None:
    """The strictest suspect decides, and the slots are free again after the last one."""
    some = slots(8)
    first, second = held(losses=1), held(losses=2)
    some.add_suspect(first)
    assert some.free == 4
    some.add_suspect(second)
    assert some.free == 1
    assert (some.remove_suspect(second), some.remove_suspect(second), some.free) == (True, False, 4)
    assert (some.remove_suspect(first), some.free) == (True, 8)
    assert [first.runs_alone, second.runs_alone] == [False, True]


def test_claims_become_smaller_where_the_store_takes_long_for_them() -> None:
    """An urgent job has to wait for the claim under way, so that one must be short."""
    some = slots(concurrency=5000)
    assert some.claim_limit() == MAX_BATCH
    for _ in range(20):
        some.record_claim(1000, 1.5 * TARGET_CLAIM_SECONDS)
    assert 620 < some.claim_limit() < 720
    for _ in range(50):
        some.record_claim(600, 100.0)
    assert some.claim_limit() == MIN_CLAIM_SIZE
    for _ in range(50):
        some.record_claim(600, TARGET_CLAIM_SECONDS / 100)
    assert some.claim_limit() > 900


def test_a_claim_that_brought_little_says_nothing_about_its_speed() -> None:
    """What a claim costs apart from its jobs must not make it smaller."""
    some = slots(concurrency=5000)
    some.record_claim(3, 1.0)
    assert some.claim_limit() == MAX_BATCH


# -- topics with limits -------------------------------------------------------------------------------------


def test_an_idle_worker_offers_twice_as_many_slots_while_nobody_else_takes_the_room() -> None:
    """One at first: with all of them whoever wakes up first would take all the room there is."""
    some = Slots(10, None, {}, FrozenClock())
    offers = []
    for kept_back in (True, True, True, True, False):
        offers.append(some.take_offer())
        some.record_claim(offers[-1] if kept_back else 0, 0.001, kept_back=kept_back)
        assert some.next_offer_in(kept_back=kept_back) == (OFFER_DELAY_SECONDS if kept_back else None)
    assert offers == [1, 2, 4, 8, 10]
    assert some.take_offer() == 1, "somebody took what was left"


def test_a_rate_that_lets_some_start_is_used_up_by_the_next_claim() -> None:
    """What was granted last is offered again, and not one."""
    some = Slots(100, None, {}, FrozenClock())
    some.take_offer()
    some.record_claim(20, 0.001)
    assert some.take_offer() == 20


def test_a_busy_worker_fills_its_own_places_and_takes_more_once_in_a_while() -> None:
    """Those of others are about to be filled by them; but one that died has left room for good."""
    clock = FrozenClock()
    some = Slots(10, None, {}, clock)
    some.take_offer()
    some.record_claim(0, 0.001)
    some.freed = 3
    assert some.take_offer() == 3
    some.record_claim(3, 0.001, kept_back=True)
    assert some.next_offer_in(kept_back=True) == BUSY_OFFER_DELAY_SECONDS
    clock.advance(BUSY_OFFER_DELAY_SECONDS)
    some.freed = 3
    assert some.take_offer() == 4
    some.record_claim(4, 0.001, kept_back=True)
    assert some.next_offer_in(kept_back=True) == OFFER_DELAY_SECONDS


def test_a_worker_that_is_full_offers_nothing_and_does_not_come_back_for_it() -> None:
    """The end of a job makes it ask again."""
    some = Slots(2, None, {}, FrozenClock())
    some.running = 2
    assert some.take_offer() == 0
    assert some.next_offer_in(kept_back=True) is None
