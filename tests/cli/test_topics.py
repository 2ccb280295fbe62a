"""``tidewheel topics``: counts and pauses."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project, on_terminal
from tidewheel import Tidewheel
from tidewheel.core.model import ClaimRequest, Lane


@pytest.fixture(autouse=True)
def jobs(project: Project, within: Within) -> None:
    async def fill(app: Tidewheel) -> None:
        await app.enqueue_many("mail", [{}] * 3)
        await app.enqueue("reports", {})

    within(fill)


def test_the_bare_command_lists(run: Run, project: Project) -> None:
    """``tidewheel topics`` and ``tidewheel topics list`` are the same, wherever the options stand."""
    bare = run("topics", "--url", project.url)
    assert bare.lines == [
        "TOPIC\tPENDING\tRUNNING\tCOMPLETED\tFAILED\tCANCELLED",
        "mail\t3\t0\t0\t0\t0",
        "reports\t1\t0\t0\t0\t0",
    ]
    assert run("topics", "list", "--url", project.url).out == bare.out
    assert run("topics", "--url", project.url, "list").out == bare.out


def test_json_is_a_list(run: Run, project: Project) -> None:
    """One object for each topic."""
    first, _ = run("topics", "--json", "--url", project.url).json
    assert first == {
        "topic": "mail", "pending": 3, "running": 0, "completed": 0, "failed": 0, "cancelled": 0,
        "total": 3, "paused": False, "paused_until": None,
    }  # fmt: skip
    assert run("topics", "list", "--json", "--url", project.url).json[0] == first


def test_pause_and_resume(run: Run, project: Project) -> None:
    """A pause is seen in the list until it is taken back."""
    assert run("topics", "pause", "mail", "reports", "--url", project.url).lines == [
        "paused mail",
        "paused reports",
    ]
    assert run("topics", "--url", project.url).lines[1].endswith("\tpaused")
    first, _ = run("topics", "--json", "--url", project.url).json
    assert (first["paused"], first["paused_until"]) == (True, None)
    assert run("topics", "resume", "mail", "reports", "--url", project.url).lines == [
        "resumed mail",
        "resumed reports",
    ]
    assert not run("topics", "--json", "--url", project.url).json[0]["paused"]


def test_a_pause_can_end_by_itself(run: Run, project: Project) -> None:
    """--for says how long."""
    assert run("topics", "pause", "mail", "--for", "5m", "--url", project.url).out == "paused mail for 5m\n"
    first, _ = run("topics", "--json", "--url", project.url).json
    left = datetime.fromisoformat(first["paused_until"]) - datetime.now(UTC)
    assert 0 < left.total_seconds() <= 300


def test_a_paused_topic_is_left_alone_by_workers(run: Run, project: Project) -> None:
    """What the command says is what the worker does."""
    run("enqueue", "send_digest", '{"user_id": "1"}', "--app", "jobs:app")
    run("topics", "pause", "send_digest", "--app", "jobs:app")
    with project.start("worker", "jobs:app") as worker:
        worker.wait_for("Ctrl-C stops")
        job_id = run("enqueue", "wait", '{"seconds": 0}', "--app", "jobs:app", "--wait", "30").lines[0]
        assert run("jobs", "show", job_id, "--json", "--app", "jobs:app").json["state"] == "completed"
        (waiting,) = run("jobs", "list", "--topic", "send_digest", "--json", "--app", "jobs:app").json[
            "items"
        ]
        assert waiting["state"] == "pending"
        run("topics", "resume", "send_digest", "--app", "jobs:app")
        worker.wait_for("a line from the handler")


@pytest.mark.parametrize("arguments", [["pause"], ["resume"], ["pause", "mail", "--for", "a while"]])
def test_unclear_pauses_are_usage_errors(run: Run, project: Project, arguments: list[str]) -> None:
    """A topic must be named, and a duration be one."""
    assert run("topics", *arguments, "--url", project.url).code == 2


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_table(project: Project, run: Run) -> None:
    """Aligned columns, pauses in words."""
    run("topics", "pause", "mail", "--for", "10m", "--url", project.url)
    with on_terminal(project, "topics", "--url", project.url) as terminal:
        assert terminal.wait() == 0
        assert "paused for" in terminal.text
        assert "\t" not in terminal.text


def test_no_topics_is_an_answer(run: Run) -> None:
    """A new queue is empty, not broken."""
    run("migrate", "--url", "sqlite:///new.db")
    assert run("topics", "--json", "--url", "sqlite:///new.db").json == []


def test_purge_empties_topics_and_nothing_else(run: Run, project: Project, within: Within) -> None:
    """Jobs in every state but running; each topic once; pauses stay."""

    async def cancel(app: Tidewheel) -> None:
        await app.cancel((await app.enqueue("mail", {})).id)
        await app.pause("mail")

    within(cancel)
    answer = run("topics", "purge", "mail", "mail", "--yes", "--url", project.url)
    assert (answer.code, answer.lines) == (0, ["purged mail: deleted 4 jobs"])
    assert run("topics", "--url", project.url).lines[1:] == [
        "mail\t0\t0\t0\t0\t0\tpaused",
        "reports\t1\t0\t0\t0\t0\t",
    ]
    again = run("topics", "purge", "mail", "reports", "-y", "--json", "--url", project.url)
    assert again.json == [
        {"topic": "mail", "deleted": 0, "running": 0},
        {"topic": "reports", "deleted": 1, "running": 0},
    ]


def test_purge_leaves_running_jobs_alone_and_says_so(run: Run, project: Project, within: Within) -> None:
    """Somebody works on them; the exit code tells that the topic is not empty."""

    async def claim(app: Tidewheel) -> None:
        await app.store.claim(ClaimRequest("anna", (Lane("mail"),), 1, 600.0))

    within(claim)
    answer = run("topics", "purge", "mail", "--yes", "--url", project.url)
    assert (answer.code, answer.lines) == (1, ["purged mail: deleted 2 jobs, 1 still running"])


def test_purge_asks_and_refuses_where_it_cannot(run: Run, project: Project) -> None:
    """A pipe is no consent, and a topic that is not there is a typing error."""
    answer = run("topics", "purge", "mail", "--url", project.url)
    assert answer.code == 2
    assert "this would delete 3 jobs of mail" in answer.errors
    unknown = run("topics", "purge", "mail", "malo", "--yes", "--url", project.url)
    assert unknown.code == 2
    assert "there is no topic 'malo' (did you mean mail?); nothing was deleted" in unknown.errors
    assert run("topics", "--url", project.url).lines[1] == "mail\t3\t0\t0\t0\t0"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_purge_on_a_terminal_does_what_is_answered(run: Run, project: Project) -> None:
    """No is the default."""
    for typed, code, left in (("\n", 1, "mail\t3"), ("y\n", 0, "reports\t1")):
        with on_terminal(project, "topics", "purge", "mail", "--url", project.url) as terminal:
            terminal.wait_for(r"delete 3 jobs of mail\?")
            terminal.type(typed)
            assert terminal.wait() == code
        assert run("topics", "--url", project.url).lines[1].startswith(left)
