"""A worker inside another program."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from windlass import ConfigurationError, Windlass, WrongState


@pytest.fixture
def app(tmp_path: Path) -> Windlass:
    return Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")


async def test_a_busy_handler_does_not_hold_the_program_up(app: Windlass) -> None:
    """The handler blocks its own loop; the program's goes on."""
    blocking, release = threading.Event(), threading.Event()

    @app.task
    async def rude() -> str:
        blocking.set()
        release.wait(20)
        return "done"

    async with app, app.worker_thread():
        job = await rude.enqueue()
        while not blocking.is_set():
            await asyncio.sleep(0.001)
        began = time.monotonic()
        for _ in range(10):
            await asyncio.sleep(0.001)
        await job.refresh()
        assert time.monotonic() - began < 5
        assert job.state == "running"
        release.set()
        assert await job.result(timeout=10) == "done"


def test_a_program_without_an_event_loop_can_have_one(app: Windlass) -> None:
    """Flask, Django, a script: plain ``with`` and the blocking calls."""

    @app.task
    def double(n: int) -> int:
        return 2 * n

    with app.worker_thread(concurrency=2):
        assert double.sync.enqueue(n=21).result(timeout=10) == 42
    app.sync.close()


def test_what_keeps_it_from_starting_is_raised_where_it_was_started(app: Windlass) -> None:
    """Not lost in a thread nobody looks at."""
    with pytest.raises(ConfigurationError, match="no task is registered"):
        app.worker_thread().start()


def test_it_starts_once(app: Windlass) -> None:
    """A thread object is used up after its run."""

    @app.task
    def work() -> None: ...

    thread = app.worker_thread()
    with thread, pytest.raises(WrongState):
        thread.start()
