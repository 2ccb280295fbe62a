"""``tidewheel worker`` as a real process: options, logs, signals."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project, on_terminal, wait_until

STARTED = "Ctrl-C stops"

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")


@needs_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_runs_jobs_until_told_to_stop(project: Project, run: Run, number: int) -> None:
    """One line at the start, one at the end with what was done, exit code 0."""
    for user in ("42", "busy", "nobody"):
        run("enqueue", "send_digest", json.dumps({"user_id": user}), "--app", "jobs:app")
    with project.start("worker", "jobs:app", "--name", "ada") as process:
        process.wait_for(STARTED)
        assert (
            "worker ada on sqlite:///jobs.db, 3 tasks, topics send_digest, slow, stepwise, wait, "
            "concurrency 10;" in process.text
        )
        wait_until(lambda: run("stats", "--json", "--app", "jobs:app").json["completed"] == 2)
        process.signal(number)
        assert process.wait() == 0
        assert process.text.splitlines()[-1].endswith(": ran 4, completed 2, retried 1, failed 1")


@needs_signals
def test_running_jobs_may_finish(project: Project, run: Run) -> None:
    """The first signal waits for handlers, and their results count."""
    job_id = run("enqueue", "wait", '{"seconds": 0.25}', "--app", "jobs:app").out.strip()
    with project.start("worker", "jobs:app") as process:
        process.wait_for(STARTED)
        _wait_until_running(run, job_id)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
    assert run("jobs", "show", job_id, "--json", "--app", "jobs:app").json["state"] == "completed"


@needs_signals
def test_a_second_signal_gives_jobs_back(project: Project, run: Run) -> None:
    """Who is in a hurry loses no job and no attempt."""
    job_id = run("enqueue", "wait", '{"seconds": 60}', "--app", "jobs:app").out.strip()
    with project.start("worker", "jobs:app") as process:
        process.wait_for(STARTED)
        _wait_until_running(run, job_id)
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGINT)
        assert process.wait() == 0
        assert "released 1" in process.text
    job = run("jobs", "show", job_id, "--json", "--app", "jobs:app").json
    assert (job["state"], job["attempt"]) == ("pending", 0)


def _wait_until_running(run: Run, job_id: str) -> None:
    wait_until(lambda: run("jobs", "show", job_id, "--json", "--app", "jobs:app").json["state"] == "running")


@needs_signals
def test_every_option_reaches_the_worker(project: Project, run: Run) -> None:
    """Lease, topics, limits and the rest arrive where they count."""
    slow = run("enqueue", "wait", '{"seconds": 60}', "--app", "jobs:app").out.strip()
    waiting = run("enqueue", "wait", '{"seconds": 60}', "--app", "jobs:app").out.strip()
    other = run("enqueue", "send_digest", '{"user_id": "1"}', "--app", "jobs:app").out.strip()
    with project.start(
        "worker", "jobs:app", "--concurrency", "3", "--topics", "slow,wait", "--topic-concurrency", "wait=1",
        "--topic-concurrency", "slow=1", "--lease", "5m", "--prefetch", "0", "--name", "grace",
    ) as process:  # fmt: skip
        process.wait_for("worker grace on .*, topics slow, wait, concurrency 3")
        _wait_until_running(run, slow)
        job = run("jobs", "show", slow, "--json", "--app", "jobs:app").json
        assert job["worker"] == "grace"
        leased = _moment(job["leased_until"]) - _moment(job["claimed_at"])
        assert leased.total_seconds() == pytest.approx(300, abs=1)
        states = {item["id"]: item["state"] for item in _jobs(run)}
        assert (states[waiting], states[other]) == ("pending", "pending")


def _moment(text: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(text)


def _jobs(run: Run) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = run("jobs", "list", "--json", "--app", "jobs:app").json["items"]
    return items


@needs_signals
def test_topics_can_be_left_out(project: Project, run: Run) -> None:
    """--exclude-topics leaves those jobs to other workers."""
    left = run("enqueue", "wait", '{"seconds": 0}', "--app", "jobs:app").out.strip()
    with project.start(
        "worker", "jobs:app", "--exclude-topics", "slow", "--exclude-topics", "wait"
    ) as process:
        process.wait_for("topics send_digest, stepwise,")
        answer = run("enqueue", "send_digest", '{"user_id": "1"}', "--wait", "30", "--app", "jobs:app")
        assert answer.code == 0
    assert run("jobs", "show", left, "--json", "--app", "jobs:app").json["state"] == "pending"


@needs_signals
def test_logs_can_be_json(project: Project, run: Run) -> None:
    """Every line is an object; a handler's line carries its job."""
    job_id = run("enqueue", "send_digest", '{"user_id": "42"}', "--app", "jobs:app").out.strip()
    with project.start("worker", "jobs:app", "--log-json") as process:
        process.wait_for("a line from the handler")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        lines = [json.loads(line) for line in process.seen]
    (told,) = [line for line in lines if line["message"] == "a line from the handler"]
    assert (told["level"], told["logger"], told["job_id"], told["attempt"]) == (
        "info",
        "tidewheel.job",
        job_id,
        1,
    )
    assert set(told) >= {"time", "task", "topic", "tenant", "correlation_id"}


