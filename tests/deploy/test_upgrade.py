"""What the page about upgrades says of programs that are older than the schema."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from tests.cli.processes import Project
from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.stores.sqlite.schema import load_migrations

APP = """
from tidewheel import Tidewheel

app = Tidewheel()


@app.task
async def work(number: int) -> int:
    return number
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")
def test_an_old_worker_goes_on_after_a_migration_and_cannot_start_again(tmp_path: Path) -> None:
    """A rolling upgrade stops nobody; what is started anew and too old says so, and touches nothing."""
    project = Project(tmp_path)
    project.write("shop.py", APP)
    with project.start("worker", "shop:app", TIDEWHEEL_URL=project.url) as process:
        process.wait_for("Ctrl-C stops")
        asyncio.run(_run_a_job_after_a_migration(project))
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.seen[-1].endswith("completed 1, retried 0, failed 0")
    for command in (("worker", "shop:app"), ("migrate",), ("stats",)):
        with project.start(*command, TIDEWHEEL_URL=project.url) as refused:
            assert refused.wait() == 1
            assert "this Tidewheel knows" in refused.text
            assert "upgrade Tidewheel" in refused.text


async def _run_a_job_after_a_migration(project: Project) -> None:
    """The producer was open before, as the worker was."""
    async with Tidewheel(project.url) as app:
        connection = sqlite3.connect(project.directory / "jobs.db", timeout=10)
        with connection:  # as a newer version would, with a step that changes nothing
            version = load_migrations()[-1][0] + 1
            connection.execute("INSERT INTO tidewheel_schema VALUES (?, 'of_tomorrow', 0)", (version,))
        connection.close()
        job = await app.enqueue("work", {"number": 1})
        assert await job.result(timeout=PATIENCE) == 1
