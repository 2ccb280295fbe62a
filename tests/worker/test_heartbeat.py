"""Workers tell about themselves: what they run, how they are doing, and when they leave."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tests.worker.outages import Switch, working_on
from tidewheel import InvalidInput, Tidewheel, WorkerInfo, __version__
from tidewheel.core.clock import SystemClock
from tidewheel.core.model import WorkerRecord
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker import heartbeat
from tidewheel.worker.health import LoopLag


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beats come quickly."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "FIRST_HEARTBEAT_SECONDS", 0.0)
    monkeypatch.setattr(heartbeat, "LAG_PROBE_SECONDS", 0.02)


async def only(app: Tidewheel) -> WorkerInfo:
    """The one worker there is, once it is listed."""

    async def listed() -> bool:
        return len(await app.workers()) == 1

    await until(listed)
    return (await app.workers())[0]


async def test_a_worker_is_listed_while_it_runs(app: Tidewheel) -> None:
    """Who and where it is, what it runs and since when; it leaves when it ends."""

    @app.task(topic="mail")
    async def send() -> None: ...

    @app.task
    async def report() -> None: ...

    assert await app.workers() == []
    async with working(app, name="ada", concurrency=3, topics=["mail", "report"]) as worker:
        info = await only(app)
        assert (info.name, info.host, info.pid) == ("ada", socket.gethostname(), os.getpid())
        assert (info.version, info.concurrency, info.missing) == (__version__, 3, False)
        assert (info.topics, info.tasks, info.more_lanes) == (("mail", "report"), ("report", "send"), 0)
        assert {lane.topic for lane in worker.lanes} == set(info.topics)
        first = info.seen_at
        assert first >= info.started_at

        async def seen_again() -> bool:
            return (await only(app)).seen_at > first

        await until(seen_again)
        assert (await only(app)).started_at == info.started_at
    assert await app.workers() == []


async def test_it_tells_what_it_does(app: Tidewheel) -> None:
    """Handlers at work, jobs at hand, and what became of the others."""
    go_on = asyncio.Event()

    @app.task(max_attempts=1)
    async def work(n: int) -> None:
        if n == 0:
            raise RuntimeError("broken")
        if n > 2:
            await go_on.wait()

    async with working(app, concurrency=2, prefetch=3):
        await work.enqueue_many([{"n": n} for n in range(3)])

        async def done() -> bool:
            info = await only(app)
            return (info.ran, info.completed, info.failed, info.lost) == (3, 2, 1, 0)

        await until(done)
        await work.enqueue_many([{"n": n} for n in range(3, 8)])

        async def busy() -> bool:
            info = await only(app)
            return (info.running, info.claimed) == (2, 3)

        await until(busy)
        go_on.set()

        async def idle() -> bool:
            info = await only(app)
            return (info.running, info.claimed, info.completed) == (0, 0, 7)

        await until(idle)


async def test_a_blocked_event_loop_goes_on_beating_and_its_lag_shows(app: Tidewheel) -> None:
    """While it is blocked, not only afterwards: that is when somebody looks."""
    release = threading.Event()
    seen_in_time: list[bool] = []

    @app.task
    async def rude() -> None:
        seen_in_time.append(release.wait(PATIENCE))

    seen: list[WorkerRecord] = []
    other = app.store.sibling()

    def look() -> None:
        """From another thread: the test's own loop is the one that is blocked."""

        async def until_late() -> None:
            await other.open()
            async with asyncio.timeout(PATIENCE):
                while len({record.seen_at for record in seen}) < 2 or seen[-1].loop_lag_seconds < 0.2:
                    seen.extend(await other.workers())
                    await asyncio.sleep(0.01)
            await other.close()

        try:
            asyncio.run(until_late())
        finally:
            release.set()

    async with working(app, lease=60):
        assert (await only(app)).loop_lag_seconds < 20
        watcher = threading.Thread(target=look)
        watcher.start()  # first: the handler may block this loop before enqueue returns
        await rude.enqueue()
        await asyncio.to_thread(watcher.join)
    assert seen_in_time == [True], "two beats and the lag were seen while the loop stood still"


