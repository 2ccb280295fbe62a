"""Limits hold with worker processes that are killed, and leave most of the throughput.

What is measured is in ``bench.limits.course``; the full size is ``pytest -m long``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.limits import course

from tests.servers.shared import empty_url

STORES = ["sqlite", "postgres"]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return empty_url() if request.param == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"


def test_a_killed_worker_leaks_no_slot_and_lets_no_other_job_in(url: str, tmp_path: Path) -> None:
    """Two workers, one killed at work: never more than five at once, and all jobs are run."""
    # Long enough that five of them meet on a busy machine, too.
    most, share = course.concurrency(url, tmp_path, jobs=60, limit=5, seconds=0.15, workers=2, kills=1)
    assert most == 5
    assert share > 0.1  # it waited for the killed worker's leases, which is most of the time here


@pytest.mark.long
def test_a_limit_on_concurrency_at_full_size(url: str, tmp_path: Path) -> None:
    """Five of a key, four workers, 2,000 jobs of 50 ms, three of the workers killed on the way."""
    most, share = course.concurrency(url, tmp_path, jobs=2000, limit=5, seconds=0.05, workers=4, kills=3)
    assert most == 5
    assert share >= 0.8


@pytest.mark.long
def test_a_rate_at_full_size(url: str, tmp_path: Path) -> None:
    """Fifty a second for half a minute: never above the burst, and nearly all of it used."""
    granted, _, used = course.rate(url, tmp_path, count=50, burst=10, seconds=30, workers=4)
    assert granted <= 10.001
    assert used >= 0.95


@pytest.mark.long
def test_a_fair_share_at_full_size(url: str, tmp_path: Path) -> None:
    """A hundred jobs behind fifty thousand of another tenant."""
    wait, kept = course.fair_share(url, tmp_path, many=50_000, few=100, seconds=10, slots=10, workers=2)
    assert wait < 1
    assert kept >= 0.9
