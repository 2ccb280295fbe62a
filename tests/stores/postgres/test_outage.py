"""PostgreSQL goes down under real worker processes and comes back; nobody restarts them by hand (Q22)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.processes import Process, Project, wait_until
from tests.servers import DURABLE, PostgresServer
from tests.servers.shared import fresh_schema
from tidewheel import Tidewheel

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")

APP = """
import asyncio, os, pathlib
from tidewheel import Context, Tidewheel

app = Tidewheel({url!r}, lease={lease})
log = os.open("runs.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@app.task(max_attempts=10)
async def work(ctx: Context, n: int, gate: str = "", seconds: float = 0) -> int:
    os.write(log, f"start {{n}} {{ctx.attempt}}\\n".encode())
    await asyncio.sleep(seconds)
    while gate and not pathlib.Path(gate).exists():
        await asyncio.sleep(0.01)
    os.write(log, f"end {{n}} {{ctx.attempt}}\\n".encode())
    return os.getpid()
"""

STARTED = r"worker \S+ on .*Ctrl-C stops$"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of our own, to be stopped as we like."""
    with PostgresServer(settings=DURABLE) as server:
        yield server


class Scene:
    """A project whose app works on that server, and what its handlers did."""

    def __init__(self, server: PostgresServer, directory: Path, lease: float) -> None:
        self.server = server.start()
        self.url = server.url(schema=fresh_schema())
        self.project = Project(directory)
        self.project.write("jobs.py", APP.format(url=self.url, lease=lease))

    def within(self, look: Callable[[Tidewheel], Awaitable[Any]]) -> Any:
        async def opened() -> Any:
            async with Tidewheel(self.url) as app:
                return await look(app)

        return asyncio.run(opened())

    def enqueue(self, numbers: range, **more: Any) -> None:
        self.within(lambda app: app.enqueue_many("work", [{"n": n, **more} for n in numbers]))

    def runs(self, event: str) -> Counter[int]:
        """How often each job's handler did this."""
        path = self.project.directory / "runs.txt"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(int(line.split()[1]) for line in lines if line.startswith(event))

    def open_gate(self) -> None:
        self.project.write("gate", "")

    def wait_for_completed(self, number: int) -> float:
        """Seconds until so many are completed."""
        began = time.monotonic()
        wait_until(lambda: self.within(lambda app: app.stats()).completed == number)
        return time.monotonic() - began


@pytest.fixture
def scene(server: PostgresServer, tmp_path: Path) -> Scene:
    return Scene(server, tmp_path, lease=60)


def lines_in_any_order(process: Process, *patterns: str) -> None:
    """Wait until each of these was said."""
    while missing := [pattern for pattern in patterns if not re.search(pattern, process.text, re.MULTILINE)]:
        process.wait_for("|".join(missing))


def test_a_worker_outlives_its_database(scene: Scene) -> None:
    """What was finished without it is settled when it is back; no handler runs twice, no process is new."""
    scene.enqueue(range(10), gate="gate")
    scene.enqueue(range(10, 40))
    with scene.project.start("worker", "jobs:app", "--concurrency", "10", "--prefetch", "0") as process:
        process.wait_for(STARTED)
        wait_until(lambda: len(scene.runs("start")) == 10)
        scene.server.stop("immediate")
        scene.open_gate()
        wait_until(lambda: set(scene.runs("end")) >= set(range(10)))
        lines_in_any_order(process, "settling finished jobs failed", "claiming jobs failed")
        down = time.monotonic()
        wait_until(lambda: time.monotonic() > down + 1.5)  # past the first, short pauses
        scene.server.start()
        assert scene.wait_for_completed(40) < 10
        assert set(scene.runs("start").values()) == {1}
        # It is on the list again with its next beat, which may come later than the jobs.
        wait_until(lambda: bool(scene.within(lambda app: app.workers())))
        [worker] = scene.within(lambda app: app.workers())
        assert worker.pid == process.popen.pid
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.seen[-1].endswith("ran 40, completed 40, retried 0, failed 0")
        assert "settling finished jobs works again" in process.text
        assert process.text.count("settling finished jobs failed") == 1
    assert scene.within(lambda app: app.check()) == []


def test_an_outage_longer_than_the_lease_costs_one_more_run_each(
    server: PostgresServer, tmp_path: Path
) -> None:
    """Of the jobs that were finished meanwhile, and of no others: the store cannot know who took them."""
    scene = Scene(server, tmp_path, lease=2)
    scene.enqueue(range(5), gate="gate")
    with scene.project.start("worker", "jobs:app", "--concurrency", "5", "--prefetch", "0") as process:
        process.wait_for(STARTED)
        wait_until(lambda: len(scene.runs("start")) == 5)
        scene.enqueue(range(5, 10))
        server.stop("immediate")
        scene.open_gate()
        wait_until(lambda: set(scene.runs("end")) == set(range(5)))
        ended = time.monotonic()
        wait_until(lambda: time.monotonic() > ended + 2)
        server.start()
        scene.wait_for_completed(10)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.text.count("was refused: its lease had ended; the job runs again") == 5
    runs = scene.runs("end")
    assert {n: runs[n] for n in range(10)} == {**dict.fromkeys(range(5), 2), **dict.fromkeys(range(5, 10), 1)}


def test_several_processes_outlive_two_outages(server: PostgresServer, tmp_path: Path) -> None:
    """Not one of them is started again, and every job is completed, whatever was under way."""
    scene = Scene(server, tmp_path, lease=2)
    scene.enqueue(range(200), seconds=0.1)
    with scene.project.start("worker", "jobs:app", "--processes", "2", "--name", "ada") as process:
        for _ in range(2):
            process.wait_for(STARTED)
        for outage in (1, 2):
            some = 200 * outage - 150
            wait_until(lambda some=some: len(scene.runs("end")) > some)  # type: ignore[misc]
            server.restart("immediate")
            scene.enqueue(range(200 * outage, 200 * outage + 200), seconds=0.1)
        scene.wait_for_completed(600)
        wait_until(lambda: len(scene.within(lambda app: app.workers())) == 2)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert "starts again" not in process.text
        assert len(re.findall(STARTED, process.text, re.MULTILINE)) == 2
    assert scene.within(lambda app: app.check()) == []


def test_a_worker_may_be_started_before_its_database(scene: Scene) -> None:
    """A machine that comes up brings its services up in any order."""
    scene.server.stop()
    with scene.project.start("worker", "jobs:app") as process:
        process.wait_for("the store is not available, trying until it is: PostgreSQL at .* cannot be reached")
        scene.server.start()
        process.wait_for("the store is there, after [0-9]+ failed tries")
        process.wait_for(STARTED)
        scene.enqueue(range(1))
        scene.wait_for_completed(1)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_a_worker_can_be_stopped_without_its_database(scene: Scene) -> None:
    """Waiting for it, or at work: one signal is enough, and it ends in seconds."""
    with scene.project.start("worker", "jobs:app") as process:
        process.wait_for(STARTED)
        scene.server.stop("immediate")
        process.wait_for("failed; trying again until it works")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    with scene.project.start("worker", "jobs:app") as process:
        process.wait_for("trying until it is")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.seen[-1].endswith("stopped before the store was there")


def test_a_database_that_does_not_exist_is_not_waited_for(scene: Scene) -> None:
    """That is a mistake, and somebody has to correct it."""
    scene.project.write("jobs.py", APP.format(url=scene.server.url("nosuch"), lease=60))
    with scene.project.start("worker", "jobs:app") as process:
        assert process.wait() == 2
        assert 'database "nosuch" does not exist' in process.text
