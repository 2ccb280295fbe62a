"""Settlements whose answer was lost with the server that gave it: any other knows them by their fence."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.remote.reserve_client import wish
from tidewheel import Tidewheel
from tidewheel.core.model import (
    Cancelled,
    Claimed,
    Completed,
    Failed,
    JobError,
    Lease,
    Outcome,
    Released,
    Retried,
    Settlement,
    State,
)
from tidewheel.testing.clock import FrozenClock

BOOM = JobError("boom", "it broke", details={"at": [1, 2.5]})


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def app(url: str, clock: FrozenClock) -> AsyncIterator[Tidewheel]:
    """An open app whose time stands still."""
    async with Tidewheel(url, clock=clock, poll_interval=60) as app:
        yield app


async def reserved(app: Tidewheel, **options: Any) -> Claimed:
    """A new job, in the hands of a worker elsewhere."""
    await app.enqueue("mail", **options)
    return await claimed(app)


async def claimed(app: Tidewheel) -> Claimed:
    (job,) = (await app.remote.reserve(wish("mail"), 0))[0].jobs
    return job


async def settle(app: Tidewheel, lease: Lease, outcome: Outcome) -> bool:
    [accepted] = await app.remote.settle([Settlement(lease, outcome, 0.1)])
    return accepted


@pytest.mark.parametrize(
    ("outcome", "other"),
    [
        (Failed(BOOM), Failed(JobError("boom", "it broke again"))),
        (Cancelled(BOOM), Failed(BOOM)),
        (Retried(5.0, BOOM), Cancelled(BOOM)),
    ],
)
async def test_what_ended_a_job_is_accepted_again(app: Tidewheel, outcome: Outcome, other: Outcome) -> None:
    """Under its own fence, and nothing else that would have ended it."""
    job = await reserved(app, max_attempts=1)
    assert await settle(app, job.lease, outcome)
    assert await settle(app, job.lease, outcome)
    for never in (other, Released(), Completed()):
        assert not await settle(app, job.lease, never)
    assert not await settle(app, Lease(job.lease.job_id, job.lease.fence - 1), outcome)


async def test_an_end_that_the_end_of_the_lease_brought_is_not_taken_for_the_workers_own(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """Of a worker that was cut off for too long: the job has failed, but not by what it says."""
    job = await reserved(app, max_attempts=1)
    assert await app.remote.start([job.lease]) == [True]
    clock.advance(job.lease_seconds + 1)
    await app.store.rescue()
    assert (await app.get(job.lease.job_id)).state is State.FAILED
    for outcome in (Failed(BOOM), Retried(1.0, BOOM)):
        assert not await settle(app, job.lease, outcome)


async def test_the_error_of_a_run_before_is_not_taken_for_that_of_this_one(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """Both were cancelled with the same words; the second by somebody else, after its lease had ended."""
    first = await reserved(app)
    assert await settle(app, first.lease, Cancelled(BOOM))
    await app.requeue(first.lease.job_id)
    second = await claimed(app)
    await app.cancel(first.lease.job_id)
    clock.advance(second.lease_seconds + 1)
    await app.store.rescue()
    assert (await app.get(first.lease.job_id)).state is State.CANCELLED
    assert not await settle(app, second.lease, Cancelled(BOOM))
    assert not await settle(app, first.lease, Cancelled(BOOM))


async def test_an_attempt_that_is_to_be_made_again_is_not_recognised(app: Tidewheel) -> None:
    """It would look the same had its lease ended, after a run with the same error."""
    job = await reserved(app)
    assert await settle(app, job.lease, Retried(5.0, BOOM))
    assert not await settle(app, job.lease, Retried(5.0, BOOM))
