"""Pulling by hand: every verb of ``app.queue``, on every store."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidewheel import (
    ConfigurationError,
    InvalidInput,
    JobNotFound,
    LimitExceeded,
    NotBuried,
    NotPermitted,
    NotReserved,
    ReserveTimeout,
    SecurityContext,
    Tidewheel,
    TouchLimitExceeded,
    WrongState,
    acting_as,
)
from tidewheel.core.conditions import Compare, Comparison, Field
from tidewheel.pull import queue as queue_module
from tidewheel.pull.queue import Queue
from tidewheel.pull.queue_stats import Recovery
from tidewheel.testing.clock import FrozenClock


async def test_a_job_is_put_reserved_and_deleted(app: Tidewheel, queue: Queue) -> None:
    """Bytes come back as they were, and what is deleted is kept as completed."""
    job = await queue.put("mail", b"\x00\xff", ttr=5)
    reserved = await queue.reserve(["mail"], timeout=0)
    assert (reserved.id, reserved.body, reserved.ttr, reserved.attempt) == (job.id, b"\x00\xff", 5.0, 1)
    assert (await app.get(job.id)).state == "running"
    await reserved.delete()
    assert (await app.get(job.id)).state == "completed"
    with pytest.raises(NotReserved, match="not reserved by you any more"):
        await reserved.delete()


async def test_anything_but_bytes_is_json(queue: Queue) -> None:
    """As for every other job."""
    await queue.put("mail", {"to": ["Ada"]})
    reserved = await queue.reserve("mail", timeout=0)
    assert reserved.body == {"to": ["Ada"]}
    assert reserved.raw == b'{"to":["Ada"]}'


async def test_the_highest_priority_of_all_topics_comes_first(queue: Queue) -> None:
    """Then the oldest."""
    for topic, priority in (("a", 0), ("b", 5), ("a", 5), ("c", 9)):
        await queue.put(topic, f"{topic}{priority}", priority=priority)
    bodies = [(await queue.reserve(["a", "b"], timeout=0)).body for _ in range(3)]
    assert bodies == ["b5", "a5", "a0"]
    with pytest.raises(ReserveTimeout, match="no job of a, b was ready within 0 s"):
        await queue.reserve(["a", "b"], timeout=0)


async def test_attempts_of_a_pulled_job_are_not_limited(queue: Queue, clock: FrozenClock) -> None:
    """Its time to run may be over as often as it likes; each time is counted."""
    job = await queue.put("mail", ttr=1)
    for number in range(1, 6):
        await queue.reserve("mail", timeout=0)
        clock.advance(1.5)
        assert (await queue.stats_job(job.id)).reserves == number
    await queue.reserve("mail", timeout=0)
    assert (await queue.stats_job(job.id)).timeouts == 5


async def test_a_late_verb_is_refused_and_changes_nothing(queue: Queue, clock: FrozenClock) -> None:
    """Whoever let the time to run pass has lost the job."""
    job = await queue.put("mail", ttr=2)
    late = await queue.reserve("mail", timeout=0)
    clock.advance(2.5)
    again = await queue.reserve("mail", timeout=0)
    assert late.time_left == 0
    for verb in (late.delete, late.release, late.bury, late.touch):
        with pytest.raises(NotReserved):
            await verb()
    assert (await queue.stats_job(job.id)).state == "reserved"
    await again.delete()


async def test_a_released_job_comes_back_as_told(queue: Queue, clock: FrozenClock) -> None:
    """With another priority, after a delay; a release is no attempt."""
    job = await queue.put("mail")
    await (await queue.reserve("mail", timeout=0)).release(priority=-7, delay=timedelta(seconds=3))
    stats = await queue.stats_job(job.id)
    assert (stats.state, stats.priority, stats.time_left, stats.releases) == ("delayed", -7, 3.0, 1)
    clock.advance(3)
    assert (await queue.reserve("mail", timeout=0)).attempt == 1


async def test_buried_jobs_are_kicked_in_the_order_of_their_burial(queue: Queue, clock: FrozenClock) -> None:
    """And stay until then, whatever they were put with."""
    jobs = [await queue.put("mail", number) for number in range(3)]
    for reserved in reversed([await queue.reserve("mail", timeout=0) for _ in jobs]):
        clock.advance(1)
        await reserved.bury(priority=3, reason="the server said no")
    first = await queue.peek_buried("mail")
    assert first is not None
    assert first.id == jobs[2].id
    assert first.error is not None
    assert (first.error.code, first.error.message) == ("buried", "the server said no")
    assert await queue.kick("mail", 2) == 2
    ready = await queue.peek_ready("mail")
    assert ready is not None
    assert (ready.id, ready.priority) == (jobs[1].id, 3)
    assert (await queue.stats_topic("mail")).buried == 1
    stats = await queue.stats_job(jobs[2].id)
    assert (stats.state, stats.buries, stats.kicks) == ("ready", 1, 1)


async def test_delayed_jobs_are_kicked_where_none_is_buried(queue: Queue) -> None:
    """Those that would be ready next first."""
    later = await queue.put("mail", delay=20)
    sooner = await queue.put("mail", delay=10)
    next_one = await queue.peek_delayed("mail")
    assert next_one is not None
    assert next_one.id == sooner.id
    assert await queue.kick("mail") == 1
    assert (await queue.reserve("mail", timeout=0)).id == sooner.id
    assert await queue.kick("mail", 1000) == 1
    assert (await queue.reserve("mail", timeout=0)).id == later.id
    assert await queue.kick("mail", 1000) == 0


async def test_a_kick_of_many_stops_after_the_last_buried_job(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they fill batches to the last place: delayed ones are kicked only where none is buried."""
    monkeypatch.setattr(queue_module, "MAX_BATCH", 2)
    for number in range(4):
        await queue.put("mail", number)
    for _ in range(4):
        await (await queue.reserve("mail", timeout=0)).bury()
    for number in range(5):
        await queue.put("mail", number, delay=60)
    assert await queue.kick("mail", 100) == 4
    assert (await queue.stats_topic("mail")).delayed == 5
    assert await queue.kick("mail", 3) == 3
    assert await queue.kick("mail", 100) == 2