async def test_a_list_that_cannot_be_written_disturbs_no_job(
    app: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """It is mentioned once, and the worker appears as soon as it works."""
    switch = Switch()
    switch.only, switch.down = {"heartbeat"}, True
    caplog.set_level(logging.WARNING, "tidewheel")

    @app.task
    async def work() -> str:
        return "done"

    async with working_on(app, switch, name="ada"):
        job = await work.enqueue()
        assert await job.result(timeout=PATIENCE) == "done"
        await until(lambda: switch.refused["heartbeat"] > 2)
        assert await app.workers() == []
        assert caplog.text.count("listing this worker failed") == 1
        switch.down = False
        assert (await only(app)).name == "ada"


async def test_a_bug_in_the_list_disturbs_no_job(
    app: Tidewheel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is raised there."""

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(heartbeat.WorkerHeartbeat, "_describe", broken)

    @app.task
    async def work() -> str:
        return "done"

    async with working(app):
        await until(lambda: "could not be listed, which is a bug" in caplog.text)
        assert await (await work.enqueue()).result(timeout=PATIENCE) == "done"
    assert await app.workers() == []


async def test_a_short_run_is_on_no_list(app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests and scripts that run until idle do not pay for it."""
    monkeypatch.setattr(heartbeat, "FIRST_HEARTBEAT_SECONDS", 60.0)
    written: list[str] = []
    monkeypatch.setattr(heartbeat.WorkerHeartbeat, "_send", lambda *_: written.append("heartbeat"))

    @app.task
    async def work() -> None: ...

    await work.enqueue()
    assert await app.run_until_idle() == 1
    assert not written
    assert await app.workers() == []


async def test_the_start_is_told_by_the_clock_of_the_store(app: Tidewheel) -> None:
    """A worker whose own clock is off by a day is not listed as started tomorrow."""
    there = FrozenClock()
    with app.on_store("memory://", clock=there):
        async with app:

            @app.task
            async def work() -> None: ...

            async with working_on(app, Switch(), clock=None):  # its own clock is this machine's
                info = await only(app)
    offset = abs(info.started_at.timestamp() - there.now() / 1e6)
    assert offset < 5


async def test_a_worker_that_was_killed_is_missing(app: Tidewheel) -> None:
    """Its last words stay, and how long ago they were."""
    clock = FrozenClock()
    with app.on_store("memory://", clock=clock):
        async with app:

            @app.task
            async def work() -> None: ...

            switch = Switch()
            async with working_on(app, switch, name="ada"):
                await only(app)
                switch.only, switch.down = {"heartbeat", "deregister_worker"}, True
            info = await only(app)
            assert (info.missing, info.seconds_since_seen) == (False, 0.0)
            clock.advance(60)
            info = await only(app)
            assert (info.name, info.missing, info.seconds_since_seen) == ("ada", True, 60.0)


def test_the_list_of_lanes_has_an_end() -> None:
    """A worker of a thousand topics tells about some of them, and how many there are besides."""

    async def main() -> WorkerInfo:
        async with Tidewheel("memory://") as app:
            for n in range(heartbeat.MAX_LANES):
                app.task(name=f"task{n}")(lambda: None)
            async with working(app):
                return await only(app)

    info = asyncio.run(main())
    assert info.more_lanes > 0
    assert len(info.topics) <= heartbeat.MAX_LANES


async def test_the_blocking_twin_lists_too(app: Tidewheel) -> None:
    """``app.sync.workers()``, for programs without an event loop."""

    @app.task
    async def work() -> None: ...

    async with working(app, name="ada"):
        await only(app)
        listed = await asyncio.to_thread(app.sync.workers)
        assert [info.name for info in listed] == ["ada"]
    await asyncio.to_thread(app.sync.close)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("x" * 201, "worker name has 201 characters; the limit is 200"),
        ("two\nlines", "it may hold no control characters"),
        (" padded", "no spaces at its ends"),
        ("nul\x00", "NUL character"),
    ],
)
async def test_a_name_nobody_can_read_is_refused(app: Tidewheel, name: str, words: str) -> None:
    """It would stand in every job, log line and list."""

    @app.task
    async def work() -> None: ...

    with pytest.raises(InvalidInput, match=words):
        app.worker(name=name)


def test_lag_is_measured_from_question_to_answer() -> None:
    """The worst since the last look; an open question counts as it stands, and only one is open."""
    asked: list[object] = []
    lag = LoopLag(asked.append, SystemClock())
    assert lag.take_max() == 0
    lag.probe()
    lag.probe()
    assert len(asked) == 1
    time.sleep(0.02)
    assert 0.02 <= lag.take_max() < 10
    [answer] = asked
    assert callable(answer)
    answer()
    assert lag.take_max() >= 0.02
    assert lag.take_max() == 0
    lag.probe()
    assert len(asked) == 2
