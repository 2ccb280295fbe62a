"""A session without a socket: conversations, on every store."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.beanstalkd.session_client import Talk, app, clock, other, shared, talk, url
from tidewheel import StoreUnavailable, Tidewheel, __version__
from tidewheel.beanstalkd.client_session import MAX_WATCHED
from tidewheel.beanstalkd.server_state import ServerState
from tidewheel.testing.clock import FrozenClock

__all__ = ["app", "clock", "other", "shared", "talk", "url"]


async def test_a_job_goes_its_usual_way(app: Tidewheel, talk: Talk) -> None:
    """put, reserve, delete; to the client it is gone, and its history is kept."""
    number = await talk.put(b"a\r\n\0b")
    assert await talk.say("reserve") == f"RESERVED {number} 5\r\na\r\n\0b"
    assert await talk.say(f"delete {number}") == "DELETED"
    for line in ("delete", "peek", "kick-job", "stats-job", "touch", "reserve-job"):
        assert await talk.say(f"{line} {number}") == "NOT_FOUND", line
    assert await talk.say(f"bury {number} 0") == "NOT_FOUND"
    (job,) = (await app.jobs()).items
    assert (job.number, job.state, job.topic) == (number, "completed", "default")


async def test_smaller_priorities_come_first_and_of_equal_ones_the_older(talk: Talk) -> None:
    """The wire counts the other way round than Tidewheel does."""
    late = await talk.put(priority=2**32 - 1)
    first, second = await talk.put(priority=5), await talk.put(priority=5)
    urgent = await talk.put(priority=0)
    order = [(await talk.say("reserve")).split()[1] for _ in range(4)]
    assert order == [str(number) for number in (urgent, first, second, late)]
    assert (await talk.stats(f"stats-job {late}"))["pri"] == str(2**32 - 1)


async def test_only_who_reserved_a_job_may_end_it(talk: Talk, other: Talk) -> None:
    """To others it is as if it were not there, but for looking at it."""
    number = await talk.put()
    await talk.say("reserve")
    for line in (f"delete {number}", f"release {number} 0 0", f"bury {number} 0", f"touch {number}"):
        assert await other.say(line) == "NOT_FOUND"
    assert await other.say(f"peek {number}") == f"FOUND {number} 1\r\nx"
    assert await talk.say(f"touch {number}") == "TOUCHED"
    assert await talk.say(f"release {number} 7 0") == "RELEASED"
    assert await other.say("reserve") == f"RESERVED {number} 1\r\nx"


async def test_a_dropped_connection_gives_its_jobs_back_at_once(talk: Talk, shared: ServerState) -> None:
    """Whoever waits gets them."""
    dropped = Talk(shared)
    numbers = {await talk.put() for _ in range(3)}
    for _ in numbers:
        await dropped.say("reserve")
    assert await talk.say("reserve-with-timeout 0") == "TIMED_OUT"
    await dropped.session.close()
    assert {int((await talk.say("reserve-with-timeout 0")).split()[1]) for _ in numbers} == numbers


async def test_a_job_is_everybodys_when_its_time_to_run_is_over(
    talk: Talk, other: Talk, clock: FrozenClock
) -> None:
    """And who had it may delete it as anybody may, as long as nobody else has reserved it."""
    number = await talk.put(ttr=2)
    await talk.say("reserve")
    clock.advance(2)
    assert await talk.say(f"touch {number}") == "NOT_FOUND"
    stats = await other.stats(f"stats-job {number}")
    assert (stats["state"], stats["timeouts"], stats["time-left"]) == ("ready", "1", "0")
    assert await other.say("reserve") == f"RESERVED {number} 1\r\nx"
    assert await talk.say(f"delete {number}") == "NOT_FOUND"
    clock.advance(2)
    assert await talk.say(f"delete {number}") == "DELETED"
    assert await other.say(f"release {number} 0 0") == "NOT_FOUND"


async def test_who_is_in_its_last_second_is_not_made_to_wait(talk: Talk, clock: FrozenClock) -> None:
    """DEADLINE_SOON, unless there is a job to be had."""
    first = await talk.put(ttr=10)
    await talk.say("reserve")
    clock.advance(9)
    assert await talk.say("reserve") == "DEADLINE_SOON"
    second = await talk.put(ttr=20)
    assert await talk.say("reserve") == f"RESERVED {second} 1\r\nx"
    assert await talk.say("reserve-with-timeout 0") == "DEADLINE_SOON"
    assert await talk.say(f"touch {first}") == "TOUCHED"
    assert await talk.say("reserve-with-timeout 0") == "TIMED_OUT"


async def test_who_hangs_up_is_not_made_to_wait(talk: Talk, other: Talk, shared: ServerState) -> None:
    """A client that closed its side is told TIMED_OUT, and the next job is not given to it."""
    waiting = asyncio.create_task(other.say("reserve"))
    while not shared.counters.waiting:
        await asyncio.sleep(0)
    other.session.hang_up()
    assert await waiting == "TIMED_OUT"
    number = await talk.put()
    assert (await talk.stats("stats"))["current-waiting"] == "0"
    assert await talk.say("reserve") == f"RESERVED {number} 1\r\nx"


async def test_buried_jobs_are_kicked_in_order_and_before_delayed_ones(
    talk: Talk, clock: FrozenClock
) -> None:
    """One kick brings back buried ones only; the next, when none is left, delayed ones."""
    numbers = [await talk.put() for _ in range(3)]
    for number in reversed(numbers):
        await talk.say(f"reserve-job {number}")
        assert await talk.say(f"bury {number} 3") == "BURIED"
        clock.advance(1)
    delayed = await talk.put(delay=100)
    assert await talk.say("peek-buried") == f"FOUND {numbers[2]} 1\r\nx"
    assert await talk.say("peek-delayed") == f"FOUND {delayed} 1\r\nx"
    assert await talk.say("peek-ready") == "NOT_FOUND"
    assert await talk.say("kick 2") == "KICKED 2"
    assert await talk.say("peek-buried") == f"FOUND {numbers[0]} 1\r\nx"
    assert await talk.say("kick 10") == "KICKED 1"
    assert await talk.say("kick 10") == "KICKED 1"
    assert await talk.say(f"kick-job {delayed}") == "NOT_FOUND"
    stats = await talk.stats(f"stats-job {numbers[2]}")
    assert (stats["state"], stats["pri"], stats["buries"], stats["kicks"]) == ("ready", "3", "1", "1")


async def test_deleting_needs_no_reservation(app: Tidewheel, talk: Talk) -> None:
    """Ready, delayed and buried jobs are removed, and leave nothing behind."""
    ready, delayed, buried = await talk.put(), await talk.put(delay=9), await talk.put()
    await talk.say(f"reserve-job {buried}")
    await talk.say(f"bury {buried} 0")
    for number in (ready, delayed, buried):
        assert await talk.say(f"delete {number}") == "DELETED"
    assert list((await app.jobs()).items) == []
    assert (await talk.stats("stats-tube default"))["cmd-delete"] == "3"


async def test_a_delayed_job_waits(talk: Talk, clock: FrozenClock) -> None:
    """Put or released with a delay, it is nobody's until then."""
    number = await talk.put(delay=10)
    stats = await talk.stats(f"stats-job {number}")
    assert (stats["state"], stats["delay"], stats["time-left"]) == ("delayed", "10", "10")
    assert await talk.say("reserve-with-timeout 0") == "TIMED_OUT"
    clock.advance(10)
    assert await talk.say("reserve-with-timeout 0") == f"RESERVED {number} 1\r\nx"
    assert await talk.say(f"release {number} 0 5") == "RELEASED"
    stats = await talk.stats(f"stats-job {number}")
    assert (stats["state"], stats["delay"], stats["releases"]) == ("delayed", "5", "1")


