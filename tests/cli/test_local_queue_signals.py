"""A worker's process with non-durable jobs: signals reach those, too."""

from __future__ import annotations

import signal
import sys

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project

APP = """
import asyncio

from tidewheel import Tidewheel

app = Tidewheel("{url}", shutdown_grace=3600)


@app.task(durable=False)
async def endless() -> None:
    print("endless runs", flush=True)
    await asyncio.sleep(3600)


@app.task
async def feed() -> None:
    await endless.enqueue()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals to send there")
def test_a_second_signal_ends_handlers_of_the_lane_at_once(project: Project, run: Run) -> None:
    """As it does for those of the worker; the first alone would let them have their hour."""
    project.write("feeding.py", APP.format(url=project.url))
    run("enqueue", "feed", "--app", "feeding:app")
    with project.start("worker", "feeding:app") as process:
        process.wait_for("endless runs")
        process.signal(signal.SIGTERM)
        process.wait_for("stopped after")  # the worker has nothing to wait for; its process has
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
