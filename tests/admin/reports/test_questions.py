"""The six questions: each answered in a sentence, with figures that can be acted on (Q29)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from tests.app.conftest import Finish
from tidewheel import InvalidInput, JobError, NotPermitted, SecurityContext, Tidewheel, acting_as
from tidewheel.admin.reports.answers import StuckKind, StuckThing
from tidewheel.core.conditions import Compare, Comparison, Field
from tidewheel.core.model import ClaimRequest, Completed, Failed, Lane, Retried, Settlement, WorkerRecord
from tidewheel.testing.clock import FrozenClock

TENANT = SecurityContext("acme")
SOME = SecurityContext("acme", only=Compare(Field.USER_ID, Comparison.EQUAL, "mia"))


async def claim(app: Tidewheel, *topics: str, lease_seconds: float = 60.0) -> list[Any]:
    lanes = tuple(Lane(topic) for topic in topics)
    return list((await app.store.claim(ClaimRequest("hand", lanes, 100, lease_seconds))).jobs)


def worker(name: str, *lanes: Lane, **more: Any) -> WorkerRecord:
    return WorkerRecord(
        name=name, host="box", pid=1, version="0", started_at=1, lanes=lanes, concurrency=10, **more
    )


def kinds(things: tuple[StuckThing, ...]) -> list[tuple[StuckKind, int]]:
    return [(thing.kind, thing.jobs) for thing in things]


async def test_an_empty_queue_has_simple_answers(app: Tidewheel) -> None:
    """Six sentences, and nothing to divide by."""
    ask = app.questions
    assert (await ask.outstanding()).answer == "Nothing is outstanding."
    assert (await ask.failed()).answer == "No job has failed."
    assert (await ask.stuck()).answer == "Nothing is stuck."
    assert (await ask.durations()).answer == "No job has completed yet."
    assert (await ask.duplicates()).answer == "No duplicates were found."
    assert (await ask.last_hour()).answer == "Nothing happened in the last hour."


async def test_what_is_outstanding(app: Tidewheel, clock: FrozenClock) -> None:
    """Due, running and delayed jobs, the lanes with the most of them first, and how fast they get done."""
    await app.enqueue_many("mail", [{}] * 4)
    await app.enqueue("reports", delay=600)
    await app.pause("mail")
    clock.advance(90)
    await app.resume("mail")
    claimed = await claim(app, "mail")
    await app.store.settle([Settlement(claimed[0].lease, Completed(), 0.5)])
    await app.store.settle([Settlement(claimed[1].lease, Retried(0, JobError("x", "y")), 0.5)])
    found = await app.questions.outstanding()
    assert (found.pending, found.due, found.delayed, found.running) == (2, 1, 1, 2)
    mail, reports = found.lanes
    assert (mail.topic, mail.due, mail.running, mail.completed_per_minute) == ("mail", 1, 2, 0.1)
    assert (reports.topic, reports.pending, reports.due) == ("reports", 1, 0)
    assert found.answer == (
        "4 jobs outstanding: 1 due, 2 running, 1 delayed, the oldest for 1m 30s; the most in mail."
    )


async def test_what_failed_can_be_requeued_group_by_group(app: Tidewheel, finish: Finish) -> None:
    """Each group comes with a filter for its jobs, and only those."""
    errors = [
        *(JobError("timeout", f'host "db-{number}" timed out after {number}.5 s') for number in range(3)),
        JobError("timeout", "no answer"),
        JobError("missing", 'a "quoted \\ thing" is missing'),
    ]
    for error in errors:
        await finish(app, await app.enqueue("mail"), Failed(error))
    found = await app.questions.failed()
    assert [(group.error, group.jobs) for group in found.groups] == [
        ("timeout: host … timed out after … s", 3),
        ("missing: a … is missing", 1),
        ("timeout: no answer", 1),
    ]
    assert found.answer == (
        "5 jobs have failed, with 3 different errors, "
        "mostly “timeout: host … timed out after … s” in mail (3)."
    )
    for group in found.groups:
        assert (await app.count(where=group.where)).total == group.jobs, group.where
    assert await app.requeue_all(where=found.groups[0].where) == 3
    assert (await app.questions.failed()).jobs == 2


async def test_a_group_has_no_jobs_that_met_its_error_in_an_earlier_attempt(
    app: Tidewheel, finish: Finish
) -> None:
    """Nor any whose error says the same words and more: a filter selects what the group counts."""
    timeout = JobError("timeout", "host 7 timed out")
    await finish(app, await app.enqueue("mail"), Failed(timeout))
    for _ in range(3):
        await app.enqueue("mail")
        [claimed] = await claim(app, "mail")
        await app.store.settle([Settlement(claimed.lease, Retried(0, timeout))])
        [claimed] = await claim(app, "mail")
        await app.store.settle([Settlement(claimed.lease, Failed(JobError("missing", "no address")))])
    await finish(app, await app.enqueue("mail"), Failed(JobError("timeout", "host 8 timed out at last")))
    found = await app.questions.failed()
    assert {(group.error, group.jobs) for group in found.groups} == {
        ("missing: no address", 3),
        ("timeout: host … timed out", 1),
        ("timeout: host … timed out at last", 1),
    }
    for group in found.groups:
        assert (await app.count(where=group.where)).total == group.jobs, group.where
    [alone] = [group for group in found.groups if group.error == "timeout: host … timed out"]
    assert await app.delete_all(where=alone.where) == 1
    assert (await app.count(where="any_error:timed")).total == 4
    assert (await app.count(where="error:timed")).total == 1


async def test_failures_can_be_narrowed(app: Tidewheel, finish: Finish) -> None:
    """With every filter of lists but a state, which is known."""
    for topic in ("mail", "reports"):
        await finish(app, await app.enqueue(topic, {"n": 1}), Failed(JobError("x", "y")))
    assert [group.topic for group in (await app.questions.failed(topic="mail")).groups] == ["mail"]
    found = await app.questions.failed(where="topic:reports payload.n:1")
    assert [group.topic for group in found.groups] == ["reports"]
    assert (await app.questions.failed(limit=1)).errors == 2
    with pytest.raises(InvalidInput, match="about failed jobs"):
        await app.questions.failed(state="completed")
    with pytest.raises(InvalidInput, match="limit is 0"):
        await app.questions.failed(limit=0)


async def test_jobs_nobody_takes_are_stuck(app: Tidewheel) -> None:
    """Without a live worker for their lane; and one that this app does not know either is told apart."""

    @app.task
    def send() -> None: ...

    await send.enqueue()
    await app.enqueue("unheard-of")
    await app.enqueue("taken")
    await app.store.heartbeat(worker("anna", Lane("taken")))
    found = await app.questions.stuck()
    assert [(thing.kind, thing.topic) for thing in found.things] == [
        (StuckKind.NO_WORKER, "send"),
        (StuckKind.UNKNOWN_TASK, "unheard-of"),
    ]
    assert found.answer == (
        "2 jobs are stuck: 1 due that no live worker takes (send); "
        "1 due whose task is known to no live worker and not here (unheard-of)."
    )
    await app.store.heartbeat(worker("bert", Lane("send", "send"), more_lanes=1))
    assert (await app.questions.stuck()).things == ()


async def test_jobs_of_a_paused_topic_are_stuck_when_they_are_due(app: Tidewheel) -> None:
    """A pause is somebody's wish, and still the answer to why nothing happens."""
    await app.store.heartbeat(worker("anna", Lane("mail")))
    await app.enqueue("mail", delay=60)
    await app.pause("mail", 90)
    assert (await app.questions.stuck()).things == ()
    await app.enqueue("mail")
    found = await app.questions.stuck()
    assert kinds(found.things) == [(StuckKind.PAUSED, 1)]
    assert found.things[0].explanation == "1 due job of mail, which is paused for another 1m 30s"


