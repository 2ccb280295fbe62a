"""A clock that jumps ahead deletes and cancels nothing until the step is confirmed."""

from __future__ import annotations

from tidewheel.clock import seconds_to_microseconds
from tidewheel.clock_guard import CONFIRM_SECONDS
from tidewheel.model import NewDocument, Rescued, State
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import claim, completed, failed, put, state

DAY = 86_400.0
STEP = 200 * DAY


async def test_a_clock_that_jumps_ahead_for_a_moment_deletes_nothing(
    store: Store, clock: FrozenClock
) -> None:
    """Finished jobs, documents such as audit lines, and pending jobs that expire are all there afterwards."""
    done, lost = await completed(store, retention=DAY), await failed(store, retention_failed=DAY)
    waiting = await put(store, expires_at=clock.now() + seconds_to_microseconds(DAY))
    document = NewDocument("note", "a", b"1", clock.now() + seconds_to_microseconds(DAY))
    await store.write_documents([document])
    await claim(store, "other")
    assert await store.prune() == {}
    clock.step(STEP)
    assert await store.prune() == {}
    assert await store.rescue() == Rescued()
    await claim(store, "other")  # looks for expired jobs of every topic
    assert store.clock_step_seconds > STEP - 1
    clock.advance(12)
    assert await store.prune() == {}
    await claim(store, "other")
    clock.step(-STEP)
    assert await store.prune() == {}
    assert store.clock_step_seconds == 0.0
    assert [await state(store, job_id) for job_id in (done, lost, waiting)] == [
        State.COMPLETED,
        State.FAILED,
        State.PENDING,
    ]
    assert await store.document("note", "a") is not None
    assert await store.check() == []


async def test_a_pause_for_some_time_outlives_a_jump(store: Store, clock: FrozenClock) -> None:
    """Upkeep forgets pauses that have ended; one that only seems to have ended is there afterwards."""
    until = clock.now() + seconds_to_microseconds(DAY)
    waiting = await put(store, "mail")
    await store.pause("mail", until)
    assert await store.prune() == {}
    clock.step(STEP)
    assert await store.prune() == {}
    clock.step(-STEP)
    assert await claim(store, "mail") == []
    assert await state(store, waiting) is State.PENDING
    clock.advance(DAY)
    [granted] = await claim(store, "mail")
    assert granted.lease.job_id == waiting


async def test_a_job_that_a_jump_would_let_expire_can_be_run(store: Store, clock: FrozenClock) -> None:
    """By the time without the jump it is not over; jobs that are over by that time are cancelled as ever."""
    soon = await put(store, expires_at=clock.now() + seconds_to_microseconds(5))
    later = await put(store, expires_at=clock.now() + seconds_to_microseconds(DAY))
    await claim(store, "other")
    clock.step(STEP)
    clock.advance(120)
    [granted] = await claim(store)
    assert granted.lease.job_id == later
    assert await state(store, soon) is State.CANCELLED


async def test_a_clock_that_stays_ahead_is_believed_after_a_while(store: Store, clock: FrozenClock) -> None:
    """Then the step was real, and what is overdue goes."""
    await completed(store, retention=DAY)
    waiting = await put(store, "mail", expires_at=clock.now() + seconds_to_microseconds(DAY))
    await claim(store, "other")
    assert await store.prune() == {}
    clock.step(STEP)
    assert await store.prune() == {}
    clock.advance(CONFIRM_SECONDS - 1)
    assert await store.prune() == {}
    clock.advance(1)
    assert await store.prune() == {State.COMPLETED: 1}
    await claim(store, "other")
    assert await state(store, waiting) is State.CANCELLED
    assert store.clock_step_seconds == 0.0


async def test_while_a_step_is_in_doubt_pruning_goes_by_the_time_before(
    store: Store, clock: FrozenClock
) -> None:
    """What becomes overdue without the step is removed: nothing piles up meanwhile."""
    await completed(store, retention=600)
    await completed(store, retention=DAY)
    assert await store.prune() == {}
    clock.step(STEP)
    assert await store.prune() == {}
    clock.advance(700)
    assert await store.prune() == {State.COMPLETED: 1}