async def test_tubes_keep_jobs_apart(talk: Talk, other: Talk) -> None:
    """A job waits in the tube its producer used; workers get those of the tubes they watch."""
    assert await talk.say("use mail") == "USING mail"
    assert await talk.say("list-tube-used") == "USING mail"
    number = await talk.put()
    assert await other.say("reserve-with-timeout 0") == "TIMED_OUT"
    assert await other.say("watch mail") == "WATCHING 2"
    assert await other.say("watch mail") == "WATCHING 2"
    assert await other.say("ignore default") == "WATCHING 1"
    assert await other.say("ignore mail") == "NOT_IGNORED"
    assert await other.say("ignore unheard-of") == "WATCHING 1"
    assert await other.say("list-tubes-watched") == "OK 11\r\n---\n- mail\n"
    assert await other.say("reserve") == f"RESERVED {number} 1\r\nx"


async def test_a_tube_exists_while_it_has_jobs_or_somebody_refers_to_it(
    talk: Talk, shared: ServerState
) -> None:
    """Then it is listed, has statistics and can be paused; ``default`` always."""
    guest = Talk(shared)
    await guest.say("use short-lived")
    await guest.say("watch watched")
    number = await guest.put()
    assert await talk.say("list-tubes") == "OK 38\r\n---\n- default\n- short-lived\n- watched\n"
    await guest.session.close()
    assert await talk.say("list-tubes") == "OK 28\r\n---\n- default\n- short-lived\n"
    assert await talk.say("stats-tube watched") == "NOT_FOUND"
    assert await talk.say("pause-tube watched 1") == "NOT_FOUND"
    assert (await talk.stats("stats-tube short-lived"))["total-jobs"] == "1"
    assert await talk.say(f"delete {number}") == "DELETED"
    assert await talk.say("stats-tube short-lived") == "NOT_FOUND"
    assert (await talk.stats("stats"))["current-tubes"] == "1"


