"""Another program holds the write lock for long: callers are told, workers wait, no result is lost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.faults.sqlite.checks import reopened
from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from windlass import Job, Windlass
from windlass.errors import StoreUnavailable

OUTSIDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
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
) -> AsyncIterator[tuple[Windlass, Job[int], asyncio.Event]]:
    """The job ends when the event is set. After the block it has run once, and the worker goes on."""
    app = Windlass(url)
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
