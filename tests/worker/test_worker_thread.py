"""A worker inside another program."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.cli.processes import wait_until
from tests.patience import PATIENCE
from tidewheel import ConfigurationError, Tidewheel, WrongState
from tidewheel.core.clock import SystemClock
from tidewheel.worker import worker_thread


@pytest.fixture
def app(tmp_path: Path) -> Tidewheel:
    return Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}")


async def test_a_busy_handler_does_not_hold_the_program_up(app: Tidewheel) -> None:
    """The handler blocks its own loop; the program's goes on."""
    blocking, release = threading.Event(), threading.Event()

    @app.task
    async def rude() -> str:
        blocking.set()
        release.wait(PATIENCE)
        return "done"

    async with app, app.worker_thread():
        job = await rude.enqueue()
        while not blocking.is_set():
            await asyncio.sleep(0.001)
        for _ in range(10):
            await asyncio.sleep(0.001)
        await job.refresh()
        assert job.state == "running"
        release.set()
        assert await job.result(timeout=PATIENCE) == "done"


def test_a_program_without_an_event_loop_can_have_one(app: Tidewheel) -> None:
    """Flask, Django, a script: plain ``with`` and the blocking calls."""

    @app.task
    def double(n: int) -> int:
        return 2 * n

    with app.worker_thread(concurrency=2):
        assert double.sync.enqueue(n=21).result(timeout=PATIENCE) == 42
    app.sync.close()


def test_what_keeps_it_from_starting_is_raised_where_it_was_started(app: Tidewheel) -> None:
    """Not lost in a thread nobody looks at."""
    with pytest.raises(ConfigurationError, match="no task is registered"):
        app.worker_thread().start()


def test_it_starts_once(app: Tidewheel) -> None:
    """A thread object is used up after its run."""

    @app.task
    def work() -> None: ...

    thread = app.worker_thread()
    with thread, pytest.raises(WrongState):
        thread.start()


def test_a_handler_that_blocks_for_ever_does_not_keep_the_program_from_ending(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its event loop does not answer, so it is left behind; it still ends once its handler has."""
    monkeypatch.setattr(worker_thread, "LOOP_RESPONSE_SECONDS", 0.05)
    blocking, release = threading.Event(), threading.Event()

    @app.task
    async def rude() -> None:
        blocking.set()
        release.wait(60)

    thread = app.worker_thread()
    with thread:
        rude.sync.enqueue()
        assert blocking.wait(PATIENCE)
        thread.stop_now()
    assert not release.is_set()
    assert "a handler blocks the event loop" in caplog.text
    release.set()
    thread.stop()
    app.sync.close()


def test_a_worker_that_died_is_told_in_the_log(app: Tidewheel, caplog: pytest.LogCaptureFixture) -> None:
    """At once: a web program stops its worker when it ends itself, and that may be months later."""

    class Clock(SystemClock):
        broken = False

        def monotonic(self) -> float:
            if self.broken:
                raise RuntimeError("a spring broke")
            return super().monotonic()

    app.clock = clock = Clock()

    @app.task
    def work() -> None: ...

    thread = app.worker_thread().start()
    clock.broken = True
    wait_until(lambda: "has died, and runs no more jobs" in caplog.text)
    with pytest.raises(RuntimeError, match="a spring broke"):
        thread.stop()
