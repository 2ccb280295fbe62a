"""Firing: once each, across changes of the clock, absences and outages, by workers of every kind (Q24)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec import structs

from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tidewheel import Context, Cron, Every, InvalidInput, JobDraft, StoreUnavailable, Tidewheel
from tidewheel.admin.reports.answers import FindingKind
from tidewheel.core.clock import to_microseconds
from tidewheel.core.model import NewDocument
from tidewheel.schedules import schedule
from tidewheel.schedules import scheduler as module
from tidewheel.schedules.schedule import DOCUMENT_KIND, ScheduleOrigin, decode_schedule, encode_schedule
from tidewheel.schedules.scheduler import Scheduler
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker.backoff import RecoverySignal

HOUR = 3600.0
DAY = 24 * HOUR


async def _run(app: Tidewheel) -> int:
    return await app.run_until_idle(handle_signals=False)


def _noting(app: Tidewheel, name: str = "note", **options: Any) -> list[str]:
    """A task that notes for when its jobs were scheduled."""
    seen: list[str] = []

    async def note(ctx: Context) -> None:
        assert ctx.scheduled_for is not None
        seen.append(ctx.scheduled_for.isoformat()[5:16])

    app.task(name=name, **options)(note)
    return seen


def _scheduler(app: Tidewheel, store: Any = None) -> Scheduler:
    return Scheduler(store or app.store, app.registry, app.settings, app.clock, RecoverySignal())


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (datetime(2026, 3, 27, 12, tzinfo=UTC), ["03-28T01:30", "03-29T01:00", "03-30T00:30"]),
        (datetime(2026, 10, 23, 12, tzinfo=UTC), ["10-24T00:30", "10-25T00:30", "10-26T01:30"]),
    ],
    ids=["March", "October"],
)
async def test_a_night_job_fires_once_a_night_across_both_changes_of_the_clock(
    app: Tidewheel, clock: FrozenClock, start: datetime, expected: list[str]
) -> None:
    """02:30 in Berlin, with a look every hour for three days, by two schedulers that take turns."""
    clock.advance((start - datetime(2026, 3, 27, 12, tzinfo=UTC)).total_seconds())
    seen = _noting(app)
    app.schedule("night", "note", Cron("30 2 * * *", zone="Europe/Berlin"))
    both = (_scheduler(app), _scheduler(app))
    for step in range(3 * 24):
        await both[step % 2].run_once()
        clock.advance(HOUR)
    await _run(app)
    assert seen == expected
    assert (await app.schedules.get("night")).missed == 0


async def test_of_schedulers_that_see_the_same_moment_one_fires(app: Tidewheel, clock: FrozenClock) -> None:
    """Ten at once, for five firings: five jobs."""
    seen = _noting(app)
    await app.schedules.create("poll", "note", Every(60))
    crowd = [_scheduler(app) for _ in range(10)]
    for _ in range(5):
        clock.advance(60)
        await asyncio.gather(*(one.run_once() for one in crowd))
    await _run(app)
    assert seen == ["03-27T12:01", "03-27T12:02", "03-27T12:03", "03-27T12:04", "03-27T12:05"]


async def test_a_scheduler_that_stood_still_before_its_write_fires_nothing_again(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """It has decided what to write; when it can go on, the others are an hour further."""
    seen = _noting(app)
    await app.schedules.create("poll", "note", Every(600, missed="all"))
    frozen, others = _Held(app.store), _scheduler(app)
    clock.advance(600)
    stuck = asyncio.create_task(_scheduler(app, frozen).run_once())
    await frozen.reached.wait()
    for _ in range(6):
        await others.run_once()
        clock.advance(600)
    frozen.go.set()
    await stuck
    await others.run_once()
    await _run(app)
    assert seen == [f"03-27T{12 + minute // 60}:{minute % 60:02}" for minute in range(10, 80, 10)]


class _Held:
    """A store whose callers stand still just before they write."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def enqueue_with_document(self, *arguments: Any) -> Any:
        self.reached.set()
        await self.go.wait()
        return await self._inner.enqueue_with_document(*arguments)


