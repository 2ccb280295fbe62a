"""Whole programs: scripts, ``tidewheel worker``, and what is left when a worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.processes import Project, wait_until
from tests.patience import PATIENCE
from tests.worker.processes.process_state import is_alive
from tidewheel import Tidewheel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as tested here are POSIX")

JOBS = """
import ctypes, os, signal, sys, time
from pathlib import Path
from tidewheel import Context, Tidewheel

app = Tidewheel("sqlite:///jobs.db", lease=2, shutdown_grace=20)

@app.task(isolation="process")
def sleeps(mark: str, seconds: float) -> int:
    Path(mark).write_text(str(os.getpid()))
    time.sleep(seconds)
    return os.getpid()

@app.task(isolation="process")
def holds(mark: str) -> None:
    Path(mark).write_text(str(os.getpid()))
    ctypes.PyDLL(None).sleep(60)  # without letting go of the interpreter

@app.task(isolation="process")
def waits(ctx: Context, mark: str) -> str:
    Path(mark).write_text(str(os.getpid()))
    ctx.logger.warning("a line of the handler")
    while not ctx.shutting_down:
        time.sleep(0.01)
    next.sync.enqueue()
    return "saw it"

@app.task(isolation="process")
async def follows() -> None:
    async with app:
        await next.enqueue()

@app.task
def next() -> None: ...
"""

SCRIPT = """
import asyncio, os
from tidewheel import Tidewheel

app = Tidewheel("sqlite:///jobs.db")

@app.task(isolation="process", max_attempts=1)
def work() -> str:
    return f"{__name__} {os.getpid()}"

async def main():
    async with app:
        job = await work.enqueue()
        await app.run_until_idle()
        await job.refresh()
        print(os.getpid(), job.state, await job.result() if job.state == "completed" else job.error.message)
        print((await app.count()).total, "jobs")
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    project.write("jobs.py", JOBS)
    return project


def pid_in(path: Path) -> int:
    wait_until(lambda: path.exists() and path.read_text() != "")
    return int(path.read_text())


@pytest.fixture
def enqueue(project: Project) -> Callable[..., str]:
    def enqueue(name: str, **payload: object) -> str:
        with Tidewheel(project.url).sync as app:
            return str(app.enqueue(name, payload).id)

    return enqueue


def test_processes_die_with_a_worker_that_is_killed(
    project: Project, enqueue: Callable[..., str], tmp_path: Path
) -> None:
    """Even one whose handler holds the interpreter, and what a handler has started."""
    enqueue("sleeps", mark="first", seconds=60)
    enqueue("holds", mark="second")
    with project.start("worker", "jobs:app") as worker:
        pids = [pid_in(tmp_path / name) for name in ("first", "second")]
        assert all(is_alive(pid) for pid in pids)
        worker.popen.kill()
        worker.popen.wait()
        waiting = pids if sys.platform == "linux" else pids[:1]
        wait_until(lambda: not any(is_alive(pid) for pid in waiting), patience=PATIENCE)


def test_a_signal_to_stop_lets_handlers_finish(
    project: Project, enqueue: Callable[..., str], tmp_path: Path
) -> None:
    """They see it in their context; what a terminal or a service manager sends to all is not theirs."""
    other_id = enqueue("follows")
    job_id = enqueue("waits", mark="mark")
    with project.start("worker", "jobs:app", "--log-json") as worker:
        pid = pid_in(tmp_path / "mark")
        assert '"topic": "waits"' in worker.wait_for("a line of the handler").string
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(pid, number)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0, worker.text
    assert not is_alive(pid)
    with Tidewheel(project.url).sync as app:
        assert app.get(job_id).result(timeout=0) == "saw it"
        assert app.get(other_id).result(timeout=0) is None
        assert app.count(topic="next").total == 2, "enqueued by the handlers"


def test_tasks_of_a_script_run_in_processes_that_import_it(project: Project) -> None:
    """Under another name, so that what is guarded runs once."""
    project.write("script.py", SCRIPT + 'if __name__ == "__main__":\n    asyncio.run(main())\n')
    said = run(project, "script.py")
    own, state, name, other = said[0].split()
    assert (state, name, said[1]) == ("completed", "__mp_main__", "1 jobs")
    assert own != other


def test_tasks_of_a_package_run_by_its_name_are_imported_from_it(project: Project) -> None:
    """``python -m package``, relative imports included."""
    package = project.directory / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "names.py").write_text("NAME = 'relative'\n")
    main = SCRIPT + 'if __name__ == "__main__":\n    asyncio.run(main())\n'
    (package / "__main__.py").write_text("from .names import NAME\n" + main.replace("{__name__}", "{NAME}"))
    assert run(project, "-m", "shop")[0].split()[1:3] == ["completed", "relative"]


def test_a_script_without_a_guard_is_told_so_and_enqueues_nothing_twice(project: Project) -> None:
    """The process that imports it refuses to open the app."""
    project.write("script.py", SCRIPT + "asyncio.run(main())\n")
    said = run(project, "script.py")
    assert said[0].split()[1] == "failed"
    assert 'if __name__ == "__main__":' in said[0]
    assert said[1] == "1 jobs"


def run(project: Project, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=project.directory,
        env=project.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_memory_is_watched_where_the_kernel_does_not(tmp_path: Path) -> None:
    """The fallback of systems without Linux's limit: a thread that looks, and ends the process."""
    program = """
        from tidewheel.worker.processes.memory_limit import PeakMemoryLimit
        watch = PeakMemoryLimit()
        watch.set(64_000_000)
        first = bytearray(b"x") * 20_000_000
        watch.clear()
        assert not watch.needs_restart(64_000_000)
        watch.set(64_000_000)
        hoard = []
        while True:
            hoard.append(bytearray(b"x") * 1_000_000)
            assert len(hoard) < 10_000
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=60, check=False)
    assert done.returncode == 77
