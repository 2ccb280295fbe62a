"""Away for three leases, and back: no job is settled twice, and what was held on to was kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.absences import JOBS, Absence, on_postgres, on_sqlite
from tests.servers import PostgresServer
from tidewheel.verification.checker import CheckReport

pytestmark = pytest.mark.long


def _look_at(report: CheckReport, *, runs: int) -> None:
    assert report.violations == []
    assert report.counts["jobs completed"] == JOBS
    assert report.counts["endings accepted"] == JOBS
    assert report.counts["runs"] == runs


@pytest.mark.parametrize(("absence", "runs"), [("blocked", JOBS), ("frozen", 2 * JOBS)])
async def test_on_sqlite(absence: Absence, runs: int, tmp_path: Path) -> None:
    """A blocked event loop keeps its jobs; a frozen process loses them, and its endings are refused."""
    _look_at(await on_sqlite(absence, tmp_path), runs=runs)


@pytest.mark.parametrize(
    ("absence", "runs"), [("blocked", JOBS), ("frozen", 2 * JOBS), ("half-open", 2 * JOBS)]
)
async def test_on_postgresql(absence: Absence, runs: int, tmp_path: Path, postgres: PostgresServer) -> None:
    """The same, and connections on which nothing arrives any more."""
    _look_at(await on_postgres(absence, tmp_path, postgres), runs=runs)
