"""The helpers users test their own tasks with."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import aiosqlite
import pytest

from tests.docs.test_blocks import NO_PLUGINS
from tidewheel import ConfigurationError, InvalidPayload, JobFailed, Retry, Tidewheel
from tidewheel.testing import FrozenClock, enqueued, in_memory, inline

app = Tidewheel("sqlite:////nowhere/that/exists.db")  # production: tests never come near it

sent: list[str] = []


@app.task
async def send(user: str) -> str:
    sent.append(user)
    return f"sent to {user}"


@app.task(max_attempts=2, retry=Retry.fixed(60, jitter=False))
async def fails() -> None:
    raise ValueError("no")


@app.task
async def fan_out(users: list[str]) -> None:
    await send.enqueue_many([{"user": user} for user in users])


async def test_an_app_runs_in_memory_without_its_database() -> None:
    """Its URL is not even looked at."""
    sent.clear()
    async with in_memory(app):
        job = await send.enqueue(user="42")
        assert (sent, job.state) == ([], "pending")
        await app.run_until_idle()
        assert await job.result(timeout=0) == "sent to 42"
    assert sent == ["42"]


async def test_each_use_starts_empty() -> None:
    """What one test enqueues no other test sees."""
    for _ in range(2):
        async with in_memory(app):
            assert (await app.count()).total == 0
            await send.enqueue(user="1")


def test_a_store_that_is_refused_changes_nothing() -> None:
    """The app is where it was, not at a place that does not exist."""
    before = app.url
    with pytest.raises(ConfigurationError, match="names no store"), app.on_store("nonsense://"):
        pass
    assert app.url == before


async def test_time_passes_when_the_test_says_so(tidewheel_clock: FrozenClock) -> None:
    """Delays and retries are tested without waiting for them."""
    sent.clear()
    async with in_memory(app, clock=tidewheel_clock):
        await send.options(delay=3600).enqueue(user="later")
        failing = await fails.enqueue()
        await app.run_until_idle()
        assert sent == []
        await failing.refresh()
        assert failing.shown_state == "retrying"
        tidewheel_clock.advance(3600)
        await app.run_until_idle()
        assert sent == ["later"]
        await failing.refresh()
        assert failing.state == "failed"


async def test_inline_runs_each_job_as_it_is_enqueued() -> None:
    """Also the jobs that a job enqueues."""
    sent.clear()
    async with in_memory(app):
        with inline(app):
            job = await send.enqueue(user="now")
            assert (job.state, sent) == ("completed", ["now"])
            await fan_out.enqueue(users=["a", "b"])
            assert sent == ["now", "a", "b"]
        await send.enqueue(user="not inline any more")
        assert sent == ["now", "a", "b"]


async def test_inline_raises_what_failed_for_good() -> None:
    """A retry is left to its time; a bad payload is refused as always."""
    async with in_memory(app):
        with inline(app):
            await fails.enqueue()
            with pytest.raises(JobFailed, match="ValueError: no"):
                await fails.options(max_attempts=1).enqueue()
            with pytest.raises(InvalidPayload):
                await app.enqueue("send", {"user": 5})


async def test_blocking_calls_work_in_memory_too() -> None:
    """Code under test may use ``.sync``."""
    async with in_memory(app):
        job = await asyncio.to_thread(send.sync.enqueue, user="42")
        assert job.state == "pending"


def test_the_fixtures_come_with_the_installation(tmp_path: Path) -> None:
    """A user's tests ask for them by name, without importing anything; one of them is theirs to write."""
    test = tmp_path / "test_users_code.py"
    test.write_text(
        textwrap.dedent(
            """
            from tidewheel import Tidewheel
            from tidewheel.testing import in_memory
            import asyncio
            import pytest

            app = Tidewheel("memory://")

            @app.task
            async def work() -> int:
                return 1

            def test_work(tidewheel_clock):
                async def main():
                    async with in_memory(app, clock=tidewheel_clock):
                        job = await work.options(delay=60).enqueue()
                        tidewheel_clock.advance(61)
                        await app.run_until_idle()
                        assert await job.result(timeout=0) == 1
                asyncio.run(main())

            def test_without_an_app(tidewheel_enqueued):
                pass

            class TestBlocking:
                @pytest.fixture
                def tidewheel_app(self):
                    return app

                def test_work(self, tidewheel_in_memory, tidewheel_enqueued):
                    work.sync.enqueue()
                    assert [job.task for job in tidewheel_enqueued] == ["work"]
                    assert tidewheel_in_memory.sync.run_until_idle() == 1
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(test), "-p", "no:cacheprovider", *NO_PLUGINS.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert "2 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert "the fixture tidewheel_app is yours to write" in done.stdout


def test_the_plugin_makes_nobody_wait_who_does_not_use_it() -> None:
    """Pytest loads it wherever Tidewheel is installed; the app and its stores are not imported for that."""
    program = "import sys, tidewheel.testing.plugin; sys.exit('tidewheel.app' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_blocking_tests_have_the_same_store_in_memory() -> None:
    """``with`` instead of ``async with``; what threads and other event loops enqueue is in the same store."""
    sent.clear()
    for _ in range(2):
        with in_memory(app):
            job = send.sync.enqueue(user="42")
            asyncio.run(_enqueue_elsewhere())
            assert app.sync.run_until_idle() == 2
            assert job.result(timeout=0) == "sent to 42"
    assert sorted(sent) == ["42", "42", "elsewhere", "elsewhere"]


async def _enqueue_elsewhere() -> None:
    async with app:
        await send.enqueue(user="elsewhere")


def test_an_inline_job_of_a_blocking_test_has_run() -> None:
    """The code under test enqueues deep inside, and blocks."""
    with in_memory(app), inline(app):
        assert send.sync.enqueue(user="42").state == "completed"
        with pytest.raises(JobFailed):
            fails.sync.options(max_attempts=1).enqueue()


def test_enqueued_jobs_are_told_in_order() -> None:
    """By name, by task and many at once, with their payloads; nothing of what was enqueued around it."""
    with in_memory(app):
        send.sync.enqueue(user="before")
        with enqueued(app) as jobs:
            send.sync.enqueue(user="1")
            app.sync.enqueue("send", {"user": "2"})
            send.sync.options(delay=60).enqueue_many([{"user": "3"}, {"user": "4"}])
        send.sync.enqueue(user="after")
    assert [(job.task, job.payload["user"]) for job in jobs] == [("send", str(n)) for n in range(1, 5)]
    assert [job.shown_state for job in jobs] == ["pending", "pending", "delayed", "delayed"]


def test_enqueued_jobs_are_run_inline_as_well() -> None:
    """What looks and what runs do not get in each other's way, whichever is inside."""
    sent.clear()
    with in_memory(app):
        with inline(app), enqueued(app) as jobs:
            send.sync.enqueue(user="1")
        with enqueued(app) as others, inline(app):
            send.sync.enqueue(user="2")
    assert (sent, len(jobs), len(others)) == (["1", "2"], 1, 1)


async def test_enqueued_jobs_of_a_transaction_that_is_rolled_back_are_told(tmp_path: Path) -> None:
    """A test that never commits still sees what was enqueued, blocking and awaited, and leaves nothing."""
    path = tmp_path / "test.db"
    with app.on_store(f"sqlite:///{path.as_posix()}"):
        async with app:
            with enqueued(app) as outer, enqueued(app) as jobs:
                with closing(sqlite3.connect(path)) as connection:
                    send.using(connection).enqueue(user="1")
                    connection.rollback()
                async with aiosqlite.connect(path) as awaited:
                    await send.using(awaited).enqueue_many([{"user": "2"}, {"user": "3"}])
                    await awaited.rollback()
            assert [job.payload["user"] for job in jobs] == ["1", "2", "3"]
            assert outer == jobs
            assert (await app.count()).total == 0
