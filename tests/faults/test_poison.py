"""The poison scene in short; ``python -m tests.faults.poison`` plays the whole one as often as you like."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.processes import Project
from tests.faults.poison import Scene, place, play

pytestmark = pytest.mark.skipif(os.name != "posix", reason="SIGKILL")

SHORT = Scene(innocents=6, max_attempts=2, poison_attempts=2)


@pytest.mark.parametrize(
    ("store", "scene"),
    [
        ("sqlite", SHORT),
        pytest.param("postgres", Scene(), marks=pytest.mark.long),
        pytest.param("http", Scene(), marks=pytest.mark.long),
        pytest.param("sqlite", Scene(processes=2), marks=pytest.mark.long),
        pytest.param("sqlite", Scene(innocents=4, seconds=3.0, kills_after=1.0), marks=pytest.mark.long),
    ],
    ids=["sqlite", "postgres", "http", "processes", "long_jobs"],
)
async def test_only_the_job_that_kills_its_worker_loses_attempts(
    tmp_path: Path, store: str, scene: Scene
) -> None:
    """Jobs that ran beside it complete with their first attempt, unless they may start only once."""
    with place(store, tmp_path) as (store_url, environment):
        result = await play(Project(tmp_path), scene, store_url, environment)
    assert (result.failed, result.lost) == (0, 0)
    assert (result.poison, result.poison_attempts) == ("failed", scene.poison_attempts)
    assert result.deaths <= scene.poison_attempts + 2
