"""Group commit: shared transactions, separate fates."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidewheel.core.ids import new_id
from tidewheel.core.model import (
    ClaimRequest,
    Completed,
    Enqueued,
    JobFilter,
    Lane,
    NewJob,
    Released,
    Settlement,
    State,
)
from tidewheel.errors import StoreError, StoreUnavailable
from tidewheel.stores.sqlite import SqliteStore, writer


def _job(**options: object) -> NewJob:
    return NewJob(id=new_id(), topic="mail", **options)  # type: ignore[arg-type]


def _count_commits(store: SqliteStore) -> list[int]:
    """Grows by the number of calls each time the writer commits."""
    commits: list[int] = []
    assert store._open is not None
    writer_ = store._open[0]
    write = writer_._write

    def counting(calls: list[writer._Call]) -> bool:
        commits.append(len(calls))
        return write(calls)

    writer_._write = counting  # type: ignore[method-assign]
    return commits


async def test_concurrent_callers_share_commits(store: SqliteStore) -> None:
    """A hundred enqueues at once are a few transactions, and each caller gets its own answer."""
    commits = _count_commits(store)
    jobs = [_job() for _ in range(100)]
    answers = await asyncio.gather(*(store.enqueue([job]) for job in jobs))
    assert [answer.job_id for [answer] in answers] == [job.id for job in jobs]
    assert len(commits) < 20
    assert sum(commits) == 100


async def test_callers_that_are_answered_together_share_the_next_commit(store: SqliteStore) -> None:
    """They call again one after the other, in one turn of the event loop."""
    commits = _count_commits(store)

    async def caller() -> None:
        for _ in range(3):
            await store.enqueue([_job()])

    await asyncio.gather(*(caller() for _ in range(50)))
    assert len(commits) < 20
    assert sum(commits) == 150


async def test_answers_are_those_of_the_jobs_they_were_written_with(store: SqliteStore) -> None:
    """Calls of different lengths; jobs that are due at once, later, and at a moment that has passed."""
    moment = await store.now()
    calls = [
        [_job(), _job(delay=60.0)],
        [_job(run_at=moment + 3_600_000_000)],
        [_job(run_at=1), _job(delay=1.0), _job(expires_in=5.0)],
        [_job()],
    ]
    answers = await asyncio.gather(*(store.enqueue(jobs) for jobs in calls))
    for jobs, theirs in zip(calls, answers, strict=True):
        for job, answer in zip(jobs, theirs, strict=True):
            record = await store.get(job.id)
            assert record is not None
            assert answer == Enqueued(record.id, record.number, record.created_at, record.run_at)
    flat = [answer for theirs in answers for answer in theirs]
    assert [answer.number for answer in flat] == [1, 2, 3, 4, 5, 6, 7]
    waits = [answer.run_at - answer.created_at for answer in flat]
    assert waits[:2] == [0, 60_000_000]
    assert waits[2] > 3_500_000_000
    assert waits[3:] == [0, 1_000_000, 0, 0]


async def test_a_settlement_is_handed_over_before_somebody_blocks_the_loop(store: SqliteStore) -> None:
    """Callers are answered together; the first settles its job, and the next one holds the event loop."""
    [job_id] = [answer.job_id for answer in await store.enqueue([_job()])]
    [claimed] = (await store.claim(ClaimRequest("w", (Lane("mail"),), 1, 60))).jobs

    def is_completed() -> bool:
        connection = sqlite3.connect(store._location.path)
        try:
            return bool(
                connection.execute("SELECT state = 3 FROM tidewheel_jobs WHERE number = 1").fetchone()[0]
            )
        finally:
            connection.close()

    async def settle() -> None:
        await store.enqueue([_job()])
        await store.settle([Settlement(claimed.lease, Completed())])

    async def block() -> bool:
        await store.enqueue([_job()])
        deadline = time.monotonic() + PATIENCE
        while not is_completed() and time.monotonic() < deadline:
            time.sleep(0.001)  # on the event loop, which is what this is about
        return is_completed()

    await store.enqueue([_job()])
    _, seen = await asyncio.gather(settle(), block())
    assert seen
    assert (await store.get(job_id)) is not None


async def test_a_callers_bad_job_does_not_spoil_its_neighbours(store: SqliteStore) -> None:
    """An operation that fails inside a shared transaction fails alone."""
    taken = _job()
    await store.enqueue([taken])
    good = [_job() for _ in range(20)]
    calls = [store.enqueue([job]) for job in good]
    calls.insert(10, store.enqueue([_job(), taken]))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    failed = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(failed) == 1
    assert isinstance(failed[0], StoreError)
    assert (await store.count(JobFilter())).total == 21
    assert await store.check() == []


async def test_a_caller_that_gave_up_before_its_turn_gets_nothing_written(
    store: SqliteStore, path: Path
) -> None:
    """A cancelled enqueue that had not begun leaves no job behind."""
    outsider = sqlite3.connect(path, isolation_level=None)
    outsider.execute("BEGIN IMMEDIATE")
    first = asyncio.create_task(store.enqueue([_job()]))
    await asyncio.sleep(0.05)  # the writer is now waiting for the outsider, with the first call in its hands
    second = asyncio.create_task(store.enqueue([_job()]))
    await asyncio.sleep(0)
    second.cancel()
    outsider.execute("ROLLBACK")
    outsider.close()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    assert (await store.count(JobFilter())).total == 1


async def test_a_job_granted_to_somebody_who_has_left_is_free_at_once(store: SqliteStore, path: Path) -> None:
    """Whether it was claimed or asked for by itself; nothing is counted, because nobody has had it."""
    request = ClaimRequest("w", (Lane("mail"),), 1, 60.0)
    [answer] = await store.enqueue([_job()])
    calls = (store.claim(request), store.claim_job(answer.job_id, worker="w", lease_seconds=60))
    fence = 0
    for call in calls:
        outsider = sqlite3.connect(path, isolation_level=None)
        outsider.execute("BEGIN IMMEDIATE")
        leaving = asyncio.ensure_future(call)
        await asyncio.sleep(0.05)  # the writer has it in its hands, and waits for the outsider
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        outsider.execute("ROLLBACK")
        outsider.close()
        async with asyncio.timeout(PATIENCE):
            while (record := await store.get(answer.job_id)) is None or not (
                record.fence > fence and record.state is State.PENDING
            ):
                await asyncio.sleep(0.001)
        assert (record.attempt, record.reserves, record.releases) == (0, 0, 0)
        fence = record.fence


async def test_a_lock_held_too_long_is_an_error_for_its_callers_and_nothing_else(path: Path) -> None:
    """The message names the file and the time; nothing was written, and afterwards all goes on."""
    store = SqliteStore(f"sqlite:///{path}?busy_timeout=0.1")
    await store.open()
    await store.migrate()
    outsider = sqlite3.connect(path, isolation_level=None)
    outsider.execute("BEGIN IMMEDIATE")
    answers = await asyncio.gather(*(store.enqueue([_job()]) for _ in range(10)), return_exceptions=True)
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert "jobs.db stayed locked for 0.1 s" in str(answers[0])
    outsider.execute("ROLLBACK")
    outsider.close()
    await store.enqueue([_job()])
    assert (await store.count(JobFilter())).total == 1
    await store.close()


async def test_closing_finishes_what_was_accepted(path: Path) -> None:
    """Also what had to wait for the write before it."""
    store = SqliteStore(f"sqlite:///{path}")
    await store.open()
    await store.migrate()
    calls = [asyncio.create_task(store.enqueue([_job()])) for _ in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert all(call.done() for call in calls)
    await asyncio.gather(*calls)
    await store.open()
    assert (await store.count(JobFilter())).total == 20
    await store.close()


async def test_another_event_loop_is_told_that_the_store_is_not_its_own(store: SqliteStore) -> None:
    """It needs a sibling. Without being told it would wait for ever."""

    async def enqueue() -> None:
        await store.enqueue([_job()])

    with pytest.raises(RuntimeError, match="different loop"):
        await asyncio.to_thread(asyncio.run, enqueue())
    await store.enqueue([_job()])


async def test_stores_on_several_event_loops_share_a_file(store: SqliteStore) -> None:
    """Siblings in other threads, as the keeper and the blocking calls use them."""
    failures: list[BaseException] = []

    def other_thread() -> None:
        async def enqueue() -> None:
            sibling = store.sibling()
            await sibling.open()
            await asyncio.gather(*(sibling.enqueue([_job()]) for _ in range(50)))
            await sibling.close()

        try:
            asyncio.run(enqueue())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=other_thread) for _ in range(3)]
    for thread in threads:
        thread.start()
    await asyncio.gather(*(store.enqueue([_job()]) for _ in range(50)))
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert failures == []
    assert (await store.count(JobFilter())).total == 200
    assert await store.check() == []


async def test_concurrent_claimers_never_get_the_same_job(store: SqliteStore) -> None:
    """Whatever connection they use."""
    await store.enqueue([_job() for _ in range(300)])
    sibling = store.sibling()
    await sibling.open()

    async def claim_all(which: SqliteStore, name: str) -> list[int]:
        numbers: list[int] = []
        while jobs := (await which.claim(ClaimRequest(name, (Lane("mail"),), 7, 60))).jobs:
            numbers += [job.number for job in jobs]
        return numbers

    shares = await asyncio.gather(
        *(
            claim_all(which, f"{name}{index}")
            for name, which in (("a", store), ("b", sibling))
            for index in range(3)
        )
    )
    numbers = [number for share in shares for number in share]
    assert len(numbers) == len(set(numbers)) == 300
    await sibling.close()


async def test_a_closed_store_says_so(store: SqliteStore) -> None:
    """Instead of waiting for a thread that is gone."""
    sibling = store.sibling()
    await sibling.open()
    await sibling.close()
    await sibling.close()
    with pytest.raises(Exception, match="not open"):
        await sibling.enqueue([_job()])


async def test_an_older_lease_of_a_job_does_not_spoil_the_newer_one(store: SqliteStore) -> None:
    """Both outcomes may come in one batch, in any order; only the newer lease counts."""
    await store.enqueue([_job(), _job()])
    old = (await store.claim(ClaimRequest("w", (Lane("mail"),), 2, 60))).jobs
    await store.settle([Settlement(job.lease, Released()) for job in old[:1]])
    [new] = (await store.claim(ClaimRequest("w", (Lane("mail"),), 1, 60))).jobs
    assert store._open is not None
    # As if this process still remembered the older grant.
    store._open[0]._grants.add(old[0].lease.fence, [old[0]])
    settlements = [Settlement(job.lease, Completed(), 0.0) for job in (new, old[0], old[1])]
    assert await store.settle(settlements) == [True, False, True]
    assert await store.check() == []


async def test_a_lease_settled_through_another_connection_is_not_settled_again(store: SqliteStore) -> None:
    """What this process remembers of its grants is no proof that they still hold."""
    await store.enqueue([_job()])
    [job] = (await store.claim(ClaimRequest("w", (Lane("mail"),), 1, 60))).jobs
    sibling = store.sibling()
    await sibling.open()
    settlement = Settlement(job.lease, Completed(b"1"), 0.0)
    assert await sibling.settle([settlement]) == [True]
    assert await store.settle([settlement]) == [False]
    assert await store.check() == []
    await sibling.close()


async def test_a_stale_lease_costs_its_neighbours_in_the_transaction_nothing(store: SqliteStore) -> None:
    """It is found when all was hoped to go well: everything is undone and done again, with care."""
    await store.enqueue([_job() for _ in range(4)])
    jobs = (await store.claim(ClaimRequest("w", (Lane("mail"),), 3, 60))).jobs
    sibling = store.sibling()
    await sibling.open()
    assert await sibling.settle([Settlement(jobs[1].lease, Completed(), 0.0)]) == [True]
    await sibling.close()
    commits = _count_commits(store)
    held, enqueued, claim = await asyncio.gather(
        store.settle([Settlement(job.lease, Completed(b"1"), 0.0) for job in jobs]),
        store.enqueue([_job()]),
        store.claim(ClaimRequest("w", (Lane("mail"),), 10, 60)),
    )
    assert commits == [3]
    assert held == [True, False, True]
    assert len(enqueued) == 1
    assert len(claim.jobs) == 2
    assert await store.settle([Settlement(job.lease, Completed(), 0.0) for job in claim.jobs]) == [True] * 2
    assert await store.check() == []
    counts = {state: (await store.count(JobFilter(state=state))).total for state in State}
    assert counts[State.COMPLETED] == 5


async def test_a_failure_after_the_commit_costs_nobody_anything(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The job is durable; that its wake-up or a checkpoint failed is logged, and the writer lives on."""

    def broken(*_: object, **__: object) -> None:
        raise OSError("out of descriptors")

    monkeypatch.setattr(store._process_wakeup, "notify", broken)
    assert len(await store.enqueue([_job()])) == 1
    monkeypatch.undo()
    assert len(await store.enqueue([_job()])) == 1
    assert "out of descriptors" in caplog.text


