"""``tidewheel worker --reload``: real files, real processes."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cli.processes import Project, wait_until
from tidewheel.cli.reload import SourceFiles, project_roots

APP = """
from tidewheel import Tidewheel
import helper
app = Tidewheel("sqlite:///jobs.db")

@app.task
def {task}() -> str:
    return helper.ANSWER
"""

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")


@pytest.fixture
def reloading(project: Project) -> Project:
    project.write("helper.py", "ANSWER = 'one'\n")
    project.write("live.py", APP.format(task="first"))
    return project


@needs_signals
def test_a_change_starts_the_worker_anew(reloading: Project) -> None:
    """The new code runs, the old worker ends gracefully, whichever file changed."""
    with reloading.start("worker", "live:app", "--reload", "--name", "ada") as process:
        process.wait_for("reload: watching .py files in ")
        process.wait_for("topic first, .*Ctrl-C stops")
        reloading.write("live.py", APP.format(task="other"))
        process.wait_for(r"reload: live\.py changed: starting anew")
        process.wait_for("worker ada stopped after")
        process.wait_for("topic other, .*Ctrl-C stops")
        with reloading.start("enqueue", "other", "--wait", "30", "--url", reloading.url) as enqueue:
            assert enqueue.wait() == 0
            assert enqueue.seen[1] == '"one"'
        reloading.write("helper.py", "ANSWER = 'two'\n")  # of the same length, perhaps in the same second
        process.wait_for(r"reload: helper\.py changed")
        process.wait_for("Ctrl-C stops")
        with reloading.start("enqueue", "other", "--wait", "30", "--url", reloading.url) as enqueue:
            assert enqueue.wait() == 0
            assert enqueue.seen[1] == '"two"'
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.seen[-1].endswith("ran 1, completed 1, retried 0, failed 0")


SLOW = """
import asyncio, pathlib
from tidewheel import Context, Tidewheel
app = Tidewheel("sqlite:///jobs.db")

@app.task(max_attempts=1, timeout=None)
async def slow(ctx: Context) -> int:
    pathlib.Path("runs").open("a").write("x")
    while not pathlib.Path("go on").exists():
        await asyncio.sleep(0.02)
    return ctx.attempt
