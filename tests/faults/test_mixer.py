"""Everything that can go wrong, at random, for some seconds: afterwards the books are in order."""

from __future__ import annotations

from pathlib import Path

from tests.faults.file_troubles import small_disk
from tests.faults.mixer import mix_on_postgres, mix_on_sqlite, summary
from tests.servers import DURABLE, PostgresServer
from tidewheel.verification.fault_run import FaultRunPlan, FaultRunResult

PLAN = FaultRunPlan(seconds=8.0, seed=7, fault_interval=0.4, max_parallel_faults=4)
"""Minutes of it: ``python -m tests.faults.mixer``."""


def _look_at(outcome: FaultRunResult) -> None:
    said = summary(outcome)
    assert said["violations"] == []
    # The run was worth something: work was done, and it was disturbed in many ways.
    assert outcome.report.counts["jobs completed"] > 10
    assert len(outcome.report.faults) >= 4, said
    assert outcome.report.counts["processes gone"] > 0


async def test_no_promise_is_broken_on_postgresql(tmp_path: Path) -> None:
    """Killed and frozen workers, cut and silent connections, lost replies, a server that crashes."""
    with PostgresServer(settings=DURABLE) as server:
        _look_at(await mix_on_postgres(PLAN, tmp_path, server))


async def test_no_promise_is_broken_on_sqlite(tmp_path: Path) -> None:
    """Killed and frozen workers, held locks, long readers, and a full disk where one can be mounted."""
    disk, histories = tmp_path / "disk", tmp_path / "histories"
    disk.mkdir()
    histories.mkdir()
    with small_disk(disk) as mounted:
        _look_at(await mix_on_sqlite(PLAN, histories, disk, can_be_filled=mounted))
