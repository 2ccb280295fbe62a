"""``app.schedules``: made, listed, paused, run and deleted, on every store (Q24)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from tidewheel import (
    ConfigurationError,
    Context,
    Cron,
    Every,
    HandlerNotFound,
    InvalidInput,
    InvalidPayload,
    LimitExceeded,
    NotPermitted,
    Retry,
    ScheduleNotFound,
    SecurityContext,
    Tidewheel,
    WrongState,
    acting_as,
)
from tidewheel.core.model import NewDocument
from tidewheel.schedules import manager as module
from tidewheel.schedules.schedule import DOCUMENT_KIND, decode_schedule, encode_schedule
from tidewheel.testing.clock import FrozenClock

HOUR = 3600.0


async def _run(app: Tidewheel) -> int:
    return await app.run_until_idle(handle_signals=False)


async def test_a_schedule_makes_its_jobs_at_its_times(app: Tidewheel, clock: FrozenClock) -> None:
    """As they were asked for, options included; the handler knows for when, and the schedule which job."""
    seen = []

    @app.task
    async def mail(ctx: Context, to: str) -> None:
        seen.append((to, ctx.schedule, ctx.scheduled_for, ctx.tenant, ctx.job.priority))

    made = await app.schedules.create(
        "digest", mail, Cron("0 * * * *"), {"to": "ann"}, priority=7, tenant="acme", max_attempts=1
    )
    assert made.next_runs == tuple(datetime(2026, 3, 27, hour, tzinfo=UTC) for hour in range(13, 18))
    assert (made.task, made.topic, made.payload, made.origin) == ("mail", "mail", {"to": "ann"}, "created")
    assert await _run(app) == 0
    clock.advance(HOUR)
    assert await _run(app) == 1
    assert seen == [("ann", "digest", datetime(2026, 3, 27, 13, tzinfo=UTC), "acme", 7)]
    assert await _run(app) == 0
    told = await app.schedules.get("digest")
    assert (told.fired, told.missed, told.last_fire_time) == (1, 0, datetime(2026, 3, 27, 13, tzinfo=UTC))
    assert told.last_job_id is not None
    job = await app.get(told.last_job_id)
    assert (job.state, job.max_attempts) == ("completed", 1)
    assert told.options["priority"] == 7
    assert told.next_runs[0] == datetime(2026, 3, 27, 14, tzinfo=UTC)
    assert await app.store.check() == []


async def test_schedules_are_told_by_name_and_found_by_it(app: Tidewheel) -> None:
    """Whoever misspells one is told which is near."""
    for name in ("b", "a", "c:1"):
        await app.schedules.create(name, "topic", Every(60))
    assert [one.name for one in await app.schedules.all()] == ["a", "b", "c:1"]
    with pytest.raises(ScheduleNotFound, match=r"'c:2' \(did you mean c:1\?\)"):
        await app.schedules.get("c:2")
    await app.schedules.delete("b")
    with pytest.raises(ScheduleNotFound):
        await app.schedules.delete("b")
    assert [one.name for one in await app.schedules.all()] == ["a", "c:1"]


async def test_a_paused_schedule_makes_nothing_and_goes_on_from_now(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """What passed meanwhile is not made up for; resuming one that is not paused changes nothing."""
    await app.schedules.create("poll", "topic", Every(60, missed="all"))
    assert (await app.schedules.pause("poll")).next_runs == ()
    app.task(name="topic")(_nothing)
    clock.advance(600)
    assert await _run(app) == 0
    resumed = await app.schedules.resume("poll")
    assert (resumed.paused, resumed.missed) == (False, 0)
    clock.advance(60)
    await app.schedules.resume("poll")
    assert await _run(app) == 1


async def _nothing() -> None:
    pass


async def test_run_now_makes_a_job_whatever_the_times_are(app: Tidewheel, clock: FrozenClock) -> None:
    """Also while it is paused; its own firings come as before."""
    app.task(name="topic")(_nothing)
    await app.schedules.create("poll", "topic", Every(HOUR))
    await app.schedules.pause("poll")
    job = await app.schedules.run("poll")
    assert await _run(app) == 1
    assert (await job.refresh()).state == "completed"
    told = await app.schedules.resume("poll")
    assert (told.last_job_id, told.fired) == (job.id, 1)
    clock.advance(HOUR)
    assert await _run(app) == 1


async def test_a_replaced_schedule_keeps_its_pause_and_counts_its_times_anew(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """Nothing of the old times is made up for, and a name that is taken is not taken by accident."""
    await app.schedules.create("poll", "topic", Every(60))
    clock.advance(600)
    with pytest.raises(WrongState, match="replace it"):
        await app.schedules.create("poll", "topic", Every(30))
    await app.schedules.pause("poll")
    replaced = await app.schedules.create("poll", "other", Every(30), [1], replace=True)
    assert (replaced.paused, replaced.topic, replaced.payload, replaced.when) == (
        True,
        "other",
        [1],
        Every(30),
    )
    await app.schedules.resume("poll")
    app.task(name="other", topic="other")(_nothing)
    assert await _run(app) == 0


async def test_a_schedule_is_checked_as_an_enqueue_is(memory: Tidewheel) -> None:
    """The value, the limit, the remedy; and nothing is written."""
    app = memory

    @app.task
    async def mail(to: str) -> None: ...

    @app.task(durable=False)
    async def flash() -> None: ...

    create = app.schedules.create
    for error, words, call in (
        (InvalidPayload, "to", create("a", mail, Every(60))),
        (InvalidPayload, "to", create("a", "mail", Every(60), {"to": 5})),
        (InvalidInput, "give a", create("a", mail, "0 3 * * *", {"to": "x"})),  # type: ignore[arg-type]
        (InvalidInput, "1 to 200", create("a b", mail, Every(60), {"to": "x"})),
        (InvalidInput, "not . or ..", create("..", mail, Every(60), {"to": "x"})),
        (InvalidInput, "priority", create("a", mail, Every(60), {"to": "x"}, priority=2**40)),
        (InvalidInput, "says when", create("a", mail, Every(60), {"to": "x"}, delay=5)),
        (InvalidInput, "later firings", create("a", mail, Every(60), {"to": "x"}, expires=datetime.now(UTC))),
        (InvalidInput, "not durable", create("a", flash, Every(60))),
        (LimitExceeded, "16,384", create("a", "topic", Every(60), "x" * 20_000)),
        (InvalidInput, "topic", create("a", "no topic", Every(60))),
    ):
        with pytest.raises(error, match=words):
            await call
    assert await app.schedules.all() == []
    strict = Tidewheel("memory://", strict_tasks=True)
    async with strict:
        with pytest.raises(HandlerNotFound):
            await strict.schedules.create("a", "mail", Every(60))


async def test_schedules_are_the_systems(memory: Tidewheel) -> None:
    """They are about all tenants: code that acts for one is refused."""
    with acting_as(SecurityContext("acme")), pytest.raises(NotPermitted):
        await memory.schedules.all()
    with acting_as(SecurityContext("acme")), pytest.raises(NotPermitted):
        await memory.schedules.create("a", "topic", Every(60))


async def test_there_are_so_many_schedules_and_no_more(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers keep all of them in mind."""
    monkeypatch.setattr(module, "MAX_SCHEDULES", 2)
    await memory.schedules.create("a", "topic", Every(60))
    await memory.schedules.create("b", "topic", Every(60))
    with pytest.raises(LimitExceeded, match="2 schedules"):
        await memory.schedules.create("c", "topic", Every(60))
    await memory.schedules.create("b", "topic", Every(30), replace=True)