"""


def at_once(project: Project) -> dict[str, str]:
    """An environment in which a reload gives jobs no time to finish; by hand they would take seconds."""
    project.write("sitecustomize.py", "import tidewheel.cli.reload as it\nit.GRACE_SECONDS = 0.1\n")
    return {"PYTHONPATH": str(project.directory)}


@needs_signals
def test_a_running_job_is_given_back_uncounted(project: Project) -> None:
    """A file that is put in the place of another is a change like any; no attempt is lost by it."""
    project.write("live.py", SLOW)
    with project.start("worker", "live:app", "--reload", "--processes", "2", **at_once(project)) as process:
        process.wait_for("Ctrl-C stops")
        with project.start("enqueue", "slow", "--app", "live:app") as enqueue:
            assert enqueue.wait() == 0
        runs = project.directory / "runs"
        wait_until(lambda: runs.exists() and runs.read_text() == "x")
        # As editors save: written beside it, then renamed, with the old time of change.
        new = project.write("live.py~", SLOW)
        old = os.stat(project.directory / "live.py")
        os.utime(new, ns=(old.st_atime_ns, old.st_mtime_ns))
        new.replace(project.directory / "live.py")
        process.wait_for(r"reload: live\.py changed: starting anew")
        wait_until(lambda: runs.read_text() == "xx")
        project.write("go on", "")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    with project.start("jobs", "show", enqueue.seen[0], "--url", project.url, "--json") as show:
        assert show.wait() == 0
        found = json.loads(show.text)
        assert (found["state"], found["attempt"], found["result"]) == ("completed", 1, 1)


@needs_signals
def test_who_is_asked_to_stop_during_a_reload_starts_nothing_anew(project: Project) -> None:
    """And the running job has the time to finish that it has without a reload."""
    project.write("live.py", SLOW)
    with project.start("worker", "live:app", "--reload") as process:
        process.wait_for("Ctrl-C stops")
        with project.start("enqueue", "slow", "--app", "live:app") as enqueue:
            assert enqueue.wait() == 0
        wait_until((project.directory / "runs").exists)
        project.write("live.py", SLOW + "# changed")
        process.wait_for("starting anew")
        process.signal(signal.SIGTERM)
        project.write("go on", "")
        assert process.wait() == 0
    assert (project.directory / "runs").read_text() == "x"
    assert sum("Ctrl-C stops" in line for line in process.seen) == 1
    assert process.seen[-1].endswith("ran 1, completed 1, retried 0, failed 0")


@needs_signals
def test_a_mistake_waits_for_its_correction(reloading: Project) -> None:
    """A syntax error ends the worker, not the watch."""
    reloading.write("live.py", "this is no Python\n")
    with reloading.start("worker", "--reload", "live:app") as process:
        process.wait_for("error: importing 'live' failed: SyntaxError")
        process.wait_for("exit code 1; it starts again when a file changes")
        reloading.write("live.py", APP.format(task="mended"))
        process.wait_for("topic mended, .*Ctrl-C stops")
        process.signal(signal.SIGINT)
        assert process.wait() == 0


@needs_signals
def test_a_stop_while_nothing_runs_ends_with_the_last_exit_code(reloading: Project) -> None:
    """Leaving a broken project says that it was broken."""
    reloading.write("live.py", "this is no Python\n")
    with reloading.start("worker", "live:app", "--reload") as process:
        process.wait_for("it starts again when a file changes")
        process.signal(signal.SIGTERM)
        assert process.wait() == 1


@needs_signals
def test_a_killed_parent_takes_its_worker_along(reloading: Project) -> None:
    """No worker of a watch that is gone keeps running old code."""
    pid_file = reloading.directory / "pid"
    code = (
        APP.format(task="first")
        + f"\nimport os, pathlib\npathlib.Path({str(pid_file)!r}).write_text(str(os.getpid()))\n"
    )
    reloading.write("live.py", code)
    with reloading.start("worker", "live:app", "--reload") as process:
        process.wait_for("Ctrl-C stops")
        child = int(pid_file.read_text())
        process.popen.kill()
        process.wait_for("worker .* stopped after")
        wait_until(lambda: not _lives(child))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan may be left unreaped by whoever adopted it; then it is dead all the same.
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def test_new_changed_and_removed_files_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once; files that are no sources, hidden or installed never."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "package"
    package.mkdir()
    files = SourceFiles([tmp_path])
    assert files.next_change() == ""
    module = package / "module.py"
    module.write_text("a")
    assert files.next_change() == os.path.join("package", "module.py")
    assert files.next_change() == ""
    module.write_text("ab")
    assert files.next_change() == os.path.join("package", "module.py")
    os.utime(module, ns=(1, 1))
    assert files.next_change() == os.path.join("package", "module.py")
    module.unlink()
    assert files.next_change() == os.path.join("package", "module.py")
    for unwatched in ("notes.txt", ".git/hook.py", "__pycache__/x.py", "env/lib/thing.py"):
        path = tmp_path / unwatched
        path.parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / "env" / "pyvenv.cfg").touch() if unwatched.startswith("env") else None
        path.write_text("a")
    assert files.next_change() == ""


def test_an_app_outside_the_working_directory_is_watched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package on PYTHONPATH, or a module beside it, belongs to the project."""
    here, there = tmp_path / "here", tmp_path / "there"
    for directory in (here, there / "shop"):
        directory.mkdir(parents=True)
    (there / "shop" / "__init__.py").touch()
    (there / "till.py").touch()
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", [*sys.path, str(there)])
    assert project_roots("shop.jobs:app") == [here, there / "shop"]
    assert project_roots("till:app") == [here, there]
    assert project_roots("surely_not_there:app") == [here]
    assert project_roots(":app") == [here]
