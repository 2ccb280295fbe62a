"""Another program holds the write lock for long: callers are told, workers wait, no result is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.sqlite.checks import reopened
from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tidewheel import Context, Job, Retry, Tidewheel
from tidewheel.core.model import Claim, ClaimRequest
from tidewheel.errors import StoreUnavailable

OUTSIDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
"""


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """By a process of its own, which is not ours to speak with, until the block ends."""
    command = [sys.executable, "-c", OUTSIDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as outsider:
        assert outsider.stdout is not None
        assert outsider.stdin is not None
        assert outsider.stdout.readline() == "locked\n"
        yield
        outsider.stdin.close()
        assert outsider.wait(PATIENCE) == 0


@contextlib.asynccontextmanager
async def _a_worker_in_the_middle_of_a_job(
    url: str,
) -> AsyncIterator[tuple[Tidewheel, Job[int], asyncio.Event]]:
    """The job ends when the event is set. After the block it has run once, and the worker goes on."""
    app = Tidewheel(url)
    runs: Counter[int] = Counter()
    go_on = asyncio.Event()

    @app.task
    async def work(n: int) -> int:
        runs[n] += 1
        if n == 0:
            await go_on.wait()
        return n

    async with app:
        job = await work.enqueue(n=0)
        async with working(app, concurrency=4) as worker:
            await until(lambda: bool(runs))
            yield app, job, go_on
            assert await job.result(timeout=60) == 0
            later = await work.enqueue(n=1)
            assert await later.result(timeout=60) == 1
            assert worker.tally.lost == 0
    assert runs[0] == runs[1] == 1
    assert set(runs.values()) == {1}


def _said(caplog: pytest.LogCaptureFixture, words: str) -> Callable[[], bool]:
    return lambda: any(words in record.getMessage() for record in caplog.records)


async def test_a_worker_outlives_an_outsider_that_keeps_the_lock(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its job ends while nothing can be written; the result is written once the lock is free."""
    caplog.set_level(logging.WARNING)
    path = tmp_path / "jobs.db"
    async with _a_worker_in_the_middle_of_a_job(f"sqlite:///{path}?busy_timeout=0.2") as (app, job, go_on):
        with locked(path):
            with pytest.raises(
                StoreUnavailable, match=r"jobs\.db stayed locked for 0\.2 s.*look for a process"
            ):
                await app.enqueue("work", {"n": 5})
            go_on.set()
            await until(_said(caplog, "settling finished jobs failed"))
            assert await app.get(job.id) is not None, "readers need no lock"
    async with reopened(path) as store:
        assert await store.check() == []


@pytest.mark.long
async def test_thirty_seconds_of_an_outsider_s_lock_are_waited_for(tmp_path: Path) -> None:
    """By a caller whose patience is longer: no error, and the job is there when the lock is free."""
    path = tmp_path / "jobs.db"
    async with _a_worker_in_the_middle_of_a_job(f"sqlite:///{path}?busy_timeout=40") as (app, _, go_on):
        with locked(path):
            patient = asyncio.create_task(app.enqueue("work", {"n": 2}))
            go_on.set()
            await asyncio.sleep(30)
            assert not patient.done()
        waited_for = await patient
        assert await waited_for.result(timeout=60) == 2


class _Claims:
    """The claims of a worker. The one that grants the second attempt meets a lock longer than its lease."""

    def __init__(self, app: Tidewheel, path: Path, lease: float) -> None:
        self._claim = app.store.claim
        self._path = path
        self._seconds = 1.5 * lease
        self._unlock = contextlib.ExitStack()
        self.failed_once: Callable[[], Awaitable[bool]] | None = None
        self.met = 0

    async def locked_before(self, request: ClaimRequest) -> Claim:
        """The file is locked when the claim comes, so the grant is written when the lease is over."""
        if self.met or not await self._is_second():
            return await self._claim(request)
        self.met += 1
        with locked(self._path):
            claiming = asyncio.create_task(self._claim(request))
            await asyncio.sleep(self._seconds)
            assert not claiming.done()
        return await claiming

    async def locked_after(self, request: ClaimRequest) -> Claim:
        """The file is locked right after the grant, so the start cannot be recorded within the lease."""
        second = not self.met and await self._is_second()
        claim = await self._claim(request)
        if second and claim.jobs:
            self.met += 1
            self._unlock.enter_context(locked(self._path))
            asyncio.get_running_loop().call_later(self._seconds, self._unlock.close)
        return claim

    async def _is_second(self) -> bool:
        if self.failed_once is None:
            return False
        await until(self.failed_once)
        return True


@pytest.mark.parametrize("lease", [2.0, pytest.param(4.0, marks=pytest.mark.long)])
@pytest.mark.parametrize("lock", ["locked_before", "locked_after"])
async def test_a_last_attempt_that_never_ran_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: str, lease: float
) -> None:
    """An outsider locks the file for longer than the lease of a job that waits for its last attempt."""
    path = tmp_path / "jobs.db"
    app = Tidewheel(f"sqlite:///{path}")
    runs: list[int] = []

    async def failed_once() -> bool:
        await job.refresh()
        return job.state == "pending" and len(job.attempts) == 1

    @app.task(max_attempts=2, retry=Retry.fixed(0))
    async def work(ctx: Context) -> str:
        runs.append(ctx.attempt)
        if ctx.attempt == 1:
            claims.failed_once = failed_once
            raise ValueError("once")
        return "done"

    async with app:
        claims = _Claims(app, path, lease)
        monkeypatch.setattr(app.store, "claim", getattr(claims, lock))
        job = await work.enqueue()
        async with working(app, concurrency=1, lease=lease):
            assert await job.result(timeout=PATIENCE) == "done"
        await job.refresh()
    assert (claims.met, runs, job.attempt) == (1, [1, 2], 2)
    assert [attempt.error.code for attempt in job.attempts] == ["handler_error"]
