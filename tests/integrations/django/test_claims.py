"""Django's own test runner, on a project of these tests; the claims are in ``project/desk/claims_*.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.servers.shared import shared_server

PROJECT = Path(__file__).parent / "project"
KEPT = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEWHEEL_", "DJANGO_"))}


class Claims:
    """One run of them."""

    def __init__(self, place: str, pattern: str = "claims_*.py", **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-B", "-W", "error", "manage.py", "test", "--pattern", pattern, "--noinput"],
            cwd=PROJECT,
            env={**KEPT, "DESK_PLACE": place, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def hold(self) -> None:
        said, _ = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, said
        assert "Ran 0 tests" not in said


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Claims]]:
    """All of them at a time: each waits for its database more than it works."""
    url = shared_server().url()
    runs = {
        "sqlite": Claims(str(tmp_path_factory.mktemp("desk"))),
        "psycopg": Claims(url, DESK_DRIVER="psycopg", DESK_TEST=f"test_{uuid4().hex}"),
        "psycopg2": Claims(
            url, "claims_enqueueing.py", DESK_DRIVER="psycopg2", DESK_TEST=f"test_{uuid4().hex}"
        ),
    }
    yield runs
    for run in runs.values():
        run.process.kill()
        run.process.communicate()


def test_the_claims_hold_on_sqlite(runs: dict[str, Claims]) -> None:
    """Transactions, results, errors, signals, queues, plain tasks, commands, checks: in a file of SQLite."""
    runs["sqlite"].hold()


def test_the_claims_hold_on_postgresql(runs: dict[str, Claims]) -> None:
    """The same, and the test database can be dropped afterwards: nothing of Tidewheel is left in it."""
    runs["psycopg"].hold()


def test_jobs_go_in_with_the_other_driver_as_well(runs: dict[str, Claims]) -> None:
    """Django takes psycopg2 where psycopg is not installed."""
    runs["psycopg2"].hold()


def test_a_project_without_a_database_for_jobs_is_left_alone() -> None:
    """The app is listed and nothing else is said: ``migrate`` of others must not end with an error."""
    program = """
import django
from django.conf import settings
settings.configure(DATABASES={}, INSTALLED_APPS=["tidewheel.integrations.django"])
django.setup()
from tidewheel.integrations.django.project import project_apps
assert project_apps() == []
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=KEPT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
