"""``tidewheel copy``: what it says, and how it ends."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project, on_terminal, wait_until
from tidewheel import Tidewheel


@pytest.fixture
def other(project: Project) -> str:
    return f"sqlite:///{(project.directory / 'other.db').as_posix()}"


@pytest.fixture
def jobs(within: Within) -> None:
    async def fill(app: Tidewheel) -> None:
        await app.enqueue_many("mail", [{}] * 3)
        await app.cancel((await app.enqueue("reports", {})).id)
        await app.pause("mail")

    within(fill)


@pytest.mark.usefixtures("jobs")
def test_what_was_copied_is_said(run: Run, project: Project, other: str) -> None:
    """How many, that it was verified, and what comes next; a second time there is nothing to do."""
    first = run("copy", project.url, other)
    assert first.code == 0, first.errors
    assert first.lines[:2] == [
        f"copied 4 jobs from {project.url} to {other}",
        "verified 4 jobs in both: 1 cancelled, 3 pending",
    ]
    assert first.lines[2].startswith("digest ")
    assert first.lines[3:] == ["paused there, too: mail"]
    assert "start no worker on FROM" in first.errors
    again = run("copy", project.url, other, "--json").json
    assert again == {
        "jobs": 4, "written": 0, "states": {"cancelled": 1, "pending": 3}, "paused_topics": ["mail"],
        "schedules": [], "digest": first.lines[2].removeprefix("digest "),
    }  # fmt: skip
    mine, theirs = (run("jobs", "list", "--json", "--url", url).json for url in (project.url, other))
    assert mine == theirs


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(("here", "word"), [(0, "FROM"), (1, "TO")])
def test_a_server_is_no_store_to_copy(run: Run, project: Project, here: int, word: str) -> None:
    """Told before anybody is asked: nobody has to stop workers there to learn that it cannot be done."""
    urls = [project.url, project.url]
    urls[here] = "http://127.0.0.1:1"
    answer = run("copy", *urls)
    assert answer.code == 2
    assert f"{word} is http://127.0.0.1:1, a server" in answer.errors


@pytest.mark.usefixtures("jobs")
def test_a_target_that_is_in_use_is_refused(run: Run, project: Project, other: str) -> None:
    """With an exit code, and what to do instead."""
    run("enqueue", "mine", "--url", other)
    answer = run("copy", project.url, other)
    assert answer.code == 1
    assert "is not empty" in answer.errors
    assert len(run("jobs", "list", "-q", "--url", other).lines) == 1


def test_a_source_that_is_not_there_leaves_no_files(run: Run, project: Project, other: str) -> None:
    """A typing error is no empty copy."""
    answer = run("copy", "sqlite:///typo.db", other)
    assert (answer.code, list(project.directory.glob("*.db"))) == (1, [])
    assert "typo.db to copy from" in answer.errors


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_file_under_two_names_is_not_even_opened(
    run: Run, project: Project, other: str, link: Callable[[Path, Path], None]
) -> None:
    """Each name of a hard link would have a log of its own beside it, which ruins the database."""
    link(project.directory / "jobs.db", project.directory / "other.db")
    answer = run("copy", project.url, other)
    assert answer.code == 2
    assert "FROM and TO are the same file" in answer.errors
    assert not list(project.directory.glob("other.db-*"))
    (project.directory / "other.db").unlink()
    assert len(run("jobs", "list", "-q", "--url", project.url).lines) == 4


def test_memory_is_no_place_to_copy_to(run: Run, project: Project) -> None:
    """It would be gone with the command."""
    assert run("copy", project.url, "memory://").code == 2
    assert "TO is memory://, which lives in one process alone" in run("copy", project.url, "memory://").errors


def test_a_source_of_a_newer_tidewheel_is_refused(run: Run, project: Project, other: str, jobs: None) -> None:
    """What is not understood is not copied."""
    with sqlite3.connect(project.directory / "jobs.db") as connection:
        connection.execute("INSERT INTO tidewheel_schema VALUES (9999, 'later', 0)")
    connection.close()
    answer = run("copy", project.url, other)
    assert answer.code == 1
    assert "upgrade Tidewheel" in answer.errors
    assert not (project.directory / "other.db").exists()


def test_a_source_without_our_tables_leaves_no_target(run: Run, project: Project, other: str) -> None:
    """Some other program's database, say: it is left as it is, and nothing is made for it."""
    path = project.directory / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (n INTEGER)")
    connection.close()
    answer = run("copy", f"sqlite:///{path.as_posix()}", other)
    assert answer.code == 1
    assert "has no tables of this version" in answer.errors
    assert not (project.directory / "other.db").exists()


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_a_terminal_shows_a_bar_and_ctrl_c_stops_between_two_batches(
    project: Project, within: Within, other: str
) -> None:
    """Stopped on request, half a copy is there, and the same command goes on."""

    async def fill(app: Tidewheel) -> None:
        for _ in range(3):
            await app.enqueue_many("mail", [{"text": "x" * 100}] * 10_000)

    within(fill)
    with on_terminal(project, "copy", project.url, other) as terminal:
        terminal.wait_for("copying")
        path = project.directory / "other.db"
        wait_until(lambda: _jobs(path) > 0)
        terminal.signal()
        assert terminal.wait() == 130
        assert "the same command goes on" in terminal.text
    assert 0 < _jobs(path) < 30_000
    with project.start("copy", project.url, other) as process:
        assert process.wait() == 0
    assert "verified 30,000 jobs" in process.text


def _jobs(path: Path) -> int:
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT count(*) FROM tidewheel_jobs").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()