async def test_options_of_jobs_are_kept(memory: Tidewheel, clock: FrozenClock) -> None:
    """Also those that no plain JSON has: retry policies, keys from the payload, durations."""
    await memory.schedules.create(
        "poll",
        "topic",
        Every(60),
        {"n": 1},
        retry=Retry.fixed(9),
        expires=timedelta(minutes=5),
        timeout=None,
        correlation_id="c",
    )
    clock.advance(60)
    memory.task(name="another")(_other)
    await _run(memory)
    told = await memory.schedules.get("poll")
    assert told.last_job_id is not None
    record = (await memory.get(told.last_job_id)).record
    assert record.retry == Retry.fixed(9).dump()
    assert (record.timeout, record.correlation_id, record.task) == (None, "c", "")


async def _other() -> None:
    pass


async def test_a_key_keeps_a_second_job_out_and_the_schedule_names_the_first(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """Firing goes on; while a job holds the key, that is the one to look at."""
    app.task(name="another")(_other)
    await app.schedules.create("poll", "topic", Every(60), key="only", until="finished")
    holder = await app.enqueue("topic", key="only", until="finished")
    clock.advance(60)
    await _run(app)
    told = await app.schedules.get("poll")
    assert (told.last_job_id, told.fired) == (holder.id, 1)
    assert (await app.schedules.run("poll")).duplicate
    assert (await app.count(topic="topic")).total == 1


async def test_what_cannot_be_read_is_shown_and_harms_no_other(app: Tidewheel, clock: FrozenClock) -> None:
    """One that a newer Tidewheel wrote, or in a zone this machine has not: told, and deleted if need be."""
    app.task(name="topic")(_nothing)
    await app.schedules.create("good", "topic", Every(60))
    await app.store.write_documents([NewDocument(DOCUMENT_KIND, "bad", b'{"when": 5}')])
    good = await app.store.document(DOCUMENT_KIND, "good")
    assert good is not None
    ahead = structs.replace(decode_schedule(good), fired_until=2**62)
    await app.store.write_documents([encode_schedule("far", ahead, 0)])
    found = {one.name: one for one in await app.schedules.all()}
    assert "cannot be read" in (found["bad"].trouble or "")
    assert found["good"].trouble is None
    assert found["far"].next_runs == ()  # no calendar has them
    clock.advance(60)
    assert await _run(app) == 1
    await app.schedules.delete("bad")


def test_the_blocking_twin_does_the_same(clock: FrozenClock) -> None:
    """For programs without an event loop."""
    app = Tidewheel("memory://", clock=clock)
    app.task(name="topic")(_nothing)
    with app.sync as blocking:
        blocking.schedules.create("poll", "topic", Every(60))
        job = blocking.schedules.run("poll")
        clock.advance(60)
        assert blocking.run_until_idle(handle_signals=False) == 2
        assert job.refresh().state == "completed"
        assert [one.fired for one in blocking.schedules.all()] == [2]


def test_a_schedule_in_the_code_that_cannot_work_is_refused_at_once() -> None:
    """When the module is imported, with the name of the schedule."""
    app = Tidewheel("memory://")
    with pytest.raises(ConfigurationError, match=r"schedule 'needs'.*to"):

        @app.task(schedule=Cron("0 3 * * *"))
        async def needs(to: str) -> None: ...

    app.schedule("twice", "topic", Every(60))
    with pytest.raises(ConfigurationError, match="two schedules"):
        app.schedule("twice", "topic", Every(60))
    with pytest.raises(ConfigurationError, match="give a"):
        app.task(schedule="0 3 * * *")(_nothing)  # type: ignore[call-overload]