async def test_a_paused_tube_gives_nothing_out(talk: Talk, clock: FrozenClock) -> None:
    """For as long as it was told; 0 ends a pause."""
    number = await talk.put()
    assert await talk.say("pause-tube default 30") == "PAUSED"
    assert await talk.say("reserve-with-timeout 0") == "TIMED_OUT"
    stats = await talk.stats("stats-tube default")
    assert (stats["pause"], stats["pause-time-left"], stats["cmd-pause-tube"]) == ("30", "30", "1")
    assert await talk.say(f"reserve-job {number}") == f"RESERVED {number} 1\r\nx"
    await talk.say(f"release {number} 0 0")
    clock.advance(29)
    assert await talk.say("reserve-with-timeout 0") == "TIMED_OUT"
    assert await talk.say("pause-tube default 0") == "PAUSED"
    assert await talk.say("reserve-with-timeout 0") == f"RESERVED {number} 1\r\nx"


async def test_jobs_of_tasks_and_of_the_wire_are_the_same_jobs(app: Tidewheel, talk: Talk) -> None:
    """A task's job is read as its JSON; what was put here is seen and kicked by the app."""

    @app.task(topic="default", priority=100)
    async def greet(name: str) -> None: ...

    job = await greet.enqueue(name="Ada")
    assert await talk.say("reserve") == f'RESERVED {job.number} 14\r\n{{"name":"Ada"}}'
    assert (await talk.stats(f"stats-job {job.number}"))["pri"] == "0"  # above all that the wire can say
    await talk.say(f"bury {job.number} 10")
    failed = await app.get(job.id)
    assert (failed.state, failed.record.priority) == ("failed", -10)
    await app.requeue(job.id)
    assert await talk.say("peek-ready") == f'FOUND {job.number} 14\r\n{{"name":"Ada"}}'
    await app.cancel(job.id)
    assert await talk.say(f"peek {job.number}") == "NOT_FOUND"


async def test_nothing_is_put_into_a_draining_server(talk: Talk, shared: ServerState) -> None:
    """All else goes on."""
    number = await talk.put()
    shared.counters.draining = True
    assert await talk.say("put 0 0 60 1", b"x") == "DRAINING"
    assert (await talk.stats("stats"))["draining"] == "true"
    assert await talk.say("reserve") == f"RESERVED {number} 1\r\nx"


async def test_statistics_count_what_happened_here(talk: Talk, other: Talk) -> None:
    """Commands, connections, producers and workers of this process; bad commands count as none."""
    await talk.put(priority=1023)
    await talk.put(priority=1024)
    await other.say("reserve")
    await other.say("reserve foo")
    await other.say("nonsense")
    stats = await talk.stats("stats")
    expected = {
        "current-jobs-urgent": "0",
        "current-jobs-ready": "1",
        "current-jobs-reserved": "1",
        "cmd-put": "2",
        "cmd-reserve": "1",
        "cmd-stats": "1",
        "total-jobs": "2",
        "current-connections": "2",
        "current-producers": "1",
        "current-workers": "1",
        "max-job-size": "65535",
    }
    assert {name: stats[name] for name in expected} == expected
    await other.session.close()
    stats = await talk.stats("stats")
    assert (stats["current-connections"], stats["current-workers"]) == ("1", "0")
    assert (stats["current-jobs-urgent"], stats["total-connections"]) == ("1", "2")


