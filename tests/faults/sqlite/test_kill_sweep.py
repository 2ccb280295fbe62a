"""Killed with SIGKILL at every single write, truncation, sync and removal of a database's files."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from uuid import UUID

import pytest

from tests.faults.sqlite.checks import all_or_nothing, jobs_after, jobs_in, reopened, works
from tests.faults.sqlite.fork_server import Ending, Nursery
from tests.faults.sqlite.strace import Point, Tracing, files_of, lasting, points, read_log
from tidewheel.core.model import JobRecord, State

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")


class Sweep:
    """One workload on one database, again and again."""

    def __init__(self, nursery: Nursery, directory: Path, workload: str, *, bystander: bool = False) -> None:
        self._nursery = nursery
        self._workload = workload
        self._bystander = bystander
        self._empty = directory / "empty.db"
        self._database, self._log = directory / "jobs.db", directory / "strace.log"

    async def run(self, at_least: int) -> None:
        """A run to count the points, one run for each of them, and a look at what each left."""
        if self._workload != "start_for_the_first_time":
            async with reopened(self._empty):
                pass
        ending = await self._attempt()
        assert ending.status == 0
        to_try = points(read_log(self._log))
        assert len(to_try) >= at_least, to_try
        for point in to_try:
            assert await self._killed_at(point), f"not killed at {point}"
        print(f"{self._workload}: killed at {len(to_try)} points")

    async def _killed_at(self, point: Point) -> bool:
        """Try a few times: on a busy machine one commit may take all calls, with fewer writes."""
        for _ in range(5):
            ending = await self._attempt(point.inject("signal=SIGKILL"))
            if ending.killed:
                return True
        return False

    async def _attempt(self, *inject: str) -> Ending:
        for file in files_of(self._database):
            file.unlink(missing_ok=True)
        if self._empty.exists():
            shutil.copyfile(self._empty, self._database)
        if not self._bystander:
            ending = self._run(inject)
        else:
            async with reopened(self._database) as store:
                await works(store)
                ending = self._run(inject)
                _assert_kept(await jobs_in(store), ending)
        _assert_kept(await jobs_after(self._database), ending)
        return ending

    def _run(self, inject: tuple[str, ...]) -> Ending:
        tracing = Tracing(lasting(self._database), self._log, inject)
        return self._nursery.run(self._workload, f"sqlite:///{self._database}", tracing)


def _assert_kept(jobs: dict[UUID, JobRecord], ending: Ending) -> None:
    assert ending.ids("enqueued") <= jobs.keys(), ending
    for what, ids, _ in ending.said:
        if what == "enqueueing":
            assert all_or_nothing(ids, jobs), ending
    assert jobs.keys() <= ending.ids("enqueueing")
    for job_id in ending.ids("claimed"):
        assert jobs[job_id].state is State.RUNNING
    for job_id in ending.ids("stepped"):
        assert [step.name for step in jobs[job_id].steps] == ["one"]
    for job_id in ending.ids("completed"):
        assert jobs[job_id].state is State.COMPLETED


@pytest.mark.parametrize(
    ("workload", "at_least"),
    [
        ("enqueue_one", 15),
        ("enqueue_together", 30),
        ("claim_one", 10),
        ("settle_one", 10),
        ("finish_a_step", 8),
    ],
)
async def test_killed_at_any_point_nothing_acknowledged_is_lost(
    nursery: Nursery, tmp_path: Path, workload: str, at_least: int
) -> None:
    """What was acknowledged is there, the rest is whole or absent, and the next process goes on."""
    await Sweep(nursery, tmp_path, workload).run(at_least)


async def test_killed_at_any_point_while_another_process_has_the_file_open(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Then nobody reads the log anew: the survivor goes on with the memory both had shared."""
    await Sweep(nursery, tmp_path, "enqueue_one", bystander=True).run(15)


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
    await Sweep(nursery, tmp_path, workload).run(at_least)
