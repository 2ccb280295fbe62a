"""Finished steps are kept, in order, under the lease, until the job goes (Q17)."""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel.core.model import (
    ActionResult,
    Claimed,
    Completed,
    Failed,
    JobFilter,
    Lease,
    NewJob,
    NewStep,
    OnDuplicate,
    Outcome,
    Released,
    Report,
    Retried,
    StepRecord,
)
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    LEASE_SECONDS,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    get_job,
    job,
    settle_one,
)


async def _finish(store: Store, lease: Lease, name: str, output: bytes = b"1") -> bool:
    [answer] = await store.report([Report(lease, step=NewStep(name, output, 0.5))])
    return answer


async def _names(store: Store, lease: Lease) -> list[str]:
    steps = await store.finished_steps(lease)
    assert steps is not None, "the lease should hold"
    return [step.name for step in steps]


async def _with_a_step(store: Store, **options: Any) -> Claimed:
    """A job that runs and has finished one step."""
    await enqueue_one(store, **options)
    claimed = await claim_one(store)
    assert await _finish(store, claimed.lease, "fetch")
    return claimed


async def test_a_job_has_no_steps_at_first(store: Store) -> None:
    """None is the answer to who has no lease, not to who has no steps."""
    job_id = await enqueue_one(store)
    lease = (await claim_one(store)).lease
    assert await store.finished_steps(lease) == ()
    assert (await get_job(store, job_id)).steps == ()


async def test_steps_are_kept_with_their_times(store: Store, clock: FrozenClock) -> None:
    """By the store's clock: finished when it was written, begun as long ago as it ran."""
    job_id = await enqueue_one(store)
    claimed = await claim_one(store, worker="ada")
    clock.advance(3)
    first = StepRecord("fetch", b'{"rows":[1,2]}', 1, "ada", clock.now() - 1_250_000, clock.now())
    report = Report(claimed.lease, step=NewStep("fetch", first.output, 1.25))
    assert await store.report([report]) == [True]
    clock.advance(1)
    second = StepRecord("größer", b"null", 1, "ada", clock.now(), clock.now())
    assert await store.report([Report(claimed.lease, step=NewStep("größer", b"null", 0.0))]) == [True]
    assert await store.finished_steps(claimed.lease) == (first, second)
    assert (await get_job(store, job_id)).steps == (first, second)


async def test_steps_keep_the_order_they_were_reported_in(store: Store) -> None:
    """Also within one batch and at one moment; neither name nor time decides."""
    job_ids = await enqueue_many(store, 2)
    leases = [one.lease for one in await claim_jobs(store)]
    names = ["z", "a", "m", "b", "y"]
    reports = [Report(lease, step=NewStep(name, b"1", 0.0)) for name in names[:3] for lease in leases]
    assert await store.report(reports) == [True] * 6
    for lease in leases:
        for name in names[3:]:
            assert await _finish(store, lease, name)
        assert await _names(store, lease) == names
    assert [[step.name for step in (await get_job(store, job_id)).steps] for job_id in job_ids] == [names] * 2


async def test_the_first_output_of_a_name_stands(store: Store) -> None:
    """A report whose answer was lost is sent again; what was read since must not change under its reader."""
    claimed = await _with_a_step(store)
    assert await _finish(store, claimed.lease, "fetch", b"2")
    twice = [Report(claimed.lease, step=NewStep("store", output, 0.0)) for output in (b"3", b"4")]
    assert await store.report(twice) == [True, True]
    steps = await store.finished_steps(claimed.lease)
    assert steps is not None
    assert [(step.name, step.output) for step in steps] == [("fetch", b"1"), ("store", b"3")]


@pytest.mark.parametrize("how", [Retried(0, BOOM), Released()], ids=["retried", "released"])
async def test_steps_reach_the_next_run(store: Store, how: Outcome) -> None:
    """And say in which attempt they were finished."""
    claimed = await _with_a_step(store)
    await settle_one(store, claimed.lease, how)
    again = await claim_one(store)
    assert await _names(store, again.lease) == ["fetch"]
    assert await _finish(store, again.lease, "store")
    steps = await store.finished_steps(again.lease)
    assert steps is not None
    assert [step.attempt for step in steps] == [1, again.attempt]


async def test_steps_outlive_their_worker(store: Store, clock: FrozenClock) -> None:
    """The run that takes over a job whose lease ended begins where the lost one was."""
    claimed = await _with_a_step(store)
    clock.advance(LEASE_SECONDS)
    again = await claim_one(store, worker="worker-2")
    assert await _names(store, again.lease) == ["fetch"]
    assert await store.finished_steps(claimed.lease) is None


