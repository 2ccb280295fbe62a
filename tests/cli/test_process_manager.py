"""``tidewheel worker --processes``: real processes, real signals."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Process, Project, wait_until
from tidewheel.cli import child_process, process_manager

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")

APP = """
import asyncio, os, subprocess, sys
from tidewheel import Tidewheel

app = Tidewheel("sqlite:///jobs.db", lease=2)


@app.task
async def wait(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()


@app.task
async def wait_to_be_told() -> None:
    while not os.path.exists("go on"):
        await asyncio.sleep(0.01)


@app.task(max_attempts=1)
async def leave(code: int) -> None:
    os._exit(code)


@app.task
def read_stdin() -> str:
    return subprocess.run([sys.executable, "-c", "print(input())"], text=True, stderr=-1).stderr
"""


@pytest.fixture
def several(project: Project) -> Project:
    project.write("several.py", APP)
    return project


@contextmanager
def two(project: Project, *arguments: str) -> Iterator[Process]:
    """Two workers under one parent, both at work."""
    with project.start("worker", "several:app", "--processes", "2", "--name", "ada", *arguments) as process:
        for _ in range(2):
            process.wait_for(r"worker ada-\d on .*Ctrl-C stops$")
        yield process


def workers(run: Run) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in run("workers", "--json", "--app", "several:app").json}


def pids(run: Run) -> dict[str, int]:
    """The two processes, once both are listed."""
    wait_until(lambda: set(workers(run)) == {"ada-1", "ada-2"})
    return {name: one["pid"] for name, one in workers(run).items()}


def job(run: Run, job_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = run("jobs", "show", job_id, "--json", "--app", "several:app").json
    return answer


def enqueue(run: Run, task: str, **payload: Any) -> str:
    return run("enqueue", task, json.dumps(payload), "--app", "several:app").out.strip()


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan may be left unreaped by whoever adopted it; then it is dead all the same.
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def test_each_process_is_a_worker_with_a_name_of_its_own(several: Project, run: Run) -> None:
    """They share the work, are listed while they live, and end with the parent and exit code 0."""
    with two(several, "--concurrency", "1") as process:
        first = pids(run)
        assert len({*first.values(), process.popen.pid}) == 3
        ids = [enqueue(run, "wait", seconds=0.2) for _ in range(4)]
        wait_until(lambda: all(job(run, job_id)["state"] == "completed" for job_id in ids))
        assert {job(run, job_id)["result"] for job_id in ids} == set(first.values())
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert len(re.findall(r"worker ada-[12] stopped after .*: ran", process.text)) == 2
        assert process.seen[-1].endswith("all worker processes have stopped")
        assert workers(run) == {}


def test_a_killed_process_is_started_again(several: Project, run: Run) -> None:
    """The parent says what happened to it, and the other one is left alone."""
    with two(several) as process:
        before = pids(run)
        os.kill(before["ada-2"], signal.SIGKILL)
        process.wait_for(
            rf"worker ada-2 \(pid {before['ada-2']}\) was killed by SIGKILL after .*; it starts again in"
        )
        again = int(process.wait_for(r"worker ada-2 starts again: pid (\d+)")[1])
        process.wait_for("worker ada-2 on .*Ctrl-C stops")
        wait_until(lambda: workers(run)["ada-2"]["pid"] == again)
        assert workers(run)["ada-1"]["pid"] == before["ada-1"]
        process.signal(signal.SIGINT)
        assert process.wait() == 0


def test_a_job_that_ends_its_process_ends_no_other(several: Project, run: Run) -> None:
    """Its exit code is told, it fails after its last attempt, and both processes are there again."""
    with two(several) as process:
        poison = enqueue(run, "leave", code=7)
        process.wait_for(r"worker ada-\d \(pid \d+\) ended with exit code 7 after")
        process.wait_for(r"worker ada-\d on .*Ctrl-C stops")
        wait_until(lambda: job(run, poison)["state"] == "failed")
        assert job(run, poison)["error"]["code"] == "worker_lost"
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_one_that_was_stopped_from_outside_is_replaced(several: Project, run: Run) -> None:
    """Whoever wants fewer workers stops the parent; SIGTERM to one of them renews it."""
    with two(several) as process:
        before = pids(run)
        os.kill(before["ada-1"], signal.SIGTERM)
        process.wait_for("worker ada-1 stopped after")
        process.wait_for(r"worker ada-1 .* ended with exit code 0 .*; it starts again in")
        process.wait_for("worker ada-1 on .*Ctrl-C stops")
        assert lives(before["ada-2"])


def test_crashing_at_once_again_and_again_does_not_spin(several: Project) -> None:
    """The pauses grow."""
    several.write("crashing.py", "import os\nos._exit(3)\n")
    with several.start("worker", "crashing:app", "--processes", "2") as process:
        pauses = [
            _seconds(process.wait_for(r"worker process 1 .* exit code 3 .* starts again in (.+)$")[1])
            for _ in range(5)
        ]
        assert 0.05 <= pauses[0] <= 0.1
        # Each is twice the one before, less up to half at random.
        assert pauses[0] < pauses[2] < pauses[4] <= 1.6
        process.signal(signal.SIGTERM)
        assert process.wait() in {0, 3}  # 3: one was just crashing


def _seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) / (1000 if unit == "ms" else 1)


def test_a_long_life_makes_up_for_earlier_crashes(several: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies once a day is back at once, however often it has died."""
    several.write("crashing.py", "import os\nos._exit(3)\n")
    monkeypatch.setattr(sys, "argv", ["tidewheel", "worker", "crashing:app"])
    monkeypatch.setattr(process_manager, "MIN_HEALTHY_SECONDS", 0.0)  # however short, its life was long
    member = process_manager.WorkerMember(1, None)
    deaths: list[float] = []
    while len(deaths) < 5:
        member.check()
        if member.child is not None:
            member.child.wait()
            member.check()
            deaths.append(member._start_at - time.monotonic())
    assert max(deaths) <= 0.1


def test_a_process_that_cannot_be_started_is_tried_again(
    several: Project, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No room, or no interpreter while an environment is replaced: the fleet goes on, and nothing leaks."""
    monkeypatch.chdir(several.directory)
    monkeypatch.setattr(sys, "argv", ["tidewheel", "worker", "several:app"])
    member = process_manager.WorkerMember(1, None)
    free = _free_descriptor()
    with monkeypatch.context() as replaced:
        replaced.setattr(sys, "executable", str(several.directory / "missing"))
        for failures in range(1, 4):
            member._start_at = 0.0
            before = time.monotonic()
            member.check()
            after = time.monotonic()
            assert member.child is None
            assert member.fatal_exit_code is None
            assert caplog.text.count("worker process 1 could not be started: ") == failures
        assert before <= member._start_at <= after + 0.4
    assert _free_descriptor() == free
    member._start_at = 0.0
    member.check()
    assert member.child is not None
    member.child.kill()
    member.child.wait_and_close()


def _free_descriptor() -> int:
    number = os.dup(2)
    os.close(number)
    return number


def test_a_parent_of_very_many_hears_that_one_works(
    several: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by a descriptor beyond the 1,024 that ``select`` knows; once it has heard, that is closed."""
    resource = pytest.importorskip("resource")
    fcntl = pytest.importorskip("fcntl")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip(f"this process may have {hard} descriptors; it takes 2,048")
    monkeypatch.chdir(several.directory)
    child = child_process.ChildProcess(["worker", "--supervised", "--member", "1", "several:app"])
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        assert child._ready is not None
        beyond = fcntl.fcntl(child._ready, fcntl.F_DUPFD_CLOEXEC, 1024)
        os.close(child._ready)
        child._ready = beyond
        assert not child.is_ready()
        wait_until(child.is_ready)
        assert child.is_ready()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(beyond)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        child.request_stop()
        child.wait_and_close()


def test_the_first_signal_lets_jobs_finish(several: Project, run: Run) -> None:
    """In every process; their results count."""
    with two(several, "--concurrency", "1") as process:
        ids = [enqueue(run, "wait_to_be_told") for _ in range(2)]
        wait_until(lambda: all(job(run, job_id)["state"] == "running" for job_id in ids))
        process.signal(signal.SIGTERM)
        several.write("go on", "")
        assert process.wait() == 0
    assert [job(run, job_id)["state"] for job_id in ids] == ["completed"] * 2


def test_a_second_signal_gives_jobs_back(several: Project, run: Run) -> None:
    """At once, and uncounted."""
    with two(several) as process:
        long = enqueue(run, "wait", seconds=60)
        wait_until(lambda: job(run, long)["state"] == "running")
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGINT)  # another one: two of a kind may be delivered as one
        assert process.wait() == 0
        assert "released 1" in process.text
    assert (job(run, long)["state"], job(run, long)["attempt"]) == ("pending", 0)


def test_a_signal_to_all_processes_at_once_counts_once(several: Project, run: Run) -> None:
    """A service manager signals parent and children alike; the parent's own request is no second one."""
    with two(several) as process:
        children = pids(run)
        short = enqueue(run, "wait_to_be_told")
        wait_until(lambda: job(run, short)["state"] == "running")
        for pid in (process.popen.pid, *children.values()):
            os.kill(pid, signal.SIGTERM)
        several.write("go on", "")
        assert process.wait() == 0
        assert "released" not in process.text
    assert job(run, short)["state"] == "completed"


def test_ctrl_c_reaches_the_parent_alone(several: Project, run: Run) -> None:
    """The children are in process groups of their own, so a terminal cannot interrupt them."""
    with two(several) as process:
        groups = {os.getpgid(pid) for pid in pids(run).values()}
        assert len(groups | {os.getpgid(process.popen.pid)}) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nosuch:app"], 2, "there is no module 'nosuch'"),
        (["several:nothing"], 2, "has no attribute 'nothing'"),
        (["broken:app"], 1, "importing 'broken' failed: RuntimeError: no settings"),
        (["several:app", "--lease", "1"], 2, "lease is 1.0"),
        (["several:app", "--exclude-topics", "leave,read_stdin,wait,wait_to_be_told"], 2, "nothing to run"),
        (["several:app", "--name", "x" * 200], 2, "worker name has 202 characters; the limit is 200"),
        (["memory:app"], 2, "memory:// lives inside one process, and --processes is 3"),
    ],
)
def test_what_can_never_start_is_not_started_again(
    several: Project, arguments: list[str], code: int, words: str
) -> None:
    """Said once, in one line, with the exit code a single worker would have had."""
    several.write("broken.py", "raise RuntimeError('no settings')\n")
    several.write("memory.py", APP.replace("sqlite:///jobs.db", "memory://"))
    with several.start("worker", *arguments, "--processes", "3") as process:
        assert process.wait() == code
        assert len([line for line in process.seen if line.startswith("error: ") and words in line]) == 1
        assert "starts again" not in process.text