async def test_a_single_job_is_kicked_or_it_is_said_why_not(queue: Queue) -> None:
    """Buried and delayed ones can be."""
    job = await queue.put("mail", delay=10)
    await queue.kick_job(job.id)
    with pytest.raises(NotBuried, match="neither buried nor delayed"):
        await queue.kick_job(job.id)
    await (await queue.reserve("mail", timeout=0)).bury()
    await queue.kick_job(job.id)
    assert (await queue.stats_job(job.id)).kicks == 2


async def test_a_job_can_be_reserved_by_its_id(queue: Queue) -> None:
    """Delayed, buried or in a paused topic; not one that somebody has."""
    job = await queue.put("mail", delay=60)
    await queue.pause("mail")
    reserved = await queue.reserve_job(job.id)
    with pytest.raises(WrongState, match="cannot be reserved"):
        await queue.reserve_job(job.id)
    await reserved.bury()
    await (await queue.reserve_job(job.id)).delete()
    with pytest.raises(WrongState, match="is completed"):
        await queue.reserve_job(job.id)


async def test_touching_starts_the_time_anew_within_limits(queue: Queue, clock: FrozenClock) -> None:
    """Too soon and too often are told apart. The first touch may come at once."""
    job = await queue.put("mail", ttr=30)
    reserved = await queue.reserve("mail", timeout=0)
    for _ in range(10):
        assert await reserved.touch() == 30.0
        assert reserved.time_left == 30.0
        clock.advance(4.5)
        with pytest.raises(
            TouchLimitExceeded, match=r"4\.5 s ago; 5 s .* \(min_touch_interval\)|max_touches"
        ):
            await reserved.touch()
        clock.advance(15.5)
    with pytest.raises(TouchLimitExceeded, match="max_touches"):
        await reserved.touch()
    assert (await queue.stats_job(job.id)).touches == 10
    assert (await queue.stats_job(job.id)).time_left == 10.0
    clock.advance(10)
    with pytest.raises(TouchLimitExceeded):
        await reserved.touch()


async def test_touches_together_make_a_reservation_only_so_much_longer(
    queue: Queue, clock: FrozenClock
) -> None:
    """Ten minutes, however few touches that took."""
    await queue.put("mail", ttr=3600)
    reserved = await queue.reserve("mail", timeout=0)
    clock.advance(600)
    assert await reserved.touch() == 3600.0
    clock.advance(5)
    with pytest.raises(TouchLimitExceeded, match=r"605 s longer .* 600 s \(max_touch_duration\)"):
        await reserved.touch()


