"""Jobs that were claimed together share rows; each of them is yet a job like any other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.stores.postgres.stores import opened, raw
from tidewheel.core.model import (
    ActionResult,
    Claimed,
    Completed,
    DerivedState,
    Failed,
    JobFilter,
    Lease,
    Retried,
    Settlement,
    State,
)
from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.postgres.leased_batches import LONG_SECONDS, PLACES_PER_BATCH
from tidewheel.testing.conformance.helpers import BOOM, claim_jobs, enqueue_many, enqueue_one, get_job, job

JOBS = 150  # three packs, the last one not full


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with opened(postgres_url) as [store]:
        yield store
        assert await store.check() == []


@pytest.fixture
async def claimed(store: PostgresStore) -> list[Claimed]:
    await enqueue_many(store, JOBS)
    return await claim_jobs(store, limit=JOBS, worker="packer")


async def rows(url: str) -> tuple[int, int]:
    """How many packs there are, and jobs with a row of their own."""
    async with raw(url) as connection:
        return tuple(
            await connection.fetchrow(
                "SELECT (SELECT count(*) FROM leased_batches), (SELECT count(*) FROM jobs)"
            )
        )


def completions(jobs: list[Claimed], run_seconds: float = 0.001) -> list[Settlement]:
    return [Settlement(one.lease, Completed(b"%d" % one.number), run_seconds) for one in jobs]


async def test_many_jobs_of_one_claim_share_rows(claimed: list[Claimed], postgres_url: str) -> None:
    """And each has a fence of its own."""
    assert await rows(postgres_url) == (3, 0)
    assert len({one.lease.fence for one in claimed}) == JOBS
    assert [one.number for one in claimed] == sorted(one.number for one in claimed)


async def test_few_jobs_have_rows_of_their_own(store: PostgresStore, postgres_url: str) -> None:
    """A pack is not worth it."""
    await enqueue_many(store, 10)
    await claim_jobs(store, limit=10)
    assert await rows(postgres_url) == (0, 10)


@pytest.mark.parametrize("odd", [{"key": "k"}, {"lease_seconds": 5.0}, {"tenant": "acme"}])
async def test_jobs_with_keys_leases_or_tenants_that_differ_are_not_packed(
    store: PostgresStore, postgres_url: str, odd: dict[str, Any]
) -> None:
    """All of a pack are held by one lease, of one tenant; and holders of keys are looked up by their ids."""
    await store.enqueue([*[job() for _ in range(30)], job(**odd)])
    await claim_jobs(store, limit=31)
    assert await rows(postgres_url) == (0, 31)


async def test_packed_jobs_are_seen_like_others(store: PostgresStore, claimed: list[Claimed]) -> None:
    """By id, in lists and in counts: running, with worker, fence and lease."""
    one = claimed[70]
    record = await get_job(store, one.lease.job_id)
    assert (record.state, record.worker, record.fence) == (State.RUNNING, "packer", one.lease.fence)
    assert (record.attempt, record.number, record.payload) == (1, one.number, one.payload)
    assert record.leased_until is not None
    assert record.started_at is None
    for where in (
        JobFilter(),
        JobFilter(state=State.RUNNING),
        JobFilter(state=DerivedState.CLAIMED, topic="mail"),
    ):
        page = await store.list_jobs(where, limit=JOBS + 1)
        assert [item.id for item in page.items] == [one.lease.job_id for one in reversed(claimed)]
        assert (await store.count(where)).total == JOBS
    found = await store.list_jobs(JobFilter(text=one.payload.decode()), limit=JOBS + 1)
    assert one.lease.job_id in [item.id for item in found.items]
    assert (await store.list_jobs(JobFilter(state=State.PENDING), limit=5)).items == ()
    assert (await store.list_jobs(JobFilter(key="k"), limit=5)).items == ()
    assert await store.states([one.lease.job_id for one in claimed]) == [State.RUNNING] * JOBS
    assert (await store.stats(window_seconds=60.0)).running == JOBS


async def test_another_tenant_does_not_even_move_a_packed_job(
    store: PostgresStore, claimed: list[Claimed], postgres_url: str
) -> None:
    """What is not found is not touched, not in how it is kept either."""
    before = await rows(postgres_url)
    job_ids = [one.lease.job_id for one in claimed]
    for verb in (store.cancel, store.requeue, store.delete):
        assert await verb(job_ids, tenant="other") == [ActionResult.NOT_FOUND] * JOBS
    assert await store.states(job_ids, tenant="other") == [None] * JOBS
    assert await rows(postgres_url) == before
    assert await store.cancel(job_ids[:1], tenant="root") == [ActionResult.REQUESTED]


async def test_whole_packs_and_parts_are_completed(
    store: PostgresStore, claimed: list[Claimed], postgres_url: str
) -> None:
    """In any order and any batches; what is left stays, and what is empty goes."""
    some, rest = claimed[10:100:2], [one for one in claimed if one not in claimed[10:100:2]]
    assert await store.settle(completions(some)) == [True] * len(some)
    assert await rows(postgres_url) == (3, 0)
    assert await store.settle(completions(some)) == [False] * len(some)
    assert (await store.count(JobFilter(state=State.RUNNING))).total == len(rest)
    assert await store.settle(completions(rest[::-1])) == [True] * len(rest)
    assert await rows(postgres_url) == (0, 0)
    for one in claimed:
        record = await get_job(store, one.lease.job_id)
        assert (record.state, record.result, record.attempt) == (State.COMPLETED, b"%d" % one.number, 1)
        assert (record.worker, record.fence) == ("packer", one.lease.fence)


async def test_a_slow_job_leaves_its_pack_and_the_others_do_not_wait(
    store: PostgresStore, claimed: list[Claimed], postgres_url: str
) -> None:
    """It is started, extended and reported like any other."""
    slow, *others = claimed
    assert await store.mark_started([slow.lease]) == [True]
    assert await rows(postgres_url) == (3, 1)
    assert (await get_job(store, slow.lease.job_id)).started_at is not None
    assert await store.settle(completions(others)) == [True] * len(others)
    assert await rows(postgres_url) == (0, 1)
    assert await store.extend([slow.lease], 60.0) == [True]
    assert await store.settle(completions([slow], 2 * LONG_SECONDS)) == [True]


async def test_a_job_that_is_thought_to_have_left_its_pack_is_completed_in_it(
    store: PostgresStore, claimed: list[Claimed]
) -> None:
    """How long it ran is only a hint where to look first, in both directions."""
    assert await store.settle(completions(claimed[:5], 2 * LONG_SECONDS)) == [True] * 5
    await store.mark_started([claimed[5].lease])
    assert await store.settle(completions(claimed[5:10])) == [True] * 5


async def test_outcomes_of_all_kinds_are_settled_together(
    store: PostgresStore, claimed: list[Claimed]
) -> None:
    """Those that did not complete get rows of their own first."""
    failed, retried, *rest = claimed
    settlements = completions(rest[:20])
    settlements.insert(3, Settlement(failed.lease, Failed(BOOM), 0.01))
    settlements.insert(9, Settlement(retried.lease, Retried(60.0, BOOM), 0.01))
    assert await store.settle(settlements) == [True] * 22
    states = await store.states([settlement.lease.job_id for settlement in settlements])
    assert (states[3], states[9]) == (State.FAILED, State.PENDING)
    assert states.count(State.COMPLETED) == 20


async def test_a_fence_of_the_same_pack_does_not_serve_another_job(
    store: PostgresStore, claimed: list[Claimed]
) -> None:
    """A lease is an id and a fence, and both have to be right."""
    first, second = claimed[0].lease, claimed[1].lease
    wrong = [
        Lease(first.job_id, second.fence),
        Lease(first.job_id, first.fence - first.fence % PLACES_PER_BATCH),
    ]
    assert await store.settle([Settlement(lease, Completed(b"1"), 0.01) for lease in wrong]) == [False, False]
    assert await store.settle([Settlement(lease, Failed(BOOM), 0.01) for lease in wrong]) == [False, False]
    assert await store.extend(wrong, 60.0) == [False, False]
    assert await store.states([first.job_id, second.job_id]) == [State.RUNNING] * 2


async def test_a_packed_job_can_be_cancelled_but_not_deleted_or_requeued(
    store: PostgresStore, claimed: list[Claimed]
) -> None:
    """As any running job."""
    one, other = claimed[100].lease, claimed[101].lease
    assert await store.cancel([one.job_id]) == [ActionResult.REQUESTED]
    assert await store.cancel_requests([one, other]) == [one]
    assert await store.delete([other.job_id]) == [ActionResult.WRONG_STATE]
    assert await store.requeue([other.job_id]) == [ActionResult.WRONG_STATE]
    assert await store.settle(completions([claimed[100], claimed[101]])) == [True, True]


async def test_the_jobs_of_a_dead_worker_come_out_of_their_packs(
    store: PostgresStore, postgres_url: str
) -> None:
    """Some of them were done; the others are granted again, with newer fences; the old ones are refused."""
    await enqueue_many(store, JOBS)
    lost = await claim_jobs(store, limit=JOBS, worker="dead")
    assert await store.settle(completions(lost[:40])) == [True] * 40
    async with raw(postgres_url) as connection:
        await connection.execute("UPDATE leased_batches SET leased_until = 1")
    assert await store.settle(completions(lost[40:])) == [False] * (JOBS - 40)
    assert (await store.rescue()).returned == JOBS - 40
    assert (await rows(postgres_url))[0] == 0
    again = []
    while jobs := await claim_jobs(store, limit=JOBS):
        again += jobs
    assert sorted(one.number for one in again) == sorted(one.number for one in lost[40:])
    assert min(one.lease.fence for one in again) > max(one.lease.fence for one in lost)


async def test_whoever_cancels_while_jobs_are_claimed_and_completed_finds_each_of_them(
    store: PostgresStore, postgres_url: str
) -> None:
    """A job may move from its row to a pack and to its end between two looks."""
    ids = await enqueue_many(store, 400)
    verdicts: list[ActionResult] = []

    async def work(other: PostgresStore) -> None:
        while jobs := await claim_jobs(other, limit=50):
            await asyncio.sleep(0)
            await other.settle(completions(jobs))

    async def cancel(other: PostgresStore) -> None:
        for job_id in ids:
            verdicts.extend(await other.cancel([job_id]))

    async with opened(postgres_url, postgres_url) as others:
        await asyncio.gather(work(others[0]), work(others[1]), cancel(store))
    assert set(verdicts) <= {ActionResult.DONE, ActionResult.REQUESTED, ActionResult.WRONG_STATE}
    states = await store.states(ids)
    assert set(states) <= {State.COMPLETED, State.CANCELLED}


async def test_a_job_enqueued_beside_packs_is_granted_and_counted(
    store: PostgresStore, claimed: list[Claimed]
) -> None:
    """The books of running and ready jobs stay right."""
    job_id = await enqueue_one(store)
    assert [one.lease.job_id for one in await claim_jobs(store, limit=5)] == [job_id]
    stats = await store.stats(window_seconds=60.0)
    assert (stats.pending, stats.running) == (0, len(claimed) + 1)