def test_a_broken_deployment_is_waited_for(several: Project, run: Run) -> None:
    """Once a worker has run, one that cannot start is tried until it can: files may just be changing."""
    with two(several) as process:
        victim = pids(run)["ada-1"]
        several.write("several.py", "this is no Python\n")
        os.kill(victim, signal.SIGKILL)
        process.wait_for("error: importing 'several' failed: SyntaxError")
        process.wait_for(r"worker ada-1 \(pid \d+\) could not start after .*; it starts again in")
        several.write("several.py", APP)
        process.wait_for("worker ada-1 on .*Ctrl-C stops")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_the_workers_end_when_the_parent_is_killed(several: Project, run: Run) -> None:
    """No orphans go on taking jobs behind everybody's back."""
    with two(several) as process:
        children = pids(run)
        process.popen.kill()
        wait_until(lambda: not any(lives(pid) for pid in children.values()))
        assert workers(run) == {}, "they left in good order"


def test_programs_that_handlers_start_do_not_hear_the_parent(several: Project, run: Run) -> None:
    """Their standard input is empty; a program that reads it must not swallow the request to stop."""
    with two(several) as process:
        answer = run("enqueue", "read_stdin", "--wait", "30", "--app", "several:app")
        assert "EOFError" in answer.out
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_reload_starts_all_of_them_anew(several: Project) -> None:
    """Both options at once: a change renews every process."""
    with several.start("worker", "several:app", "--processes", "2", "--reload", "--name", "ada") as process:
        for _ in range(2):
            process.wait_for(r"worker ada-\d on .*topics leave, read_stdin, wait, .*Ctrl-C stops$")
        several.write("several.py", APP.replace("leave", "depart"))
        process.wait_for("reload: .* starting anew")
        for _ in range(2):
            process.wait_for(r"worker ada-\d on .*topics depart, read_stdin, wait, .*Ctrl-C stops$")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_one_process_has_no_parent(several: Project, run: Run) -> None:
    """``--processes 1`` is a worker like any other."""
    with several.start("worker", "several:app", "--processes", "1", "--name", "ada") as process:
        process.wait_for("worker ada on .*Ctrl-C stops")
        wait_until(lambda: "ada" in workers(run))
        assert workers(run)["ada"]["pid"] == process.popen.pid
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


@pytest.mark.parametrize("number", ["0", "1001", "two"])
def test_a_number_of_processes_that_makes_no_sense_is_refused(run: Run, number: str) -> None:
    """Exit code 2, before anything is started."""
    answer = run("worker", "jobs:app", "--processes", number)
    assert answer.code == 2
    assert "--processes" in answer.errors