async def test_running_jobs_that_should_have_ended_are_stuck(app: Tidewheel, clock: FrozenClock) -> None:
    """Their lease is over, or they run far beyond their timeout, or far longer than others of their task."""
    await app.store.heartbeat(worker("anna", *(Lane(topic) for topic in ("usual", "limited", "left"))))
    await app.enqueue_many("usual", [{}] * 20, timeout=None)
    await app.store.settle([Settlement(job.lease, Completed(), 2.0) for job in await claim(app, "usual")])
    slow = await app.enqueue("usual", timeout=None)
    limited = await app.enqueue("limited", timeout=60)
    left = await app.enqueue("left", timeout=None)
    await claim(app, "usual", "limited", lease_seconds=3600)
    await claim(app, "left", lease_seconds=30)
    for seconds in (29, 5):  # a lease that has just ended is on its way back
        clock.advance(seconds)
        await app.store.heartbeat(worker("anna", *(Lane(topic) for topic in ("usual", "limited", "left"))))
        assert (await app.questions.stuck()).answer == "Nothing is stuck."
    clock.advance(66)
    await app.store.heartbeat(worker("anna", *(Lane(topic) for topic in ("usual", "limited", "left"))))
    found = await app.questions.stuck()
    assert {(thing.kind, thing.job_id) for thing in found.things} == {
        (StuckKind.SLOW, slow.id),
        (StuckKind.TIMED_OUT, limited.id),
        (StuckKind.LEASE_ENDED, left.id),
    }
    assert (found.jobs, found.complete) == (3, True)
    assert {thing.worker for thing in found.things} == {"hand"}