async def test_jobs_claimed_together_have_their_own_steps(store: Store) -> None:
    """Whatever a store does to grant many at once."""
    await enqueue_many(store, 100)
    granted = await claim_jobs(store)
    assert [await store.finished_steps(one.lease) for one in granted[:3]] == [()] * 3
    assert await _finish(store, granted[1].lease, "fetch")
    assert [await _names(store, one.lease) for one in granted[:3]] == [[], ["fetch"], []]
    await settle_one(store, granted[1].lease, Retried(0, BOOM))
    await enqueue_many(store, 99)
    again = await claim_jobs(store)
    assert again[0].lease.job_id == granted[1].lease.job_id
    assert [await _names(store, one.lease) for one in again[:3]] == [["fetch"], [], []]
    assert await store.check() == []


async def test_a_lease_that_is_gone_reads_no_steps(store: Store, clock: FrozenClock) -> None:
    """Settled, ended, of another fence or of another job."""
    claimed = await _with_a_step(store)
    lease = claimed.lease
    other = await enqueue_one(store)
    assert await store.finished_steps(Lease(lease.job_id, lease.fence + 1)) is None
    assert await store.finished_steps(Lease(other, lease.fence)) is None
    clock.advance(LEASE_SECONDS)
    assert await store.finished_steps(lease) is None
    assert not await _finish(store, lease, "store")


async def test_a_run_that_was_overtaken_adds_no_step(store: Store, clock: FrozenClock) -> None:
    """What it finished late is not taken for something the newer run can rely on."""
    job_id = await enqueue_one(store)
    old = await claim_one(store)
    clock.advance(LEASE_SECONDS)
    new = await claim_one(store, worker="worker-2")
    assert not await _finish(store, old.lease, "fetch", b'"old"')
    assert await store.finished_steps(new.lease) == ()
    assert await _finish(store, new.lease, "fetch", b'"new"')
    assert [step.output for step in (await get_job(store, job_id)).steps] == [b'"new"']


async def test_a_finished_job_shows_its_steps(store: Store) -> None:
    """Until it is pruned; lists do not carry them."""
    claimed = await _with_a_step(store)
    await settle_one(store, claimed.lease, Completed(b"1"))
    assert [step.name for step in (await get_job(store, claimed.lease.job_id)).steps] == ["fetch"]
    [listed] = (await store.list_jobs(JobFilter(), limit=5)).items
    assert listed.steps == ()


async def test_requeue_keeps_the_steps(store: Store) -> None:
    """A dead letter that failed at its third step does not do the first two again."""
    claimed = await _with_a_step(store)
    await settle_one(store, claimed.lease, Failed(BOOM))
    assert await store.requeue([claimed.lease.job_id]) == [ActionResult.DONE]
    again = await claim_one(store)
    assert await _names(store, again.lease) == ["fetch"]


async def test_steps_go_with_their_job(store: Store, clock: FrozenClock) -> None:
    """Deleted or pruned, nothing of them is left."""
    pruned = await _with_a_step(store, retention=10.0)
    await settle_one(store, pruned.lease, Completed())
    deleted = await _with_a_step(store)
    await settle_one(store, deleted.lease, Completed())
    assert await store.delete([deleted.lease.job_id]) == [ActionResult.DONE]
    clock.advance(11)
    await store.prune()
    assert await store.get(pruned.lease.job_id) is None
    assert await store.check() == []


@pytest.mark.parametrize("saved", [{"step": NewStep("fetch", b"1", 0.0)}, {"checkpoint": b"1"}], ids=repr)
async def test_a_job_that_has_saved_something_is_not_replaced(store: Store, saved: dict[str, Any]) -> None:
    """Steps and checkpoints belong to the payload they were made from."""
    job_id = await enqueue_one(store, key="k", payload=b'"old"')
    lease = (await claim_one(store)).lease
    assert await store.report([Report(lease, **saved)]) == [True]
    await settle_one(store, lease, Released())

    def replacement() -> NewJob:
        return job(key="k", payload=b'"new"', on_duplicate=OnDuplicate.REPLACE)

    answers = await store.enqueue([replacement(), replacement()])
    assert [(one.job_id, one.duplicate, one.replaced) for one in answers] == [(job_id, True, False)] * 2
    assert (await get_job(store, job_id)).payload == b'"old"'
