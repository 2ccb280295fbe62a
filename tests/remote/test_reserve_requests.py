"""Requests for jobs that are repeated because no answer came: a lost one costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from tests.patience import PATIENCE
from tests.remote.reserve_client import Claims, jobs_of, reserve, standing, wish
from tidewheel import NotOpen, StoreUnavailable, Tidewheel
from tidewheel.core.model import Completed, Lease, Settlement, State
from tidewheel.errors import InvalidInput, NotPermitted
from tidewheel.remote import reserve_requests


async def test_a_repeat_gets_the_same_jobs_and_no_others(app: Tidewheel) -> None:
    """The first answer was lost: the leases are as good as new, and nothing more is granted."""
    await app.enqueue_many("mail", [{"n": n} for n in range(4)])
    first, repeated = await app.remote.reserve(wish("mail", limit=2), 0, "one")
    again, known = await app.remote.reserve(wish("mail", limit=2), 0, "one")
    assert (repeated, known) == (False, True)
    assert [job.lease for job in again.jobs] == [job.lease for job in first.jobs]
    other, _ = await app.remote.reserve(wish("mail", limit=2), 0, "another")
    assert not {job.lease for job in other.jobs} & {job.lease for job in first.jobs}
    assert len(other.jobs) == 2


async def test_a_repeat_is_not_given_what_is_settled_already(app: Tidewheel) -> None:
    await app.enqueue_many("mail", [{"n": n} for n in range(2)])
    first, _ = await app.remote.reserve(wish("mail", limit=2), 0, "one")
    await app.remote.settle([Settlement(first.jobs[0].lease, Completed())])
    again, _ = await app.remote.reserve(wish("mail", limit=2), 0, "one")
    assert [job.lease for job in again.jobs] == [first.jobs[1].lease]


async def test_a_repeat_of_one_who_waits_takes_its_place(memory: Tidewheel) -> None:
    """The first connection broke and nobody has noticed: its place in the line is the repeat's."""
    first = reserve(memory, wish("mail", worker="a"), name="a")
    await standing(memory, 1)
    second = reserve(memory, wish("mail", worker="b"), name="b")
    await standing(memory, 2)
    repeat = reserve(memory, wish("mail", worker="a"), name="a")
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    made = await memory.enqueue("mail")
    grant, repeated = await asyncio.wait_for(repeat, PATIENCE)
    assert repeated
    assert [job.lease.job_id for job in grant.jobs] == [made.id]
    second.cancel()


async def test_a_repeat_that_does_not_wait_ends_the_wait(memory: Tidewheel) -> None:
    """How a worker stops: whatever comes in the last moment is in the answer, and nothing comes after."""
    first = reserve(memory, wish("mail"), name="a")
    await standing(memory, 1)
    grant, repeated = await asyncio.wait_for(memory.remote.reserve(wish("mail"), 0, "a"), PATIENCE)
    assert (grant.jobs, repeated) == ((), True)
    assert await jobs_of(first) == ()
    assert memory.remote.waiting == 0


async def gone_before_it_was_told(app: Tidewheel, name: str | None) -> UUID:
    """Somebody waits, is granted a job, and is gone in the very turn in which it would be told; the job."""
    waiting = reserve(app, wish("mail"), name=name)
    await standing(app, 1)
    (waiter,) = app.remote._service.dispatcher._waiters
    waiter.answer.add_done_callback(lambda _: waiting.cancel())
    made = await app.enqueue("mail")
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert waiter.answer.result().jobs
    return made.id


async def test_what_nobody_was_there_to_hear_of_waits_for_a_repeat(memory: Tidewheel) -> None:
    """The client was gone when its job was granted: who repeats the request gets it."""
    job_id = await gone_before_it_was_told(memory, "a")
    assert (await memory.get(job_id)).state is State.RUNNING
    grant, repeated = await memory.remote.reserve(wish("mail"), 0, "a")
    assert repeated
    assert [job.lease.job_id for job in grant.jobs] == [job_id]