async def test_statistics_have_the_fields_of_beanstalkd_in_its_order(talk: Talk) -> None:
    """Some clients read them by position."""
    number = await talk.put()
    assert list(await talk.stats(f"stats-job {number}")) == [
        "id", "tube", "state", "pri", "age", "delay", "ttr", "time-left", "file", "reserves", "timeouts",
        "releases", "buries", "kicks",
    ]  # fmt: skip
    assert list(await talk.stats("stats-tube default")) == [
        "name", "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
        "current-jobs-buried", "total-jobs", "current-using", "current-watching", "current-waiting",
        "cmd-delete", "cmd-pause-tube", "pause", "pause-time-left",
    ]  # fmt: skip
    fields = list(await talk.stats("stats"))
    assert fields[:6] == [
        "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
        "current-jobs-buried", "cmd-put",
    ]  # fmt: skip
    assert fields[-11:] == [
        "binlog-oldest-index", "binlog-current-index", "binlog-records-migrated", "binlog-records-written",
        "binlog-max-size", "draining", "id", "hostname", "os", "platform", "tidewheel-version",
    ]  # fmt: skip
    assert len(fields) == 52


async def test_the_version_is_one_that_clients_can_compare(talk: Talk) -> None:
    """Digits and dots, as beanstalkd's; that of Tidewheel is a field of its own."""
    stats = await talk.stats("stats")
    assert re.fullmatch(r'"\d+(\.\d+)+"', stats["version"])
    assert stats["tidewheel-version"] == f'"{__version__}"'


async def test_the_largest_numbers_of_the_wire_are_taken(talk: Talk) -> None:
    """136 years are cut to the hundred that a job can wait."""
    number = await talk.put(priority=2**32 - 1, delay=2**32 - 1, ttr=2**32 - 1)
    assert (await talk.stats(f"stats-job {number}"))["delay"] == "3155760000"
    assert await talk.say(f"peek {2**64 - 1}") == "NOT_FOUND"
    assert await talk.say("kick 4294967295") == "KICKED 1"


async def test_a_connection_watches_a_thousand_tubes_at_most(talk: Talk) -> None:
    """Then it is told what beanstalkd tells that cannot grow its list."""
    for number in range(MAX_WATCHED - 1):
        await talk.say(f"watch tube-{number}")
    assert await talk.say("watch another") == "OUT_OF_MEMORY"
    assert await talk.say("watch tube-0") == f"WATCHING {MAX_WATCHED}"


async def test_a_full_topic_is_told_as_out_of_memory() -> None:
    """The client is to try again later; that is what this reply means to it."""
    async with Tidewheel("memory://", max_jobs_per_topic=1) as app:
        talk = Talk(ServerState(app))
        await talk.put()
        assert await talk.say("put 0 0 60 1", b"x") == "OUT_OF_MEMORY"
        assert (await talk.stats("stats"))["total-jobs"] == "1"


async def test_an_error_of_the_store_is_told_and_the_next_command_may_work(
    talk: Talk, app: Tidewheel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A reserved job stays reserved, so that its delete can be tried again; logged once, not each time."""
    number = await talk.put()
    await talk.say("reserve")

    async def fails(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is full; make room")

    with monkeypatch.context() as broken:
        for verb in ("enqueue", "settle", "topic_depths"):
            broken.setattr(app.store, verb, fails)
        for _ in range(3):
            assert await talk.say("put 0 0 60 1", b"x") == "OUT_OF_MEMORY"
            assert await talk.say(f"delete {number}") == "OUT_OF_MEMORY"
            assert await talk.say("stats") == "OUT_OF_MEMORY"
    assert await talk.say(f"delete {number}") == "DELETED"
    lines = [record.getMessage() for record in caplog.records if record.name == "tidewheel.beanstalkd"]
    assert len(lines) == 2
    assert "the disk is full" in lines[0]
    assert "again" in lines[1]


async def test_who_is_gone_gets_no_jobs_of_what_it_had_sent_before(talk: Talk, other: Talk) -> None:
    """Its puts are carried out; a job that it reserved would be away from others for nothing."""
    await talk.put()
    other.session.hang_up(gone=True)
    await other.put()
    assert await other.say("reserve") == "TIMED_OUT"
    assert (await talk.stats("stats"))["current-jobs-ready"] == "2"
