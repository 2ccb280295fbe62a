"""PostgreSQL crashes under load, more than once; see ``restarts.py`` for the full size."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.restarts import Ledger, restart_run, table
from tests.servers import DURABLE, PostgresServer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as tested here are POSIX")

SLACK = 5.0
"""Seconds a busy machine may need more than the five that are promised."""


def check(ledger: Ledger) -> None:
    assert ledger.problems == [], table(ledger)
    assert ledger.completed == ledger.accepted > 0
    for restart in ledger.restarts:
        assert restart.back is not None, table(ledger)
        assert restart.back < 5.0 + SLACK, table(ledger)


async def test_two_crashes_under_load_lose_nothing_and_are_soon_forgotten(tmp_path: Path) -> None:
    """All jobs complete, no worker is started again, and throughput is back within seconds."""
    with PostgresServer(settings=DURABLE) as server:
        ledger = await restart_run(
            server, tmp_path, restarts=2, seconds_between=1.5, seconds_away=0.5, rate=100.0
        )
    check(ledger)
    assert len(ledger.restarts) == 2


@pytest.mark.long
async def test_six_crashes_in_two_minutes_lose_nothing_and_are_soon_forgotten(tmp_path: Path) -> None:
    """The same, for as long as an unlucky afternoon."""
    with PostgresServer(settings=DURABLE) as server:
        ledger = await restart_run(server, tmp_path, restarts=6, seconds_between=15.0, seconds_away=2.0)
    check(ledger)
    assert len(ledger.restarts) == 6