async def test_the_lock_is_left_for_a_moment_to_whoever_knocked(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only then: nobody pays for others who are not there."""
    pauses: list[float] = []
    monkeypatch.setattr(
        "tidewheel.stores.sqlite.writer.time", SimpleNamespace(sleep=pauses.append, monotonic=time.monotonic)
    )
    await store.enqueue([_job()])
    ring = store._process_wakeup.notify

    def ring_and_hear(*arguments: Any, **more: Any) -> None:
        store._process_wakeup.lock_requested = True
        ring(*arguments, **more)

    monkeypatch.setattr(store._process_wakeup, "notify", ring_and_hear)
    await store.enqueue([_job()])
    monkeypatch.setattr(store._process_wakeup, "notify", ring)
    await store.enqueue([_job()])
    await store.close()
    assert pauses == [writer.LOCK_YIELD_SECONDS]


async def test_only_what_must_last_is_synced(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that may be forgotten with the power shares the sync of whatever comes after it."""
    synced: list[bool] = []
    original = writer.commit_durably

    def commit(connection: sqlite3.Connection, *rest: Any) -> None:
        synced.append(connection.execute("PRAGMA synchronous").fetchone() == (2,))
        original(connection, *rest)

    monkeypatch.setattr(writer, "commit_durably", commit)
    request = ClaimRequest("worker", (Lane("mail"),), 1, 60.0)
    await store.enqueue([_job() for _ in range(4)])
    forgettable = replace(request, durable=False)
    [job] = (await store.claim(forgettable)).jobs
    await store.settle([Settlement(job.lease, Completed(b"1"))])
    await store.claim(forgettable)
    await store.claim(request)
    assert synced == [True, False, True, False, True]
    synced.clear()
    await asyncio.gather(store.claim(forgettable), store.enqueue([_job()]), store.claim(forgettable))
    assert True in synced, "who enqueues in the same transaction is promised more"
