"""When it is worth asking again: ``Claim.next_due_in``."""

from __future__ import annotations

from tidewheel.model import FOREVER
from tidewheel.outcome import Retried
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import (
    BOOM,
    LEASE_SECONDS,
    TOPIC,
    ask,
    claim_one,
    completed,
    end,
    put,
    put_many,
)


async def test_an_empty_store_says_wait_to_be_woken(store: Store) -> None:
    """None: nothing will become due by itself."""
    assert (await ask(store)).next_due_in is None


async def test_the_next_delayed_job_is_announced(store: Store, clock: FrozenClock) -> None:
    """In seconds from now, by the store's clock."""
    await put(store, delay=30)
    await put(store, delay=12.5)
    assert (await ask(store)).next_due_in == 12.5
    clock.advance(2)
    assert (await ask(store)).next_due_in == 10.5


async def test_a_job_put_off_by_a_retry_is_announced(store: Store) -> None:
    """Its worker need not remember it."""
    await put(store)
    await end(store, (await claim_one(store)).lease, Retried(8, BOOM))
    assert (await ask(store)).next_due_in == 8


async def test_the_next_end_of_a_lease_is_announced(store: Store, clock: FrozenClock) -> None:
    """Somebody has to be there when a dead worker's job comes free, whichever topic it is of."""
    await put(store)
    await claim_one(store, lease_seconds=20)
    await put(store, "other", delay=100)
    assert (await ask(store)).next_due_in == 20
    clock.advance(5)
    assert (await ask(store, "other")).next_due_in == 15


async def test_the_end_of_a_pause_is_announced_when_jobs_wait_for_it(
    store: Store, clock: FrozenClock
) -> None:
    """Only of a topic that was asked for and has jobs that are due."""
    until = clock.now() + 40_000_000
    await completed(store)
    await store.pause(TOPIC, until)
    assert (await ask(store)).next_due_in is None
    await put(store)
    assert (await ask(store)).next_due_in == 40
    assert (await ask(store, "other")).next_due_in is None


async def test_a_pause_without_end_announces_nothing(store: Store) -> None:
    """Somebody will resume it, and that wakes."""
    await store.pause(TOPIC, FOREVER)
    await put(store)
    assert (await ask(store)).next_due_in is None


async def test_what_a_claim_grants_is_not_announced_by_it(store: Store) -> None:
    """The worker knows the leases it was just given."""
    await put(store)
    assert (await ask(store)).next_due_in is None


async def test_a_claim_that_took_all_it_may_says_ask_again_at_once(store: Store) -> None:
    """A full hand says nothing about what is left."""
    await put_many(store, 3)
    assert (await ask(store, limit=2)).next_due_in == 0
    assert (await ask(store, limit=2)).next_due_in == LEASE_SECONDS


async def test_the_earliest_of_all_reasons_wins(store: Store, clock: FrozenClock) -> None:
    """Delayed job, lease, pause: whichever comes first."""
    await put(store, "paused")
    await store.pause("paused", clock.now() + 10_000_000)
    await put(store)
    await claim_one(store, lease_seconds=20)
    assert (await ask(store, TOPIC, "paused")).next_due_in == 10
    await put(store, delay=5)
    assert (await ask(store, TOPIC, "paused")).next_due_in == 5
