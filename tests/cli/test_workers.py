"""``tidewheel workers``: who is there, for people and for programs."""

from __future__ import annotations

import os
import re
import sqlite3

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project, on_terminal
from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import ClaimRequest, Lane, WorkerRecord


@pytest.fixture
def workers(project: Project, within: Within) -> None:
    """Ada has been at work for an hour and holds 12 jobs, Bob has just started."""

    async def fill(app: Tidewheel) -> None:
        store = app.store
        now = await store.now()
        hour_ago = now - 3600 * MICROSECONDS
        lanes = (Lane("mail", "send"), Lane("reports", "report"), Lane("mail", "digest"))
        await store.heartbeat(
            WorkerRecord(
                name="ada", host="box", pid=11, version="0.1.0", started_at=hour_ago, lanes=lanes,
                more_lanes=4, concurrency=10, running=3, claimed=1200, stuck=2,
                loop_lag_seconds=1.5, ran=12_345, completed=12_300, failed=5, lost=2,
            )
        )  # fmt: skip
        await app.enqueue_many("mail", [{}] * 12)
        assert len((await store.claim(ClaimRequest("ada", (Lane("mail"),), 12, 600))).jobs) == 12
        await store.heartbeat(WorkerRecord(name="bob", host="box", pid=12, version="0.1.0", started_at=now))

    within(fill)


def test_in_a_pipe_it_is_a_line_for_each(run: Run, project: Project, workers: None) -> None:
    """Tab-separated, under a header, times as programs read them."""
    header, ada, bob = (line.split("\t") for line in run("workers", "--url", project.url).lines)
    assert header == [
        "NAME", "SEEN", "RUNNING", "CLAIMED", "STUCK", "LAG", "RAN", "FAILED", "SINCE", "HOST", "PID",
        "VERSION", "TOPICS",
    ]  # fmt: skip
    assert ada[0] == "ada"
    assert ada[2:8] == ["10/10", "2", "2", "1.5", "12345", "5"]
    assert ada[9:] == ["box", "11", "0.1.0", "mail, reports and 4 more"]
    assert bob[0] == "bob"
    assert bob[1].endswith("+00:00")


def test_json_has_everything(run: Run, project: Project, workers: None) -> None:
    """One object for each worker."""
    ada, bob = run("workers", "--json", "--url", project.url).json
    assert ada.pop("started_at") < ada.pop("seen_at")
    assert 0 <= ada.pop("seconds_since_seen") < PATIENCE
    assert ada == {
        "name": "ada", "host": "box", "pid": 11, "version": "0.1.0", "topics": ["mail", "reports"],
        "tasks": ["digest", "report", "send"], "more_lanes": 4, "concurrency": 10, "running": 10,
        "claimed": 2, "stuck": 2, "loop_lag_seconds": 1.5, "ran": 12345, "completed": 12300, "failed": 5,
        "lost": 2, "missing": False, "degraded": True, "polling": False,
    }  # fmt: skip
    assert (bob["name"], bob["topics"], bob["running"], bob["degraded"]) == ("bob", [], 0, False)


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_on_a_terminal_it_is_a_table(project: Project, workers: None) -> None:
    """Readable, and a loop that is late stands out."""
    with on_terminal(project, "workers", "--url", project.url, columns=160) as terminal:
        assert terminal.wait() == 0
        assert "10/10" in terminal.text
        assert "12,345" in terminal.text
        assert "\x1b[33m1.5 s" in terminal.raw
        assert re.search(r"\x1b\[31m *2\x1b", terminal.raw), "so do stuck slots"


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_terminal_of_80_columns_shows_names_and_figures_whole(project: Project, workers: None) -> None:
    """What there is no room for is left out and named, in place of a few letters of everything."""
    with on_terminal(project, "workers", "--url", project.url, columns=80) as terminal:
        assert terminal.wait() == 0
    header, ada, bob, note = terminal.text.splitlines()
    assert header.split()[:8] == ["name", "seen", "running", "claimed", "stuck", "lag", "ran", "failed"]
    assert ada.split()[0] == "ada"
    assert bob.split()[0] == "bob"
    assert " 10/10 " in ada
    assert " 12,345 " in ada
    assert re.fullmatch(r"without (since, )?host, pid, version, for lack of room", note)


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_one_that_vanished_stands_out(project: Project, workers: None) -> None:
    """It says for how long nobody has heard of it."""
    with sqlite3.connect(project.directory / "jobs.db") as connection:
        connection.execute("UPDATE tidewheel_workers SET seen_at = seen_at - 180000000 WHERE name = 'bob'")
    connection.close()
    with on_terminal(project, "workers", "--url", project.url, columns=160) as terminal:
        assert terminal.wait() == 0
        assert "missing for 3m" in terminal.text


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_without_workers_it_says_how_to_start_one(project: Project, run: Run) -> None:
    """An empty table helps nobody."""
    run("migrate", "--url", project.url)
    with on_terminal(project, "workers", "--url", project.url) as terminal:
        assert terminal.wait() == 0
        assert "no workers: start one with tidewheel worker MODULE:APP" in terminal.text
    assert len(run("workers", "--url", project.url).lines) == 1
    assert run("workers", "--json", "--url", project.url).json == []
