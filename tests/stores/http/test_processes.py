"""A server, a worker and the command line as processes of their own, with nothing but HTTP between them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import COMMAND, Process, Project, wait_until
from tests.patience import PATIENCE
from tidewheel import Tidewheel

APP = """
import asyncio
from pathlib import Path
from tidewheel import Tidewheel

app = Tidewheel()

@app.task
async def double(number: int) -> int:
    return 2 * number

@app.task
async def slow(number: int) -> int:
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return number
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextlib.contextmanager
def serving(project: Project, port: int) -> Iterator[Process]:
    url = f"{project.url}?synchronous=normal"
    with project.start("serve", "shop:app", "--port", str(port), TIDEWHEEL_URL=url) as process:
        process.wait_for(rf"on http://127\.0\.0\.1:{port}")
        yield process


def key_of(project: Project) -> str:
    async def make() -> str:
        async with Tidewheel(project.url) as app:
            return (await app.access.create_key(superuser=True)).key

    return asyncio.run(make())


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_worker_lives_through_the_death_of_its_server(tmp_path: Path) -> None:
    """It is killed while a handler runs; the result is written once another is there. Then the worker is
    told to stop while it waits, and leaves nothing behind.
    """
    project, port = Project(tmp_path), free_port()
    project.write("shop.py", APP)
    there = {"TIDEWHEEL_URL": f"http://127.0.0.1:{port}", "TIDEWHEEL_TOKEN": key_of(project)}
    app = Tidewheel(there["TIDEWHEEL_URL"], token=there["TIDEWHEEL_TOKEN"])
    with project.start("worker", "shop:app", **there) as worker:
        worker.wait_for("cannot be reached")  # it may be there before its server
        with serving(project, port) as server:
            worker.wait_for("the store is there")
            with app.sync as queue:
                job = queue.enqueue("double", {"number": 21})
                assert job.result(timeout=PATIENCE) == 42
                slow = queue.enqueue("slow", {"number": 7})
                wait_until((tmp_path / "begun").exists)
                server.signal(signal.SIGKILL)
                server.wait()
        (tmp_path / "go").touch()
        worker.wait_for("settling finished jobs failed")
        with serving(project, port), app.sync as queue:
            done = queue.get(slow.id)
            assert (done.result(timeout=PATIENCE), queue.get(slow.id).attempt) == (7, 1)
            assert queue.enqueue("double", {"number": 2}).result(timeout=PATIENCE) == 4
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
            assert there["TIDEWHEEL_TOKEN"] not in worker.text
            assert "HTTP Request" not in worker.text
            late = queue.enqueue("double", {"number": 1})
            said = subprocess.run(
                [*COMMAND, "jobs", "list", "--state", "pending", "--json"],
                cwd=tmp_path,
                env=project.environment(**there),
                capture_output=True,
                text=True,
                check=True,
            )
            [listed] = json.loads(said.stdout)["items"]
            assert listed["id"] == str(late.id)
            assert (queue.get(late.id).attempt, queue.workers()) == (0, [])
