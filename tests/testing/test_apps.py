"""The helpers users test their own tasks with."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from windlass import InvalidPayload, JobFailed, Retry, Windlass
from windlass.testing import FrozenClock, in_memory, inline

app = Windlass("sqlite:////nowhere/that/exists.db")  # production: tests never come near it

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


async def test_time_passes_when_the_test_says_so(windlass_clock: FrozenClock) -> None:
    """Delays and retries are tested without waiting for them."""
    sent.clear()
    async with in_memory(app, clock=windlass_clock):
        await send.options(delay=3600).enqueue(user="later")
        failing = await fails.enqueue()
        await app.run_until_idle()
        assert sent == []
        await failing.refresh()
        assert failing.shown_state == "retrying"
        windlass_clock.advance(3600)
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
    import asyncio

    async with in_memory(app):
        job = await asyncio.to_thread(send.sync.enqueue, user="42")
        assert job.state == "pending"


def test_the_fixture_comes_with_the_installation(tmp_path: Path) -> None:
    """A user's test asks for it by name, without importing anything."""
    test = tmp_path / "test_users_code.py"
    test.write_text(
        textwrap.dedent(
            """
            from windlass import Windlass
            from windlass.testing import in_memory
            import asyncio

            app = Windlass("memory://")

            @app.task
            async def work() -> int:
                return 1

            def test_work(windlass_clock):
                async def main():
                    async with in_memory(app, clock=windlass_clock):
                        job = await work.options(delay=60).enqueue()
                        windlass_clock.advance(61)
                        await app.run_until_idle()
                        assert await job.result(timeout=0) == 1
                asyncio.run(main())
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(test), "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
