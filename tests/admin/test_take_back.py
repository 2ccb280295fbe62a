"""Taking running jobs from their holders, and finding holders that are gone."""

from __future__ import annotations

from typing import Any

import pytest

from tidewheel import InvalidInput, NotPermitted, SecurityContext, Tidewheel, WrongState, acting_as
from tidewheel.admin.reports.answers import StuckKind
from tidewheel.core.model import ClaimRequest, Lane, WorkerRecord
from tidewheel.testing.clock import FrozenClock


async def hold(app: Tidewheel, worker: str, number: int = 1, *, listed: bool = True) -> None:
    """Let a worker take jobs of the topic mail for an hour."""
    claim = await app.store.claim(ClaimRequest(worker, (Lane("mail"),), number, 3600))
    assert len(claim.jobs) == number
    if listed:
        await app.store.heartbeat(WorkerRecord(name=worker, host="box", pid=1, version="0", started_at=1))


async def test_a_job_is_taken_back_by_id_and_by_filter(app: Tidewheel) -> None:
    """By the app and by the handle; what does not run is refused with its state."""
    jobs = await app.enqueue_many("mail", [{}] * 3)
    await hold(app, "pull:a", 3)
    await app.take_back(jobs[0].id)
    await jobs[1].take_back()
    assert (jobs[1].state, jobs[1].attempt, jobs[1].worker) == ("pending", 0, None)
    assert await app.take_back_all(topic="mail") == 1
    with pytest.raises(WrongState, match="is pending and cannot be taken back; that is possible for jobs"):
        await app.take_back(jobs[0].id)
    with pytest.raises(InvalidInput, match="to take-back without a filter means every job"):
        await app.take_back_all()


async def test_jobs_of_lost_holders_are_told_from_those_of_live_ones(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """Lost: missing from the list of workers, or a puller that is not on it. Others may come over HTTP."""
    await app.enqueue_many("mail", [{}] * 5)
    await hold(app, "gone")
    await hold(app, "pull:box:1:aaaa", listed=False)
    await hold(app, "a-client-over-http", listed=False)
    clock.advance(30)
    await hold(app, "alive")
    await hold(app, "pull:box:2:bbbb", listed=False)  # not listed yet
    found = await app.questions.stuck()
    assert [(thing.kind, thing.worker) for thing in found.things if thing.jobs] == [
        (StuckKind.HOLDER_LOST, "gone"),
        (StuckKind.HOLDER_LOST, "pull:box:1:aaaa"),
    ]
    assert found.things[0].explanation == "1 job of mail held by gone, which has not been seen for 30 s"
    assert found.answer.startswith("2 jobs are stuck: 2 held by workers or pullers that are gone (mail")
    attention = await app.questions.attention()
    [finding] = [one for one in attention.findings if one.kind == "holder_lost" and one.worker == "gone"]
    assert "tidewheel jobs take-back --lost" in finding.remedy
    assert (await app.bulk.matching("take-back", {}, lost=True)).total == 2
    assert await app.take_back_all(lost=True, topic="other") == 0
    assert await app.take_back_all(lost=True) == 2
    assert await app.take_back_all(lost=True) == 0
    assert (await app.count(state="running")).total == 3


async def test_a_refusal_for_a_running_job_says_what_helps(app: Tidewheel) -> None:
    """Its holder may be gone, and then only taking it back frees it."""
    job = await app.enqueue("mail")
    await hold(app, "gone")
    with pytest.raises(WrongState, match=r"cannot be requeued.*; take a running job back to run it again"):
        await job.requeue()
    with pytest.raises(WrongState, match=r"cannot be deleted.*; cancel a running job, or take it back"):
        await job.delete()


async def test_workers_are_everybodys_so_a_tenant_cannot_ask_for_the_lost(app: Tidewheel) -> None:
    """Under a security context it is refused; a tenant takes back its own jobs by id or filter."""
    with acting_as(SecurityContext("acme")):
        with pytest.raises(NotPermitted):
            await app.take_back_all(lost=True)
        assert await app.take_back_all(topic="mail") == 0
    with pytest.raises(InvalidInput, match="lost is for take-back"):
        await app.bulk.matching("delete", {}, lost=True)


async def test_jobs_put_for_pullers_are_not_stuck_without_a_worker(app: Tidewheel) -> None:
    """A program pulls them now and then; a job for a task that nobody has is told as before."""

    @app.task
    async def known() -> None: ...

    await app.queue.put("pulled", b"1")
    assert (await app.questions.stuck()).things == ()
    await app.enqueue("forgotten")
    [thing] = (await app.questions.stuck()).things
    assert (thing.kind, thing.topic) == (StuckKind.UNKNOWN_TASK, "forgotten")


async def test_a_bulk_operation_takes_back_in_the_background(app: Tidewheel, clock: FrozenClock) -> None:
    """Also jobs of lost holders; the operation says that it was about those."""
    await app.enqueue_many("mail", [{}] * 2)
    await hold(app, "gone", 2)
    clock.advance(30)
    ended: list[Any] = []

    async def on_end(operation: Any) -> None:
        ended.append(operation)

    started = await app.bulk.start("take-back", {}, lost=True, on_end=on_end)
    assert (started.matched, started.filter) == (2, {"lost": "true"})
    await app.bulk.close()
    assert [(one.done, one.left_alone, one.reason) for one in ended] == [(2, {}, None)]


async def test_the_reason_for_jobs_left_alone_names_state_and_remedy(app: Tidewheel) -> None:
    """Counted by state, for each verb."""
    await app.enqueue_many("mail", [{}] * 3)
    await hold(app, "pull:a")
    by_topic = {"topic": "mail"}
    assert (await app.bulk.matching("requeue", by_topic)).left_alone == {"pending": 2, "running": 1}
    assert (await app.bulk.matching("delete", by_topic)).left_alone == {"running": 1}
    assert (await app.bulk.matching("delete", {"where": "state:running"})).left_alone == {"running": 1}
    assert (await app.bulk.matching("cancel", by_topic)).left_alone == {}
    assert (await app.bulk.matching("take-back", by_topic)).left_alone == {"pending": 2}