@pytest.mark.parametrize(
    ("missed", "fired", "dropped"),
    [("one", ["03-27T14:00"], 11), ("skip", ["03-27T14:00"], 11), ("all", None, 7)],
)
async def test_what_a_sleeping_host_missed_becomes_what_the_schedule_says(
    app: Tidewheel,
    clock: FrozenClock,
    caplog: pytest.LogCaptureFixture,
    missed: Any,
    fired: list[str] | None,
    dropped: int,
) -> None:
    """Two hours of a schedule of every ten minutes, looked at in the second it wakes: one, none that is
    late, or the five newest. What was dropped is logged and counted.
    """
    seen = _noting(app)
    await app.schedules.create("poll", "note", Every(600, missed=missed, most=5))
    clock.advance(2 * HOUR)
    with caplog.at_level(logging.WARNING, "tidewheel.schedules"):
        await _run(app)
    assert seen == (fired or ["03-27T13:20", "03-27T13:30", "03-27T13:40", "03-27T13:50", "03-27T14:00"])
    assert (await app.schedules.get("poll")).missed == dropped
    assert f"{dropped} firings were missed" in caplog.text


async def test_skip_leaves_out_what_is_more_than_a_minute_late(memory: Tidewheel, clock: FrozenClock) -> None:
    """An hourly schedule, looked at a minute and a second past the hour."""
    seen = _noting(memory)
    await memory.schedules.create("poll", "note", Cron("0 * * * *", missed="skip"))
    clock.advance(HOUR + 60)
    await _run(memory)
    clock.advance(HOUR + 1)
    await _run(memory)
    assert seen == ["03-27T13:00"]
    assert (await memory.schedules.get("poll")).missed == 1


async def test_a_clock_that_goes_back_fires_nothing_twice(app: Tidewheel, clock: FrozenClock) -> None:
    """The store's clock is set back an hour and a half: the next firing is the one that has not been."""
    seen = _noting(app)
    await app.schedules.create("poll", "note", Cron("0 * * * *"))
    clock.advance(HOUR)
    await _run(app)
    clock._now -= int(1.5 * HOUR * 1e6)
    for _ in range(16):
        await _run(app)
        clock.advance(600)
    assert seen == ["03-27T13:00", "03-27T14:00"]


