"""Jobs waiting in a worker, and how many it asks for."""

from __future__ import annotations

from uuid import UUID

from windlass import Windlass
from windlass.clock import SystemClock
from windlass.model import BodyFormat, Claimed, Lease
from windlass.stores.protocol import MAX_BATCH
from windlass.worker.held import Held
from windlass.worker.slots import CLAIM_SECONDS, LEAST_CLAIMED, Slots

_app = Windlass("memory://")


@_app.task
async def noop() -> None: ...


def held(priority: int = 0, *, alone: bool = False) -> Held:
    job = Claimed(
        Lease(UUID(int=1), 1), "noop", "noop", "root", priority, 1, 3, None, None, 60.0, b"{}",
        BodyFormat.JSON, None, 1, 0, 0, None, None, None, None, None, alone,
    )  # fmt: skip
    return Held.since(0.0, job, noop)


def slots(concurrency: int = 10, prefetch: int | None = None) -> Slots:
    return Slots(concurrency, prefetch, {}, SystemClock())


def order(waiting: Slots) -> list[tuple[int, bool]]:
    return [(one.job.priority, one.job.alone) for one in waiting.waiting]


def test_an_urgent_job_overtakes_what_was_claimed_before_it() -> None:
    """A thousand prefetched jobs are no reason for an urgent one to wait."""
    some = slots()
    for priority in (5, 0, 0, 7, 0, 7):
        some.take_in(held(priority))
    assert [priority for priority, _ in order(some)] == [7, 7, 5, 0, 0, 0]


def test_jobs_of_one_priority_start_in_the_order_they_were_claimed() -> None:
    """First in, first out."""
    some = slots()
    jobs = [held() for _ in range(5)]
    for job in jobs:
        some.take_in(job)
    assert list(some.waiting) == jobs


def test_a_job_granted_alone_goes_first_whatever_comes_later() -> None:
    """It waits for nobody, because nobody else is to be held while it runs."""
    some = slots()
    some.take_in(held(0, alone=True))
    some.take_in(held(9))
    some.take_in(held(0))
    some.take_in(held(5))
    assert order(some) == [(0, True), (9, False), (5, False), (0, False)]


def test_claims_become_smaller_where_the_store_takes_long_for_them() -> None:
    """An urgent job has to wait for the claim under way, so that one must be short."""
    some = slots(concurrency=5000)
    assert some.to_claim() == MAX_BATCH
    for _ in range(20):
        some.claimed(1000, 1.5 * CLAIM_SECONDS)
    assert 620 < some.to_claim() < 720
    for _ in range(50):
        some.claimed(600, 100.0)
    assert some.to_claim() == LEAST_CLAIMED
    for _ in range(50):
        some.claimed(600, CLAIM_SECONDS / 100)
    assert some.to_claim() > 900


def test_a_claim_that_brought_little_says_nothing_about_its_speed() -> None:
    """What a claim costs apart from its jobs must not make it smaller."""
    some = slots(concurrency=5000)
    some.claimed(3, 1.0)
    assert some.to_claim() == MAX_BATCH
