"""Killed with SIGKILL at every single write, truncation, sync and removal of a database's files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.faults.sqlite.checks import all_or_nothing, jobs_after, reopened
from tests.faults.sqlite.nursery import Ending, Nursery
from tests.faults.sqlite.tracing import Tracing, files_of, lasting, points, read_log
from windlass.model import State

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")


async def _sweep(nursery: Nursery, directory: Path, workload: str, at_least: int) -> None:
    """A run to count the points, one run for each of them, and a look at what each left."""
    empty = directory / "empty.db"
    if workload != "start_for_the_first_time":
        async with reopened(empty):
            pass
    database, log = directory / "jobs.db", directory / "strace.log"
    tracing = Tracing(lasting(database), log)
    ending = _run(nursery, empty, database, workload, tracing)
    assert ending.status == 0
    await _assert_kept(database, ending)
    to_try = points(read_log(log))
    assert len(to_try) >= at_least, to_try
    tried = 0
    for point in to_try:
        injected = Tracing(tracing.paths, log, (point.inject("signal=SIGKILL"),))
        ending = _run(nursery, empty, database, workload, injected)
        assert ending.killed, f"not killed at {point}"
        await _assert_kept(database, ending)
        tried += 1
    assert tried == len(to_try)
    print(f"{workload}: killed at {tried} points")


def _run(nursery: Nursery, empty: Path, database: Path, workload: str, tracing: Tracing) -> Ending:
    for file in files_of(database):
        file.unlink(missing_ok=True)
    if empty.exists():
        shutil.copyfile(empty, database)
    return nursery.run(workload, f"sqlite:///{database}", tracing)


async def _assert_kept(database: Path, ending: Ending) -> None:
    jobs = await jobs_after(database)
    acknowledged = ending.ids("enqueued")
    assert acknowledged <= jobs.keys(), ending
    for what, ids, _ in ending.said:
        if what == "enqueueing":
            assert all_or_nothing(ids, jobs), ending
    assert jobs.keys() <= ending.ids("enqueueing")
    for job_id in ending.ids("claimed"):
        assert jobs[job_id].state is State.RUNNING
    for job_id in ending.ids("completed"):
        assert jobs[job_id].state is State.COMPLETED


@pytest.mark.parametrize(
    ("workload", "at_least"),
    [("enqueue_one", 15), ("enqueue_together", 30), ("claim_one", 10), ("settle_one", 10)],
)
async def test_killed_at_any_point_nothing_acknowledged_is_lost(
    nursery: Nursery, tmp_path: Path, workload: str, at_least: int
) -> None:
    """What was acknowledged is there, the rest is whole or absent, and the next process goes on."""
    await _sweep(nursery, tmp_path, workload, at_least)


@pytest.mark.long
@pytest.mark.parametrize(
    ("workload", "at_least"),
    [
        ("enqueue_fifty", 50),
        ("start_for_the_first_time", 60),
        ("commit_and_checkpoint", 60),
    ],
)
async def test_killed_at_any_point_of_longer_work(
    nursery: Nursery, tmp_path: Path, workload: str, at_least: int
) -> None:
    """The same for a batch, the first start with its schema, and checkpoints."""
    await _sweep(nursery, tmp_path, workload, at_least)
