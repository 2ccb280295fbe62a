"""Django's own test runner, on a project of these tests; the claims are in ``project/desk/claims_*.py``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

from tests.servers.shared import shared_server

PROJECT = Path(__file__).parent / "project"


def run_claims(place: str, pattern: str = "claims_*.py", **environment: str) -> None:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("WINDLASS_", "DJANGO_"))
    }
    done = subprocess.run(
        [sys.executable, "-B", "-W", "error", "manage.py", "test", "--pattern", pattern, "--noinput"],
        cwd=PROJECT,
        env={**kept, "DESK_PLACE": place, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Ran 0 tests" not in done.stderr


def test_the_claims_hold_on_sqlite(tmp_path: Path) -> None:
    """Transactions, results, errors, signals, queues, plain tasks, commands, checks: in a file of SQLite."""
    run_claims(str(tmp_path))


def test_the_claims_hold_on_postgresql() -> None:
    """The same, and the test database can be dropped afterwards: nothing of Windlass is left in it."""
    run_claims(shared_server().url(), DESK_DRIVER="psycopg", DESK_TEST=f"test_{uuid4().hex}")


def test_jobs_go_in_with_the_other_driver_as_well() -> None:
    """Django takes psycopg2 where psycopg is not installed."""
    run_claims(
        shared_server().url(),
        "claims_enqueueing.py",
        DESK_DRIVER="psycopg2",
        DESK_TEST=f"test_{uuid4().hex}",
    )