async def test_each_reservation_may_be_touched_anew(queue: Queue, clock: FrozenClock) -> None:
    """What one holder did is not held against the next; the job's count goes on."""
    job = await queue.put("mail", ttr=30)
    for _ in range(2):
        reserved = await queue.reserve("mail", timeout=0)
        for _ in range(10):
            await reserved.touch()
            clock.advance(5)
        await reserved.release()
    assert (await queue.stats_job(job.id)).touches == 20


async def test_limits_of_touches_can_be_lifted(url: str) -> None:
    """Each by None."""
    lifted: dict[str, Any] = {"max_touches": None, "max_touch_duration": None, "min_touch_interval": None}
    async with Tidewheel(url, clock=FrozenClock(), **lifted) as app:
        await app.queue.put("mail")
        reserved = await app.queue.reserve("mail", timeout=0)
        for _ in range(12):
            await reserved.touch()


async def test_what_was_put_can_be_deleted_without_reserving_it(app: Tidewheel, queue: Queue) -> None:
    """It is gone then; a job somebody has is not theirs to delete."""
    job = await queue.put("mail")
    await queue.delete(job.id)
    with pytest.raises(JobNotFound):
        await queue.peek(job.id)
    other = await queue.put("mail")
    reserved = await queue.reserve("mail", timeout=0)
    with pytest.raises(WrongState):
        await queue.delete(other.id)
    await queue.delete(reserved)
    assert (await app.get(other.id)).state == "completed"


async def test_a_paused_topic_gives_out_nothing_until_it_is_over(queue: Queue, clock: FrozenClock) -> None:
    """Putting goes on."""
    await queue.pause("mail", 30)
    await queue.put("mail")
    assert (await queue.stats_topic("mail")).pause_left == 30.0
    with pytest.raises(ReserveTimeout):
        await queue.reserve("mail", timeout=0)
    clock.advance(30)
    await queue.reserve("mail", timeout=0)
    await queue.pause("mail")
    assert (await queue.stats_topic("mail")).pause_left == math.inf


async def test_counts_are_told_for_a_topic_and_for_all(queue: Queue) -> None:
    """In the words of those who pull."""
    for topic, priority, delay in (("a", 0, 0), ("a", -2000, 0), ("a", 0, 60), ("b", 0, 0), ("b", 0, 0)):
        await queue.put(topic, priority=priority, delay=delay)
    await queue.reserve("b", timeout=0)
    await (await queue.reserve("b", timeout=0)).bury()
    of_a = await queue.stats_topic("a")
    assert (of_a.ready, of_a.delayed, of_a.reserved, of_a.buried, of_a.urgent) == (2, 1, 0, 0, 1)
    stats = await queue.stats()
    assert (stats.topics, stats.ready, stats.delayed, stats.reserved, stats.buried) == (2, 2, 1, 1, 1)
    assert await queue.list_topics() == ["a", "b"]
    assert (await queue.stats_topic("nobody")).ready == 0


async def test_there_is_nothing_to_recover(queue: Queue) -> None:
    """It is said at once, to whoever waits for it and to whoever wants to be called."""
    await queue.put("mail")
    told: list[Recovery] = []
    assert await queue.wait_for_recovery(30, told.append) == Recovery("complete", 1)
    assert told == [Recovery("complete", 1)]


async def test_bad_input_is_refused_and_puts_nothing(app: Tidewheel, queue: Queue) -> None:
    """With the value and the limit."""
    with pytest.raises(InvalidInput, match=r"topic is 'a/b'"):
        await queue.put("a/b")
    with pytest.raises(InvalidInput, match=r"ttr is 0\.5 seconds; 1 to"):
        await queue.put("mail", ttr=0.5)
    with pytest.raises(LimitExceeded, match="max_payload_bytes"):
        await queue.put("mail", b"x" * 70_000)
    for nothing in ([], "", iter(()), None, [["mail"]]):
        with pytest.raises(InvalidInput, match="topic"):
            await queue.reserve(nothing, timeout=0)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="1,001 topics are given; the limit is 1,000"):
        await queue.reserve(map(str, range(1001)), timeout=0)
    with pytest.raises(InvalidInput, match="number is '1'"):
        await queue.job_id("1")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="timeout is -1"):
        await queue.reserve("mail", timeout=-1)
    with pytest.raises(InvalidInput, match="takes what reserve"):
        await queue.release((await queue.put("other")).id)  # type: ignore[arg-type]
    assert (await app.count(topic="mail")).total == 0