@needs_signals
def test_the_log_level_is_respected(project: Project, run: Run) -> None:
    """A quiet worker is quiet from the first line to the last."""
    run("enqueue", "send_digest", '{"user_id": "42"}', "--app", "jobs:app")
    with project.start("worker", "jobs:app", "--log-level", "warning") as process:
        wait_until(lambda: run("stats", "--json", "--app", "jobs:app").json["completed"] == 1)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.text == ""


@needs_signals
def test_a_project_that_sets_up_logging_keeps_it(project: Project) -> None:
    """Its own format stays, unless the command line says otherwise."""
    project.write(
        "own.py",
        "import logging\nlogging.basicConfig(format='OWN %(message)s', level='INFO')\nfrom jobs import app\n",
    )
    for options, expected in (([], "OWN tidewheel "), (["--log-level", "info"], r"info +tidewheel\.cli: ")):
        with project.start("worker", "own:app", *options) as process:
            process.wait_for(f"{expected}.*{STARTED}")
            process.signal(signal.SIGTERM)
            assert process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Missing argument 'MODULE:APP'"),
        (["nosuch:app"], "there is no module 'nosuch'"),
        (["jobs:ap"], "did you mean app?"),
        (["jobs:app", "--topics", "mail,,x"], "a topic's name is empty"),
        (["jobs:app", "--topics", "no topic!"], "topic is 'no topic!'"),
        (["jobs:app", "--topic-concurrency", "slow"], "'slow' is no limit; write topic=number"),
        (["jobs:app", "--topic-concurrency", "slow=0"], "write topic=number"),
        (["jobs:app", "--concurrency", "0"], "0 is not in the range"),
        (["jobs:app", "--lease", "1"], "lease is 1.0"),
        (["jobs:app", "--exclude-topics", "slow,wait,send_digest,stepwise"], "nothing to run"),
        (["jobs:app", "--log-level", "loud"], "'loud' is not one of"),
    ],
)
def test_what_cannot_work_is_refused_at_once(run: Run, arguments: list[str], words: str) -> None:
    """Exit code 2 and one line, before a single job is taken."""
    answer = run("worker", *arguments)
    assert answer.code == 2
    assert words in answer.errors


def test_a_broken_module_is_one_line(run: Run, project: Project) -> None:
    """The worker says what is wrong with the user's code as every command does."""
    project.write("broken.py", "raise RuntimeError('no settings')\n")
    answer = run("worker", "broken:app")
    assert answer.code == 1
    assert (
        answer.errors
        == "error: importing 'broken' failed: RuntimeError: no settings (--traceback shows where)\n"
    )


@pytest.fixture
def locked(project: Project) -> Iterator[sqlite3.Connection]:
    """A store nobody can open: somebody else has locked the file before it was ever used."""
    project.write(
        "patient.py",
        "from tidewheel import Tidewheel\napp = Tidewheel('sqlite:///patient.db?busy_timeout=0.05')\n"
        "@app.task\ndef work() -> None: ...\n",
    )
    connection = sqlite3.connect(project.directory / "patient.db", isolation_level=None)
    connection.execute("CREATE TABLE theirs (x)")
    connection.execute("BEGIN EXCLUSIVE")
    yield connection
    connection.close()


@needs_signals
def test_a_store_that_is_away_is_waited_for(project: Project, locked: sqlite3.Connection) -> None:
    """It says so once, goes on trying, and works as soon as the store is there."""
    with project.start("worker", "patient:app") as process:
        process.wait_for("the store is not available, trying until it is: .*patient.db stayed locked")
        locked.execute("ROLLBACK")
        process.wait_for("the store is there, after [0-9]+ failed tries")
        process.wait_for(STARTED)
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        assert process.text.count("trying until it is") == 1


@needs_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_worker_that_waits_for_its_store_can_be_stopped(
    project: Project, locked: sqlite3.Connection, number: int
) -> None:
    """As any other: one signal, exit code 0."""
    with project.start("worker", "patient:app") as process:
        process.wait_for("trying until it is")
        process.signal(number)
        assert process.wait() == 0
        assert process.seen[-1].endswith("stopped before the store was there")


def test_a_store_that_can_never_be_opened_is_not_waited_for(project: Project, run: Run) -> None:
    """A wrong URL or a newer schema does not go away by itself."""
    project.write(
        "wrong.py", "from tidewheel import Tidewheel\napp = Tidewheel('sqlite:///nowhere/jobs.db')\n"
    )
    answer = run("worker", "wrong:app")
    assert answer.code == 2
    assert "does not exist; create it first" in answer.errors
    run("migrate", "--app", "jobs:app")
    with sqlite3.connect(project.directory / "jobs.db") as connection:
        connection.execute(
            "INSERT INTO tidewheel_schema (version, name, applied_at) VALUES (999, 'later', 0)"
        )
    connection.close()
    answer = run("worker", "jobs:app")
    assert answer.code == 1
    assert "has schema version 999" in answer.errors


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_ctrl_c_on_a_terminal_stops_gracefully(project: Project) -> None:
    """A worker in the foreground ends with its summary, in colour."""
    with on_terminal(project, "worker", "jobs:app", columns=200) as terminal:
        terminal.wait_for(STARTED)
        terminal.signal()
        assert terminal.wait() == 0
        assert "ran 0, completed 0, retried 0, failed 0" in terminal.text
        assert "\x1b[32minfo" in terminal.raw