async def test_a_schedule_fires_again_after_a_clock_was_far_ahead(
    app: Tidewheel, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """For 12 s the store's clock is 200 days ahead, and a firing is made there. It counts from now again."""
    seen = _noting(app)
    await app.schedules.create("poll", "note", Cron("0 * * * *"))
    clock.advance(HOUR)
    await _run(app)
    clock.step(200 * DAY)
    clock.advance(12)
    await _run(app)
    clock.step(-200 * DAY)
    for _ in range(12):
        await _run(app)
        clock.advance(600)
    assert seen == ["03-27T13:00", "10-13T13:00", "03-27T14:00"]
    assert "schedule poll had fired 199d 23h ahead of now" in caplog.text
    assert caplog.text.count("schedule poll had fired") == 1


async def test_what_the_code_declares_is_written_by_its_workers(app: Tidewheel, clock: FrozenClock) -> None:
    """From the first start on; a pause outlives restarts, and a changed time begins anew."""
    seen = _noting(app, schedule=Cron("0 * * * *"))
    await _run(app)
    assert [one.name for one in await app.schedules.all()] == ["note"]
    await _run(app)
    document = await app.store.document(DOCUMENT_KIND, "note")
    assert document is not None
    assert document.version == 1  # nothing has changed, and nothing is written
    clock.advance(HOUR)
    await _run(app)
    assert seen == ["03-27T13:00"]
    await app.schedules.pause("note")
    await _run(app)
    assert (await app.schedules.get("note")).paused
    await app.schedules.resume("note")
    clock.advance(600)
    app.registry._schedules.clear()
    app.schedule("note", "note", Every(300), priority=4)
    await _run(app)
    told = await app.schedules.get("note")
    assert (told.when, told.options["priority"], told.origin) == (Every(300), 4, ScheduleOrigin.DECLARED)
    assert seen == ["03-27T13:00"]


async def test_what_went_out_of_the_code_does_not_fire_and_is_told(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """Although its task is known: whoever takes a schedule out of the code wants it gone. It is kept."""
    seen = _noting(app)
    app.schedule("old", "note", Cron("0 * * * *"))
    app.schedule("kept", "note", Cron("30 23 1 1 *"))
    await _run(app)
    del app.registry._schedules["old"]
    for _ in range(8):
        clock.advance(600)
        await _run(app)
    assert seen == []
    found = {one.name: one for one in await app.schedules.all()}
    assert (found["old"].undeclared, found["kept"].undeclared) == (True, False)
    findings = {one.kind: one for one in (await app.questions.attention()).findings}
    assert "old:" in findings[FindingKind.SCHEDULE_UNDECLARED].explanation
    await app.schedules.delete("old")


async def test_a_declared_name_that_was_created_by_hand_stays_what_it_was(
    memory: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither takes the other's place in silence."""
    await memory.schedules.create("night", "note", Every(60))
    _noting(memory)
    memory.schedule("night", "note", Every(5))
    await _run(memory)
    assert (await memory.schedules.get("night")).when == Every(60)
    assert "created at run time" in caplog.text


async def test_an_unreadable_schedule_in_the_place_of_a_declared_one_ends_no_worker(
    memory: Tidewheel, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A newer Tidewheel wrote it: that is told, and the others of the code fire."""
    await memory.store.write_documents([NewDocument(DOCUMENT_KIND, "night", b'{"when": 5}')])
    seen = _noting(memory)
    memory.schedule("night", "note", Every(60))
    memory.schedule("other", "note", Every(60))
    await _run(memory)
    clock.advance(60)
    await _run(memory)
    assert seen == ["03-27T12:01"]
    assert "schedule night of this code does not fire: schedule 'night' cannot be read" in caplog.text


async def test_a_declared_schedule_beyond_the_limit_is_told_and_displaces_none(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Workers read so many and no more: one more would silently take the place of the oldest."""
    monkeypatch.setattr(module, "MAX_SCHEDULES", 2)
    _noting(memory)
    await memory.schedules.create("oldest", "note", Every(60))
    memory.schedule("first", "note", Every(60))
    memory.schedule("second", "note", Every(60))
    await _run(memory)
    assert [one.name for one in await memory.schedules.all()] == ["first", "oldest"]
    assert (
        "schedule second of this code does not fire: there are 2 schedules, which is the limit" in caplog.text
    )


async def test_during_a_deployment_a_payload_of_the_other_version_is_left_to_its_workers(
    memory: Tidewheel, clock: FrozenClock
) -> None:
    """A worker whose code cannot make the job neither makes it nor says that it is missed."""

    @memory.task
    async def report(region: str) -> None: ...

    memory.schedule("report", "report", Every(60), {"region": "north"})
    old = _scheduler(memory)
    await old.run_once()
    newer = Tidewheel("memory://", clock=clock)

    @newer.task(name="report")
    async def report_on(country: str) -> None: ...

    newer.schedule("report", "report", Every(60), {"country": "no"})
    new = _scheduler(newer, memory.store)
    await new.run_once()
    clock.advance(60)
    await old.run_once()
    told = await memory.schedules.get("report")
    assert (told.fired, told.missed, told.trouble) == (0, 0, None)
    await new.run_once()
    told = await memory.schedules.get("report")
    assert (told.fired, told.payload) == (1, {"country": "no"})


async def test_what_an_old_worker_declared_last_ends_when_it_is_gone(
    memory: Tidewheel, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It came back during a deployment. While it lives its times count, after that those of the new code."""
    _noting(memory)
    memory.schedule("night", "note", Every(3600))
    new = _scheduler(memory)
    await new.run_once()
    memory.registry._schedules.clear()
    memory.schedule("night", "note", Every(7200))
    old = _scheduler(memory)
    await old.run_once()
    for _ in range(4):
        clock.advance(601)
        for one in (new, old):
            await one.run_once()
        assert (await memory.schedules.get("night")).when == Every(7200)
    assert caplog.text.count("declared otherwise") == 1
    clock.advance(1300)
    await new.run_once()
    told = await memory.schedules.get("night")
    assert (told.when, told.undeclared) == (Every(3600), False)


async def test_only_workers_that_know_the_task_let_it_fire(app: Tidewheel, clock: FrozenClock) -> None:
    """A worker of another app leaves it to them, and who looks is told that it is overdue."""
    await app.schedules.create("poll", "topic", Every(60))
    document = await app.store.document(DOCUMENT_KIND, "poll")
    assert document is not None
    body = decode_schedule(document)
    body.job = structs.replace(body.job, task="theirs")
    await app.store.write_documents([encode_schedule("poll", body, document.version)])
    clock.advance(HOUR)
    ours = _noting(app, "ours")
    await _run(app)
    told = await app.schedules.get("poll")
    assert (told.fired, told.overdue_since) == (0, datetime(2026, 3, 27, 12, 1, tzinfo=UTC))
    findings = {one.kind for one in (await app.questions.attention()).findings}
    assert FindingKind.SCHEDULE_OVERDUE in findings
    theirs = _noting(app, "theirs", topic="topic")
    await _run(app)
    assert (ours, theirs) == ([], ["03-27T13:00"])


async def test_a_payload_that_does_not_fit_any_more_is_told_and_the_schedule_goes_on(
    app: Tidewheel, clock: FrozenClock, caplog: pytest.LogCaptureFixture
) -> None:
    """No job is made of it; once it fits again, the trouble is over."""
    await app.schedules.create("poll", "topic", Every(60), {"too": "ann"})
    seen = []

    async def topic(to: str = "", too: int = 0) -> None:
        seen.append(to)

    app.task(topic)
    clock.advance(60)
    await _run(app)
    told = await app.schedules.get("poll")
    assert (told.fired, told.missed, seen) == (0, 1, [])
    assert "too" in (told.trouble or "")
    assert "makes no job" in caplog.text
    assert FindingKind.SCHEDULE_TROUBLED in {one.kind for one in (await app.questions.attention()).findings}
    await app.schedules.create("poll", topic.__name__, Every(60), {"to": "ben"}, replace=True)
    clock.advance(60)
    await _run(app)
    assert (seen, (await app.schedules.get("poll")).trouble) == (["ben"], None)


async def test_a_validator_that_raises_ends_no_worker(memory: Tidewheel, clock: FrozenClock) -> None:
    """Whatever it raises: it is the trouble of that schedule, and another one fires."""
    seen = _noting(memory)
    await memory.schedules.create("bad", "order", Every(60), {"number": 1})
    await memory.schedules.create("good", "note", Every(60))

    @dataclass
    class Order:
        number: int

        def __post_init__(self) -> None:
            raise ZeroDivisionError("not today")

    async def order(order: Order) -> None: ...

    memory.task(order)
    clock.advance(60)
    await _run(memory)
    assert seen == ["03-27T12:01"]
    assert "not today" in ((await memory.schedules.get("bad")).trouble or "")


async def test_a_bug_in_one_schedule_keeps_no_other_from_firing(
    memory: Tidewheel, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the worker lives."""
    seen = _noting(memory)
    for name in ("a", "bad", "c"):
        await memory.schedules.create(name, "note", Every(60))
    real = schedule.fire_due

    def broken(registry: Any, name: str, *more: Any) -> Any:
        if name == "bad":
            raise RuntimeError("a bug")
        return real(registry, name, *more)

    monkeypatch.setattr(module, "fire_due", broken)
    clock.advance(60)
    await _run(memory)
    assert seen == ["03-27T12:01"] * 2
    assert "schedule bad could not fire" in caplog.text


async def test_a_full_topic_makes_a_firing_wait(clock: FrozenClock, caplog: pytest.LogCaptureFixture) -> None:
    """It is told, and made when there is room."""
    async with Tidewheel("memory://", clock=clock, max_jobs_per_topic=1) as app:
        await app.schedules.create("poll", "full", Every(60))
        _noting(app, "another")
        waiting = await app.enqueue("full")
        clock.advance(60)
        await _run(app)
        told = await app.schedules.get("poll")
        assert (told.fired, told.missed) == (0, 0)
        assert "max_jobs_per_topic" in (told.trouble or "")
        await app.cancel(waiting.id)
        clock.advance(10)
        await _run(app)
        told = await app.schedules.get("poll")
        assert (told.fired, told.trouble) == (1, None)
    assert "waits" in caplog.text


async def test_a_worker_hears_of_a_new_schedule_at_once_and_lets_it_fire(
    app: Tidewheel, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the process that made it; others look every few seconds."""
    monkeypatch.setattr(module, "REFRESH_SECONDS", 3600.0)
    seen = _noting(app)
    async with working(app):
        await app.schedules.create("poll", "note", Every(60))
        clock.advance(60)
        await app.schedules.create("seldom", "note", Cron("0 0 1 1 *"))  # a change like any other
        await until(lambda: len(seen) >= 1)
    assert seen == ["03-27T12:01"]


async def test_the_lane_of_non_durable_tasks_has_no_schedules(memory: Tidewheel, clock: FrozenClock) -> None:
    """Its worker leaves them to those of the store, although both know the same code."""
    seen = _noting(memory, schedule=Every(60))

    async def flash() -> str:
        return "done"

    flashing = memory.task(durable=False)(flash)
    job = await flashing.enqueue()
    assert await job.result(timeout=PATIENCE) == "done"
    await _run(memory)
    clock.advance(60)
    await (await flashing.enqueue()).result(timeout=PATIENCE)
    assert seen == []
    await _run(memory)
    assert seen == ["03-27T12:01"]


async def test_the_setting_switches_it_off(clock: FrozenClock) -> None:
    """Such a worker neither writes what its code declares nor lets anything fire."""
    async with Tidewheel("memory://", clock=clock, schedules=False) as app:
        seen = _noting(app, schedule=Every(60))
        await _run(app)
        clock.advance(600)
        await _run(app)
        assert (seen, await app.schedules.all()) == ([], [])


async def test_a_store_that_is_away_is_waited_out(
    memory: Tidewheel, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The firing comes late, and once."""
    seen = _noting(memory)
    await memory.schedules.create("poll", "note", Every(60))
    clock.advance(60)
    tries = 0
    write = memory.store.enqueue_with_document

    async def away(*arguments: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 2:
            await write(*arguments)  # the answer is lost
        if tries <= 3:
            raise StoreUnavailable("the cable was pulled")
        return await write(*arguments)

    monkeypatch.setattr(memory.store, "enqueue_with_document", away)
    async with working(memory):
        await until(lambda: len(seen) >= 1)
        memory.registry.schedule_changes.announce()
        clock.advance(60)
        memory.registry.schedule_changes.announce()
        await until(lambda: len(seen) >= 2)
    assert seen == ["03-27T12:01", "03-27T12:02"]


async def test_no_schedules_are_one_cheap_look_now_and_then(
    memory: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is asked of the store, however often the scheduler turns."""
    calls: list[str] = []

    class Counting:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(memory.store, name)

    scheduler = _scheduler(memory, Counting())
    for _ in range(5):
        await scheduler._tick()
    assert calls == ["documents"]
    monkeypatch.setattr(module, "REFRESH_SECONDS", 0.0)
    clock = memory.clock
    assert isinstance(clock, FrozenClock)
    clock.advance(6)
    await scheduler._tick()
    assert calls == ["documents", "documents"]
    assert to_microseconds(datetime(2026, 3, 27, 12, 0, 6, tzinfo=UTC)) == clock.now()


async def test_middleware_sees_the_jobs_a_schedule_makes(app: Tidewheel, clock: FrozenClock) -> None:
    """Whoever makes them, a worker or somebody who runs it now; one that is refused is told as trouble."""
    seen: list[str] = []
    _noting(app, schedule=Every(HOUR))
    refusing = False

    @app.middleware
    def look(job: JobDraft) -> None:
        if refusing:
            raise ValueError("not today")
        seen.append(job.headers["schedule"])

    await _run(app)
    clock.advance(HOUR)
    await _run(app)
    await app.schedules.run("note")
    assert seen == ["note", "note"]
    refusing = True
    clock.advance(HOUR)
    await _run(app)
    assert (await app.schedules.get("note")).trouble == "ValueError: not today"


async def test_a_schedule_makes_no_jobs_that_run_after_others(app: Tidewheel) -> None:
    """Those end once; a schedule goes on."""
    job = await app.enqueue("pile")
    with pytest.raises(InvalidInput, match="those jobs end once"):
        await app.schedules.create("later", "pile", Every(HOUR), after=job)