async def test_topics_and_their_jobs_are_limited_when_told_so(url: str) -> None:
    """Nothing is put then; what ends makes room. Without being told there is no limit."""
    async with Tidewheel(url, max_topics=2, max_jobs_per_topic=1) as app:
        await app.queue.put("a")
        with pytest.raises(LimitExceeded, match="max_jobs_per_topic"):
            await app.queue.put("a", delay=60)
        await app.queue.put("b")
        with pytest.raises(LimitExceeded, match="max_topics"):
            await app.queue.put("c")
        await (await app.queue.reserve("a", timeout=0)).delete()
        await app.queue.put("a")
        assert await app.queue.list_topics() == ["a", "b"]


async def test_jobs_of_others_are_not_there_for_a_tenant(queue: Queue) -> None:
    """Whichever verb names one, and whoever reserves must be nobody's."""
    ours = await queue.put("mail", delay=60)
    with acting_as(SecurityContext("acme")):
        for verb in (queue.peek, queue.kick_job, queue.stats_job, queue.delete):
            with pytest.raises(JobNotFound):
                await verb(ours.id)
        assert await queue.job_id(ours.number) is None
        assert (await queue.stats()).delayed == 0
        for refused in (queue.reserve_job(ours.id), queue.rescue(), queue.pause("mail")):
            with pytest.raises(NotPermitted):
                await refused
    assert (await queue.stats_job(ours.id)).kicks == 0


async def test_who_sees_some_jobs_of_a_topic_is_not_told_about_all(queue: Queue) -> None:
    """Under a row filter: counts, heads and kicks would be about what it cannot see."""
    with acting_as(SecurityContext("acme")):
        job = await queue.put("mail", delay=60)
    with acting_as(SecurityContext("acme", only=Compare(Field.TASK, Comparison.EQUAL, "other"))):
        for refused in (
            queue.kick("mail"),
            queue.peek_delayed("mail"),
            queue.stats(),
            queue.stats_topic("mail"),
        ):
            with pytest.raises(NotPermitted, match="row filter"):
                await refused
        with pytest.raises(JobNotFound):
            await queue.kick_job(job.id)


async def test_tenants_put_and_look_but_do_not_reserve(queue: Queue) -> None:
    """What a tenant asks about is its own; reserving is about all."""
    await queue.put("mail", "ours", delay=60)
    with acting_as(SecurityContext("acme")):
        job = await queue.put("mail", "theirs", delay=60)
        assert (await queue.stats_topic("mail")).delayed == 1
        seen = await queue.peek_delayed("mail")
        assert seen is not None
        assert seen.id == job.id
        assert await queue.kick("mail", 10) == 1
        with pytest.raises(NotPermitted):
            await queue.reserve("mail", timeout=0)
    assert (await queue.reserve("mail", timeout=0)).tenant == "acme"


def test_everything_has_a_blocking_twin(url: str) -> None:
    """Handles included."""
    with Tidewheel(url).sync as app:
        assert app.queue.peek_ready("mail") is None
        job = app.queue.put("mail", {"to": "Ada"})
        head = app.queue.peek_ready("mail")
        assert head is not None
        assert head.refresh().id == job.id
        reserved = app.queue.reserve("mail", timeout=PATIENCE)
        assert (reserved.id, reserved.body) == (job.id, {"to": "Ada"})
        app.queue.release(reserved, delay=0)
        app.queue.reserve("mail", timeout=PATIENCE).delete()
        assert app.queue.stats_job(job.id).state == "deleted"


async def test_a_job_put_without_a_ttr_has_that_of_the_setting() -> None:
    """``default_ttr`` is for all; what a put says wins."""
    async with Tidewheel("memory://", default_ttr=7) as app:
        jobs = [await app.queue.put("mail", b"1"), await app.queue.put("mail", b"2", ttr=90)]
        assert [(await app.queue.stats_job(job.id)).ttr for job in jobs] == [7.0, 90.0]
    with pytest.raises(ConfigurationError, match="default_ttr"):
        Tidewheel("memory://", default_ttr=0.5)