async def test_workers_in_trouble_are_told(app: Tidewheel, clock: FrozenClock) -> None:
    """One that vanished, and one whose handlers do not stop; those are no stuck jobs yet."""
    await app.store.heartbeat(worker("anna"))
    clock.advance(60)
    await app.store.heartbeat(worker("bert", stuck=3))
    found = await app.questions.stuck()
    assert [thing.explanation for thing in found.things] == [
        "worker anna has not been heard of for 1m",
        "worker bert has 3 of 10 slots held by what was told to stop and goes on",
    ]
    assert found.answer == "No job is stuck, but 1 worker is missing and 1 worker has stuck slots."


async def test_how_long_jobs_take(app: Tidewheel, clock: FrozenClock) -> None:
    """The slowest task first; all together, of the last hour."""
    for topic, seconds in (("quick", 0.01), ("slow", 8.0)):
        await app.enqueue_many(topic, [{}] * 3)
        clock.advance(10)
        await app.store.settle(
            [Settlement(job.lease, Completed(), seconds) for job in await claim(app, topic)]
        )
    found = await app.questions.durations()
    assert [(task.topic, task.run_time.count) for task in found.tasks] == [("slow", 3), ("quick", 3)]
    assert found.tasks[0].run_time.average == 8.0
    assert found.run_time.count == 6
    assert "the slowest is slow: half of its jobs run for up to" in found.answer


async def test_whether_there_are_duplicates(app: Tidewheel, finish: Finish) -> None:
    """Keys that were used again, and pending jobs with the payload of another."""
    for _ in range(2):
        await finish(app, await app.enqueue("mail", key="order-7", until="finished"))
    await app.enqueue_many("reports", [{"day": 1}, {"day": 1}, {"day": 1}, {"day": 2}])
    found = await app.questions.duplicates()
    assert [(group.key, group.jobs) for group in found.same_key] == [("order-7", 2)]
    assert [(group.topic, group.key, group.jobs) for group in found.same_payload] == [("reports", None, 3)]
    assert found.complete
    assert found.answer == (
        "2 pending jobs repeat the payload of another, mostly in reports; "
        "1 key was used more than once, mostly in mail."
    )


async def test_what_ran_in_the_last_hour(app: Tidewheel, finish: Finish, clock: FrozenClock) -> None:
    """What came in and ended since, by minute, and the busiest lanes; nothing older."""
    await finish(app, await app.enqueue("old"))
    clock.advance(3700)
    await finish(app, await app.enqueue("mail"))
    await finish(app, await app.enqueue("mail"), Failed(JobError("x", "y")))
    await finish(app, await app.enqueue("reports"), Retried(60, JobError("x", "y")))
    found = await app.questions.last_hour()
    assert (found.enqueued, found.completed, found.failed, found.retried, found.exact) == (3, 1, 1, 1, True)
    assert [(lane.topic, lane.completed) for lane in found.lanes] == [("mail", 1), ("reports", 0)]
    assert found.lanes[0].average_run_seconds == 0.5
    assert sum(minute.enqueued for minute in found.series) == 3
    assert found.answer == "In the last hour 3 jobs came in; 1 completed, 1 failed, 0 cancelled, 1 retry."


