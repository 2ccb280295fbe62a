"""Finished jobs are kept as long as they were told, then go (Q30)."""

from __future__ import annotations

import pytest

from tidewheel.findings import AilmentKind
from tidewheel.model import FailureOrigin, JobFilter, Progress, Report, Settlement, State, Verdict
from tidewheel.outcome import Completed, Failed, Retried
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.building import (
    BOOM,
    End,
    cancelled,
    claim,
    claim_one,
    completed,
    end,
    failed,
    look,
    put,
    put_many,
    state,
)

DAY = 86_400.0


async def test_nothing_to_prune(store: Store) -> None:
    """No finished job, no answer."""
    await put(store, retention=0.0)
    assert await store.prune() == {}


async def test_a_finished_job_is_kept_for_its_retention(store: Store, clock: FrozenClock) -> None:
    """Counted from its end, to the microsecond."""
    done, dropped = await completed(store, retention=DAY), await cancelled(store, retention=DAY)
    clock.advance(DAY - 0.000001)
    assert await store.prune() == {}
    clock.advance(0.000001)
    assert await store.prune() == {State.COMPLETED: 1, State.CANCELLED: 1}
    assert await store.states([done, dropped]) == [None, None]
    assert await store.topics() == []
    assert await store.check() == []


async def test_failed_jobs_have_a_retention_of_their_own(store: Store, clock: FrozenClock) -> None:
    """The other one does not apply to them."""
    job_id = await failed(store, retention=DAY, retention_failed=3 * DAY)
    clock.advance(2 * DAY)
    assert await store.prune() == {}
    clock.advance(DAY)
    assert await store.prune() == {State.FAILED: 1}
    assert await state(store, job_id) is None


async def test_without_a_retention_a_job_is_kept_for_ever(store: Store, clock: FrozenClock) -> None:
    """None means never, for failed jobs as for others."""
    await completed(store)
    await failed(store, retention=DAY)
    clock.advance(10_000 * DAY)
    assert await store.prune() == {}


async def test_a_buried_job_is_never_pruned(store: Store, clock: FrozenClock) -> None:
    """Somebody put it aside to look at it."""
    job_id = await put(store, retention=DAY, retention_failed=DAY)
    await end(store, (await claim_one(store)).lease, Failed(BOOM, FailureOrigin.BURIED))
    clock.advance(10_000 * DAY)
    assert await store.prune() == {}
    assert await store.requeue([job_id]) == [Verdict.DONE]
    await end(store, (await claim_one(store)).lease, Failed(BOOM))
    clock.advance(DAY)
    assert await store.prune() == {State.FAILED: 1}, "once kicked, it is a job like any other"


async def test_unfinished_jobs_are_never_pruned(store: Store, clock: FrozenClock) -> None:
    """However old."""
    running = await put(store, retention=0.0)
    await claim_one(store, lease_seconds=86_400.0)
    pending = await put(store, retention=0.0, delay=DAY)
    clock.advance(DAY / 2)
    assert await store.prune() == {}
    assert await store.states([running, pending]) == [State.RUNNING, State.PENDING]


async def test_a_requeued_job_is_not_pruned_for_its_former_end(store: Store, clock: FrozenClock) -> None:
    """Its retention starts again when it ends again."""
    job_id = await failed(store, retention_failed=DAY)
    clock.advance(DAY / 2)
    await store.requeue([job_id])
    clock.advance(DAY)
    assert await store.prune() == {}


async def test_pruning_goes_by_when_retention_ended_and_keeps_to_its_limit(
    store: Store, clock: FrozenClock
) -> None:
    """The longest overdue first; the rest next time."""
    long = await completed(store, retention=2 * DAY)
    short = await completed(store, retention=DAY)
    clock.advance(3 * DAY)
    assert await store.prune(limit=1) == {State.COMPLETED: 1}
    assert await store.states([long, short]) == [State.COMPLETED, None]
    assert await store.prune(limit=1) == {State.COMPLETED: 1}
    assert await store.prune(limit=1) == {}


async def test_jobs_that_were_deleted_do_not_count_as_pruned(store: Store, clock: FrozenClock) -> None:
    """Nor do those that were requeued, whose former ends have passed: the limit is for what goes."""
    gone = [await completed(store, retention=DAY) for _ in range(3)]
    again = await failed(store, retention_failed=DAY)
    clock.advance(1.0)
    last = await completed(store, retention=DAY)
    await store.delete(gone)
    await store.requeue([again])
    clock.advance(DAY)
    assert await store.prune(limit=1) == {State.COMPLETED: 1}
    assert await store.states([again, last]) == [State.PENDING, None]


@pytest.mark.parametrize("ended", [completed, failed, cancelled])
async def test_a_retention_of_zero_prunes_at_once(store: Store, ended: End) -> None:
    """Kept no longer than asked for."""
    await ended(store, retention=0.0, retention_failed=0.0)
    assert sum((await store.prune()).values()) == 1
    assert (await store.count(JobFilter())).total == 0


async def test_pruning_leaves_the_series_alone(store: Store, clock: FrozenClock) -> None:
    """What happened stays happened; only the rows go."""
    job_id = await completed(store, retention=60.0)
    assert (await look(store, job_id)).state is State.COMPLETED
    clock.advance(60)
    before = await store.stats(window_seconds=3600)
    await store.prune()
    after = await store.stats(window_seconds=3600)
    assert (after.series, after.completed) == (before.series, 0)


async def test_more_than_one_call_removes_is_removed_by_many(store: Store, clock: FrozenClock) -> None:
    """None is left behind, and none is counted twice, however many ended at the same moment."""
    ids = await put_many(store, 130, retention=DAY)
    leases = [claimed.lease for claimed in await claim(store, limit=130)]
    await store.settle([Settlement(lease, Completed()) for lease in leases])
    clock.advance(DAY)
    pruned = 0
    while removed := await store.prune(limit=60):
        assert sum(removed.values()) <= 60
        pruned += removed[State.COMPLETED]
    assert pruned == len(ids)
    assert await store.states(ids) == [None] * len(ids)
    assert await store.check() == []


async def test_what_belongs_to_a_job_goes_with_it(store: Store, clock: FrozenClock) -> None:
    """A large body, a result, progress, a checkpoint, errors: nothing is left that nobody could find."""
    job_id = await put(store, payload=b'"' + b"x" * 5_000 + b'"', retention=DAY, key="once")
    lease = (await claim_one(store)).lease
    await end(store, lease, Retried(0.0, BOOM))
    lease = (await claim_one(store)).lease
    await store.report([Report(lease, Progress(50.0, "half"), b'{"at": 1}')])
    await end(store, lease, Completed(b'"' + b"y" * 5_000 + b'"'))
    clock.advance(DAY)
    assert await store.prune() == {State.COMPLETED: 1}
    assert await store.get(job_id) is None
    assert await store.check() == []
    await put(store, key="once")


async def test_overdue_jobs_that_nobody_removes_are_an_ailment(store: Store, clock: FrozenClock) -> None:
    """From an hour on; not those that are only just over, and none once they are removed."""

    async def unpruned() -> list[object]:
        return [one.figures["seconds"] for one in await store.ailments() if one.kind is AilmentKind.UNPRUNED]

    await completed(store, retention=DAY)
    await completed(store)
    clock.advance(DAY + 3_599)
    assert await unpruned() == []
    clock.advance(1)
    assert await unpruned() == [3_600.0]
    await store.prune()
    assert await unpruned() == []