@pytest.mark.parametrize("name", ["a", None])
async def test_what_nobody_heard_of_and_nobody_repeats_is_given_back(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    """After a moment, or at once where nobody can repeat it; uncounted, as if nobody had had it."""
    monkeypatch.setattr(reserve_requests, "UNDELIVERED_SECONDS", 0.01 if name else 60)
    job_id = await gone_before_it_was_told(memory, name)
    while (await memory.get(job_id)).state is not State.PENDING:
        await asyncio.sleep(0.001)
    assert (await memory.queue.stats_job(job_id)).reserves == 0
    assert (await memory.get(job_id)).attempt == 0


async def reserved_after(app: Tidewheel) -> int:
    """How many jobs nobody could have once this app is closed."""
    await app.close()
    async with Tidewheel(app.settings.url) as other:
        return (await other.stats()).running


async def test_closing_gives_back_what_waits_for_a_repeat(tmp_path: Path) -> None:
    """It cannot come any more; nobody shall have to wait for the end of its lease."""
    app = await Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}").open()
    await gone_before_it_was_told(app, "a")
    assert await reserved_after(app) == 0


async def test_closing_gives_back_what_a_claim_under_way_grants(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer is waited for."""
    app = await Tidewheel(url).open()
    await app.enqueue("mail")
    claims = Claims(app, monkeypatch)
    claims.answered.clear()
    waiting = reserve(app, wish("mail"))
    await asyncio.wait_for(claims.granted.wait(), PATIENCE)
    asyncio.get_running_loop().call_later(0.01, claims.answered.set)
    assert await reserved_after(app) == 0
    with pytest.raises(NotOpen):
        await waiting


async def test_an_id_is_for_one_request(memory: Tidewheel) -> None:
    """What is asked under it again has to be the same."""
    await memory.enqueue("mail")
    await memory.remote.reserve(wish("mail"), 0, "a")
    with pytest.raises(InvalidInput, match="another request"):
        await memory.remote.reserve(wish("news"), 0, "a")


async def test_what_is_remembered_has_an_end(memory: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Empty answers are not kept; of the others the oldest give way."""
    monkeypatch.setattr(reserve_requests, "MAX_REMEMBERED", 3)
    for index in range(5):
        await memory.remote.reserve(wish("mail"), 0, f"empty {index}")
    assert not memory.remote._service.reserve_requests._requests
    await memory.enqueue_many("mail", [{}] * 5)
    for index in range(5):
        await memory.remote.reserve(wish("mail"), 0, index)
    assert list(memory.remote._service.reserve_requests._requests) == [2, 3, 4]


async def test_of_many_large_jobs_only_leases_are_remembered(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy server would have the payloads of a whole minute in memory. Who repeats its request after that
    gets other jobs, and those it never saw are free again at once.
    """
    waiting = reserve(memory, wish("news"), name="waits")
    await standing(memory, 1)
    monkeypatch.setattr(
        reserve_requests, "MAX_REMEMBERED_BYTES", 2 * (10_000 + reserve_requests.JOB_OVERHEAD_BYTES) + 500
    )
    made = await memory.enqueue_many("mail", [{"text": "x" * 10_000}] * 5)
    for index in range(5):
        await memory.remote.reserve(wish("mail"), 0, index)
    desk = memory.remote._service
    assert list(desk.reserve_requests._requests) == ["waits", 0, 1, 2, 3, 4]
    assert desk.reserve_requests._answered_bytes < reserve_requests.MAX_REMEMBERED_BYTES
    assert [memory.remote.has_granted(index) for index in range(5)] == [False] * 4 + [True]
    grant, repeated = await memory.remote.reserve(wish("mail"), 0, 4)
    assert repeated
    assert [job.lease.job_id for job in grant.jobs] == [made[4].id]
    grant, repeated = await memory.remote.reserve(wish("mail"), PATIENCE, 0)
    assert not repeated
    assert [(job.lease.job_id, job.attempt) for job in grant.jobs] == [(made[0].id, 1)]
    assert len(grant.jobs[0].payload) > 10_000
    waiting.cancel()


async def test_leases_alone_have_an_end_as_well(memory: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reserve_requests, "MAX_REMEMBERED_BYTES", 2 * reserve_requests.JOB_OVERHEAD_BYTES)
    await memory.enqueue_many("mail", [{"text": "x" * 10_000}] * 5)
    for index in range(5):
        await memory.remote.reserve(wish("mail"), 0, index)
    assert list(memory.remote._service.reserve_requests._requests) == [3, 4]


async def test_a_renewal_that_nobody_waits_for_keeps_no_job(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repeat has gone, too, before it was told: others get the job."""
    monkeypatch.setattr(reserve_requests, "UNDELIVERED_SECONDS", 0.01)
    extending, original = asyncio.Event(), memory.store.extend

    async def extend(leases: Sequence[Lease], seconds: float) -> list[bool]:
        extending.set()
        await asyncio.sleep(PATIENCE)
        return await original(leases, seconds)

    job_id = await gone_before_it_was_told(memory, "a")
    monkeypatch.setattr(memory.store, "extend", extend)
    repeat = reserve(memory, wish("mail"), name="a")
    await asyncio.wait_for(extending.wait(), PATIENCE)
    repeat.cancel()
    while (await memory.get(job_id)).state is not State.PENDING:
        await asyncio.sleep(0.001)


async def test_who_may_not_have_jobs_does_not_keep_others_waiting(memory: Tidewheel) -> None:
    """A whole fleet whose key was revoked stands in line: each would hold the job up for seconds."""

    async def refuse() -> None:
        raise NotPermitted("the key was revoked")

    stale = []
    for index in range(3):
        stale.append(asyncio.create_task(memory.remote.reserve(wish("mail"), PATIENCE, index, refuse)))
        await standing(memory, index + 1)
    good = reserve(memory, wish("mail", worker="good"), name="good")
    await standing(memory, 4)
    made = await memory.enqueue("mail")
    async with asyncio.timeout(reserve_requests.UNDELIVERED_SECONDS / 2):
        assert [job.lease.job_id for job in await jobs_of(good)] == [made.id]
    answers = await asyncio.gather(*stale, return_exceptions=True)
    assert [type(answer) for answer in answers] == [NotPermitted] * 3


async def test_who_had_gone_in_the_moment_of_the_grant_keeps_no_job(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a name the job is free at once; with one it waits for the repeat, for a moment."""
    made = await memory.enqueue("mail")
    grant, _ = await memory.remote.reserve(wish("mail"), 0)
    memory.remote.report_undelivered(None, grant)
    grant, _ = await memory.remote.reserve(wish("mail"), PATIENCE, "a")
    assert [(job.lease.job_id, job.attempt) for job in grant.jobs] == [(made.id, 1)]
    memory.remote.report_undelivered("a", grant)
    again, repeated = await memory.remote.reserve(wish("mail"), 0, "a")
    assert repeated
    assert again.jobs == grant.jobs
    memory.remote.report_undelivered("a", again)
    monkeypatch.setattr(reserve_requests, "UNDELIVERED_SECONDS", 0.01)
    again, _ = await memory.remote.reserve(wish("mail"), 0, "a")
    memory.remote.report_undelivered("a", again)
    grant, _ = await memory.remote.reserve(wish("mail"), PATIENCE, "b")
    assert [(job.lease.job_id, job.attempt) for job in grant.jobs] == [(made.id, 1)]


async def test_what_could_not_be_checked_waits_for_a_repeat(memory: Tidewheel) -> None:
    """The grant is not given back under the feet of who comes again."""
    made = await memory.enqueue("mail")

    async def refuse() -> None:
        raise StoreUnavailable("the key could not be looked up")

    with pytest.raises(StoreUnavailable):
        await memory.remote.reserve(wish("mail"), 0, "a", refuse)
    grant, repeated = await memory.remote.reserve(wish("mail"), 0, "a")
    assert repeated
    assert [job.lease.job_id for job in grant.jobs] == [made.id]
    assert (await memory.get(made.id)).state is State.RUNNING
