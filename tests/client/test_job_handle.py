from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from tests.app.conftest import Finish
from tests.patience import PATIENCE
from tidewheel import (
    InvalidInput,
    JobCancelled,
    JobError,
    JobFailed,
    JobNotFound,
    NotOpen,
    ResultTimeout,
    StoreError,
    StoreUnavailable,
    Tidewheel,
    WrongState,
)
from tidewheel.core.model import ActionResult, ClaimRequest, Completed, Failed, Lane, Retried, Settlement
from tidewheel.stores.wakeups import WakeupHub
from tidewheel.testing.clock import FrozenClock

BOOM = JobError("boom", "it broke", details={"n": 1})


@dataclass
class Point:
    x: int


async def test_a_result_is_what_the_handler_returned_in_its_type(app: Tidewheel, finish: Finish) -> None:
    """Known tasks give typed results, other jobs plain JSON, and nothing is None."""

    @app.task
    def locate() -> Point: ...  # type: ignore[empty-body]

    job = await locate.enqueue()
    await finish(app, job, Completed(b'{"x":1}'))
    assert await job.result(timeout=PATIENCE) == Point(1)
    assert await app.result(job.id) == Point(1)

    bare = await app.enqueue("bare")
    await finish(app, bare, Completed(b'{"x":1}'))
    assert await bare.result() == {"x": 1}

    empty = await app.enqueue("bare")
    await finish(app, empty)
    assert await empty.result() is None


async def test_a_failed_or_cancelled_job_raises_its_reason(app: Tidewheel, finish: Finish) -> None:
    """Waiting for a result ends with the truth."""
    failed = await app.enqueue("t")
    await finish(app, failed, Failed(BOOM))
    with pytest.raises(JobFailed, match="boom: it broke") as raised:
        await failed.result(5)
    assert raised.value.error == BOOM

    cancelled = await app.enqueue("t")
    await cancelled.cancel()
    with pytest.raises(JobCancelled):
        await cancelled.result(5)


async def test_a_result_arrives_when_the_job_ends(app: Tidewheel, finish: Finish) -> None:
    """The waiter is woken; it does not have to ask again and again."""
    job = await app.enqueue("t")
    waiting = asyncio.create_task(job.result(timeout=PATIENCE))
    await asyncio.sleep(0)
    await finish(app, job, Completed(b"7"))
    assert await waiting == 7