async def test_throughput_by_task_and_topic(app: Tidewheel, finish: Finish, clock: FrozenClock) -> None:
    """For charts: counts as of now, and what happened in each minute."""
    await finish(app, await app.enqueue("mail"))
    clock.advance(60)
    await app.enqueue("mail")
    [mail] = await app.task_stats()
    assert (mail.topic, mail.task, mail.pending, mail.completed) == ("mail", "", 1, 1)
    assert mail.activity is not None
    assert [minute.enqueued for minute in mail.activity.series] == [1, 1]
    [mail] = await app.task_stats(tenant="root")
    assert (mail.pending, mail.activity) == (1, None)
    with pytest.raises(InvalidInput, match="window"):
        await app.task_stats(0)


async def test_a_tenant_is_answered_about_its_own_jobs(
    app: Tidewheel, finish: Finish, clock: FrozenClock
) -> None:
    """And not about workers, nor about what happened to all together."""
    for tenant in ("acme", "globex", "globex"):
        await app.enqueue("mail", tenant=tenant)
        await finish(app, await app.enqueue("done", tenant=tenant))
        await finish(app, await app.enqueue("bad", tenant=tenant), Failed(JobError("x", "y")))
    await app.store.heartbeat(worker("anna"))
    clock.advance(60)
    ask = app.questions
    with acting_as(TENANT):
        assert [lane.topic for lane in (await ask.outstanding()).lanes] == ["mail"]
        assert (await ask.failed()).jobs == 1
        assert (await ask.stuck()).answer == "Nothing is stuck."
        assert [(task.topic, task.run_time.count) for task in (await ask.durations()).tasks] == [("done", 1)]
        assert (await ask.duplicates()).same_payload == ()
        hour = await ask.last_hour()
        assert (hour.enqueued, hour.completed, hour.failed, hour.lanes) == (3, 1, 1, ())
        with pytest.raises(InvalidInput, match="acts as tenant"):
            await ask.outstanding(tenant="globex")
    # An operator who asks about a tenant has to know that nobody works for it.
    assert kinds((await ask.stuck(tenant="acme")).things) == [
        (StuckKind.NO_WORKER, 1),
        (StuckKind.WORKER_MISSING, 0),
    ]
    assert [(group.tenant, group.jobs) for group in (await ask.duplicates()).same_payload] == [("globex", 2)]


async def test_a_row_filter_leaves_the_jobs_in_view(app: Tidewheel, clock: FrozenClock) -> None:
    """Counters tell of more than may be seen: what is in view is counted, and the rest refused."""
    for user, number in (("mia", 1), ("ben", 2)):
        with acting_as(SecurityContext("acme", user_id=user)):
            await app.enqueue_many("mail", [{}] * number)
            await app.enqueue_many("held", [{}] * number, timeout=1)
    await claim(app, "held", lease_seconds=3600)
    clock.advance(10)
    await app.pause("mail")
    with acting_as(SOME):
        ask = app.questions
        found = await ask.outstanding()
        assert sorted((lane.topic, lane.pending, lane.due, lane.running) for lane in found.lanes) == [
            ("held", 0, 0, 1),
            ("mail", 1, 1, 0),
        ]
        assert kinds((await ask.stuck()).things) == [(StuckKind.TIMED_OUT, 1), (StuckKind.PAUSED, 1)]
        assert (await ask.last_hour()).enqueued == 2
        assert (await ask.failed()).jobs == 0
        for question in (ask.durations, ask.duplicates):
            with pytest.raises(NotPermitted, match="sees only some"):
                await question()


async def test_answers_can_be_written_down(app: Tidewheel, finish: Finish) -> None:
    """Plain data: a program that speaks JSON needs words for ids and times only."""
    await finish(app, await app.enqueue("mail"), Failed(JobError("x", "y")))
    await app.enqueue_many("mail", [{}, {}])
    ask = app.questions
    for answer in (
        await ask.outstanding(),
        await ask.failed(),
        await ask.stuck(),
        await ask.durations(),
        await ask.duplicates(),
        await ask.last_hour(),
    ):
        assert json.loads(json.dumps(asdict(answer), default=str))["answer"] == answer.answer


def test_blocking_code_asks_the_same_questions() -> None:
    """``app.sync.questions`` has every one of them."""
    app = Tidewheel("memory://")
    with app.sync as blocking:
        blocking.enqueue("mail")
        assert blocking.questions.outstanding().due == 1
        assert blocking.questions.stuck().jobs == 1
        assert blocking.questions.last_hour().enqueued == 1
