"""A ``tidewheel worker`` half of whose slots are stuck replaces itself: real processes, real threads."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Process, Project, wait_until

pytestmark = pytest.mark.skipif(os.name == "nt", reason="there a fresh worker takes over inside the process")

APP = """
import asyncio, os, sys, time
from tidewheel import Tidewheel
from tidewheel.worker import stuck_handlers, worker

if "worker" in sys.argv:
    stuck_handlers.STUCK_AFTER_SECONDS = 0.2
    worker.LOOP_BLOCKED_SECONDS = 0.5
    os.chdir("/")  # as programs do; the next one starts where this one did
app = Tidewheel({url!r}, lease=2)


@app.task(timeout=0.05, max_attempts=1)
def stick() -> None:
    time.sleep(3600)


@app.task(timeout=0.05, max_attempts=1)
async def stick_async() -> None:
    async def swallow() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

    await asyncio.ensure_future(swallow())


@app.task(timeout=0.05, max_attempts=1)
async def block() -> None:
    time.sleep(3600)


@app.task
async def wait(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()
"""

STARTED = "Ctrl-C stops"


@pytest.fixture
def sticky(project: Project) -> Project:
    project.write("sticky.py", APP.format(url=project.url))
    return project


def _enqueue(run: Run, task: str, **payload: Any) -> str:
    return run("enqueue", task, json.dumps(payload), "--app", "sticky:app").out.strip()


def _job(run: Run, project: Project, job_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = run("jobs", "show", job_id, "--json", "--url", project.url).json
    return answer


def _done(run: Run, project: Project, job_id: str) -> int:
    """The process that ran a job to its end."""
    wait_until(lambda: _job(run, project, job_id)["state"] == "completed")
    answer: int = _job(run, project, job_id)["result"]
    return answer


def _stop(process: Process) -> None:
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_a_single_worker_starts_anew_in_its_own_process(sticky: Project, run: Run) -> None:
    """Same process number, fresh slots, the same options; healthy jobs finish first and none is lost."""
    with sticky.start("worker", "sticky:app", "--concurrency", "3", "--name", "ada") as process:
        process.wait_for(STARTED)
        healthy = _enqueue(run, "wait", seconds=1.5)
        wait_until(lambda: _job(run, sticky, healthy)["state"] == "running")
        stuck = [_enqueue(run, "stick") for _ in range(2)]
        process.wait_for("worker ada is degraded")
        process.wait_for("worker ada: 2 of 3 slots are stuck")
        waiting = _enqueue(run, "wait", seconds=0)
        process.wait_for("worker ada stopped after .*completed 1.*failed 2")
        process.wait_for("this process starts anew")
        process.wait_for("worker ada on .*concurrency 3; Ctrl-C stops")
        assert _done(run, sticky, waiting) == process.popen.pid
        assert _done(run, sticky, healthy) == process.popen.pid
        assert _job(run, sticky, healthy)["attempt"] == 1
        for job_id in stuck:
            assert _job(run, sticky, job_id)["error"]["code"] == "job_timeout"
        _stop(process)


def test_a_stop_while_it_drains_is_a_stop(sticky: Project, run: Run) -> None:
    """Whoever asks it to end gets what they asked for, with exit code 0, and not a fresh worker."""
    with sticky.start("worker", "sticky:app", "--concurrency", "2") as process:
        process.wait_for(STARTED)
        healthy = _enqueue(run, "wait", seconds=2)
        wait_until(lambda: _job(run, sticky, healthy)["state"] == "running")
        _enqueue(run, "stick")
        process.wait_for("1 of 2 slots are stuck")
        _stop(process)
        assert "starts anew" not in process.text
    assert _job(run, sticky, healthy)["state"] == "completed"


def test_one_of_several_processes_is_replaced_by_its_parent(sticky: Project, run: Run) -> None:
    """At once, and the others are left alone."""
    arguments = ("worker", "sticky:app", "--processes", "2", "--concurrency", "1", "--name", "ada")
    with sticky.start(*arguments) as process:
        for _ in range(2):
            process.wait_for(rf"worker ada-\d on .*{STARTED}")
        _enqueue(run, "stick")
        name = process.wait_for(r"worker (ada-\d): 1 of 1 slots are stuck")[1]
        process.wait_for(rf"worker {name} \(pid \d+\) makes way after")
        again = int(process.wait_for(rf"worker {name} starts again: pid (\d+)")[1])
        process.wait_for(rf"worker {name} on .*{STARTED}")
        ids = [_enqueue(run, "wait", seconds=0.2) for _ in range(4)]
        assert again in {_done(run, sticky, job_id) for job_id in ids}
        _stop(process)


def test_the_child_of_a_reloading_parent_is_replaced(sticky: Project, run: Run) -> None:
    """Without waiting for a change of its files."""
    with sticky.start("worker", "sticky:app", "--reload", "--concurrency", "1") as process:
        process.wait_for(STARTED)
        _enqueue(run, "stick")
        process.wait_for("reload: half the slots of the worker are stuck; it starts anew")
        process.wait_for(STARTED)
        _done(run, sticky, _enqueue(run, "wait", seconds=0))
        _stop(process)


def test_coroutines_that_never_end_hold_no_process_up(sticky: Project, run: Run) -> None:
    """Neither one that is replaced nor one that is to stop waits for what ignores every request to end."""
    with sticky.start("worker", "sticky:app", "--concurrency", "2") as process:
        process.wait_for(STARTED)
        _enqueue(run, "stick_async")
        process.wait_for("this process starts anew")
        process.wait_for(STARTED)
    with sticky.start("worker", "sticky:app", "--concurrency", "3") as process:
        process.wait_for(STARTED)
        _enqueue(run, "stick_async")
        process.wait_for("is degraded")
        _stop(process)


@pytest.mark.parametrize("more", [(), ("--processes", "2")], ids=["single", "several"])
def test_a_blocked_event_loop_does_not_keep_a_process_for_ever(
    sticky: Project, run: Run, more: tuple[str, ...]
) -> None:
    """It cannot drain, so it is replaced as it is; its jobs come back when their leases end."""
    with sticky.start("worker", "sticky:app", "--concurrency", "20", *more) as process:
        for _ in range(2 if more else 1):
            process.wait_for(rf"worker .* on .*{STARTED}")
        blocking = _enqueue(run, "block")
        process.wait_for("a handler blocks its event loop")
        process.wait_for(r"makes way after|this process starts anew")
        process.wait_for(rf"worker .* on .*{STARTED}")
        _done(run, sticky, _enqueue(run, "wait", seconds=0))
        wait_until(lambda: _job(run, sticky, blocking)["state"] == "failed")
        assert _job(run, sticky, blocking)["error"]["code"] == "worker_lost"
        _stop(process)


def test_jobs_in_memory_survive_because_the_process_does(project: Project) -> None:
    """A store in memory ends with its process: there the fresh worker takes over inside."""
    project.write(
        "inmemory.py",
        """
import asyncio, threading, time
from tidewheel import Tidewheel
from tidewheel.worker import stuck_handlers

stuck_handlers.STUCK_AFTER_SECONDS = 0.2
app = Tidewheel("memory://", lease=2)


@app.task(timeout=0.05, max_attempts=1)
def stick() -> None:
    time.sleep(3600)


@app.task
async def fine() -> None:
    print("fine ran", flush=True)


async def fill() -> None:
    async with app:
        await stick.enqueue()
        await fine.options(delay=1.5).enqueue()
        await asyncio.sleep(20)


threading.Thread(target=lambda: asyncio.run(fill()), daemon=True).start()
""",
    )
    with project.start("worker", "inmemory:app", "--concurrency", "1", "--name", "ada") as process:
        process.wait_for("worker ada takes over from ada")
        process.wait_for("fine ran")
        _stop(process)