async def test_a_result_arrives_without_any_hint(
    app: Tidewheel, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hints may be lost; the poll underneath finds the result all the same."""
    monkeypatch.setattr(WakeupHub, "notify_finished", lambda _: None)
    job = await app.enqueue("t")
    waiting = asyncio.create_task(job.result(timeout=PATIENCE))
    await asyncio.sleep(0)
    await finish(app, job, Completed(b"7"))
    assert await waiting == 7


async def test_a_timeout_leaves_the_job_alone(app: Tidewheel, finish: Finish) -> None:
    """``timeout=0`` is one look; the job goes on either way."""
    job = await app.enqueue("t")
    for timeout in (0, 0.01, timedelta(milliseconds=1)):
        with pytest.raises(ResultTimeout, match="did not finish within"):
            await app.result(job.id, timeout)
    await finish(app, job, Completed(b"7"))
    assert await job.result(timeout=0) == 7
    with pytest.raises(InvalidInput, match="timeout is -1 seconds"):
        await job.result(timeout=-1)


async def test_waiting_for_a_deleted_job_ends(app: Tidewheel) -> None:
    """Nobody waits for ever for something that is gone."""
    job = await app.enqueue("t")
    waiting = asyncio.create_task(job.result(timeout=PATIENCE))
    await asyncio.sleep(0.01)
    await job.delete()
    with pytest.raises(JobNotFound):
        await waiting


async def test_a_job_requeued_while_awaited_is_awaited_on(
    app: Tidewheel, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A final state that has been undone is no result."""
    job = await app.enqueue("t")
    await finish(app, job, Failed(BOOM))
    real_get, requeued = app.store.get, asyncio.Event()

    async def get(job_id: Any, **kwargs: Any) -> Any:
        if not requeued.is_set():
            await app.store.requeue([job_id])
            requeued.set()
        return await real_get(job_id, **kwargs)

    monkeypatch.setattr(app.store, "get", get)
    waiting = asyncio.create_task(job.result(timeout=PATIENCE))
    await requeued.wait()
    await finish(app, job, Completed(b"1"))
    assert await waiting == 1


async def test_a_thousand_waiting_results_share_one_question(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting costs one query a round, however many wait."""
    jobs = await app.enqueue_many("t", [None] * 1000)
    asked: list[int] = []
    first = asyncio.Event()
    real_states = app.store.states

    async def states(job_ids: Any, **options: Any) -> Any:
        asked.append(len(job_ids))
        first.set()
        return await real_states(job_ids, **options)

    monkeypatch.setattr(app.store, "states", states)
    waiting = [asyncio.create_task(job.result(timeout=60)) for job in jobs]
    await first.wait()
    assert len(asked) < 100
    assert await app.cancel_all(topic="t") == 1000
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(error, JobCancelled) for error in ended)
    assert len(asked) < 500  # polls while a busy machine gets there, not one for each job


async def test_closing_the_app_ends_waiting(url: str) -> None:
    """A shutdown does not hang on results nobody will see."""
    app = Tidewheel(url)
    await app.open()
    job = await app.enqueue("t")
    waiting = asyncio.create_task(job.result())
    await asyncio.sleep(0.01)
    await app.close()
    with pytest.raises(NotOpen, match="closed while this result was awaited"):
        await waiting


async def test_database_trouble_is_waited_out_and_errors_are_told(
    app: Tidewheel, finish: Finish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is away for a moment costs time; one that is broken is an error."""
    job = await app.enqueue("t")
    real_states, troubles = app.store.states, [StoreUnavailable("busy"), StoreUnavailable("busy")]

    async def states(job_ids: Any, **options: Any) -> Any:
        if troubles:
            raise troubles.pop()
        return await real_states(job_ids, **options)

    monkeypatch.setattr(app.store, "states", states)
    await finish(app, job, Completed(b"1"))
    assert await job.result(timeout=PATIENCE) == 1

    async def broken(job_ids: Any, **options: Any) -> Any:
        raise StoreError("damaged")

    monkeypatch.setattr(app.store, "states", broken)
    with pytest.raises(StoreError, match="damaged"):
        await job.result(timeout=PATIENCE)


async def test_a_handle_shows_errors_and_attempts_with_times(
    app: Tidewheel, clock: FrozenClock, finish: Finish
) -> None:
    """What a person wants to know about a job that is not well."""
    job = await app.enqueue("t")
    started = clock.now()
    await finish(app, job, Retried(5, BOOM))
    await job.refresh()
    assert (job.state, job.shown_state, job.attempt, job.error) == ("pending", "retrying", 1, BOOM)
    assert job.error_summary == "boom: it broke"
    (attempt,) = job.attempts
    assert attempt.error == BOOM
    assert attempt.ended_at == job.created_at
    assert attempt.started_at is not None
    assert job.run_at - job.created_at == timedelta(seconds=5)
    clock.advance(10)
    await finish(app, job)
    await job.refresh()
    assert job.finished_at is not None
    assert job.finished_at - job.created_at == timedelta(seconds=10)
    assert clock.now() - started == 10_000_000


async def test_a_handle_manages_its_job(app: Tidewheel, finish: Finish) -> None:
    """And shows the new state afterwards."""
    job = await app.enqueue("t")
    assert await job.cancel() is True
    assert job.state == "cancelled"
    await job.requeue()
    assert job.state == "pending"
    await job.delete()
    with pytest.raises(JobNotFound):
        await job.refresh()


async def test_cancelling_a_running_job_is_a_request(app: Tidewheel) -> None:
    """Its worker decides; the handle shows that it was asked. Deleting it is refused."""
    job = await app.enqueue("t")
    await app.store.claim(ClaimRequest("w", (Lane("t", ""),), 1, 60))
    assert await job.cancel() is False
    assert (job.state, job.shown_state, job.cancel_requested) == ("running", "claimed", True)
    with pytest.raises(WrongState, match="is running and cannot be deleted"):
        await job.delete()


@pytest.mark.parametrize("verb", ["delete", "requeue"])
async def test_a_verb_is_tried_again_on_a_job_that_ends_at_that_moment(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """A refusal names a state in which the verb is impossible, never one in which it is possible."""
    job = await app.enqueue("t", max_attempts=1)
    (claimed,) = (await app.store.claim(ClaimRequest("w", (Lane("t", ""),), 1, 60))).jobs
    real, verdicts = getattr(app.store, verb), []

    async def end_just_afterwards(job_ids: Any, *, tenant: str | None) -> Any:
        verdicts.extend(found := await real(job_ids, tenant=tenant))
        await app.store.settle([Settlement(claimed.lease, Failed(BOOM), 0.1)])
        return found

    monkeypatch.setattr(app.store, verb, end_just_afterwards)
    await getattr(app, verb)(job.id)
    assert verdicts == [ActionResult.WRONG_STATE, ActionResult.DONE]


async def test_a_verb_gives_up_on_a_job_that_keeps_changing(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of tries is bounded, and the refusal says what happened."""

    async def refuse(job_ids: Any, *, tenant: str | None) -> Any:
        return [ActionResult.WRONG_STATE]

    job = await app.enqueue("t")
    monkeypatch.setattr(app.store, "delete", refuse)
    with pytest.raises(WrongState, match="changed its state during 5 tries to delete it; try again"):
        await app.delete(job.id)


async def test_handles_of_one_job_are_equal(app: Tidewheel) -> None:
    """They can be compared and kept in sets."""
    job = await app.enqueue("t")
    assert {job, await app.get(job.id)} == {job}
    assert job != "job"
    assert str(job.id) in repr(job)
