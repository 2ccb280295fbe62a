"""``tidewheel schedules``: made, listed, paused and run from a shell."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project


@pytest.fixture
def url(run: Run, project: Project) -> str:
    """With two schedules."""
    made = run(
        *("schedules", "create", "nightly", "cleanup", "--cron", "0 3 * * *", "--zone", "Europe/Berlin"),
        *("--priority", "5", "--max-attempts", "none", "--url", project.url),
    )
    assert made.lines[0].startswith("made nightly: next run ")
    body = ("poll", "fetch", '{"source": "a"}')
    run("schedules", "create", *body, "--every", "1h", "--missed", "skip", "--url", project.url)
    return project.url


def test_the_bare_command_lists(run: Run, url: str) -> None:
    """By name, with when each runs next, in a form that programs read."""
    listed = run("schedules", "--url", url)
    assert listed.lines[0] == "NAME\tFOR\tWHEN\tNEXT RUN\tLAST RUN\tSTATE"
    nightly, poll = (line.split("\t") for line in listed.lines[1:])
    assert nightly[:3] == ["nightly", "cleanup", "0 3 * * * (Europe/Berlin)"]
    assert datetime.fromisoformat(nightly[3]).utcoffset() is not None
    assert (poll[0], poll[1], poll[4], poll[5]) == ("poll", "fetch", "", "on")
    assert run("schedules", "list", "--url", url).out == listed.out


def test_json_tells_all_of_it(run: Run, url: str) -> None:
    """Also the next five runs, and what its jobs are like."""
    nightly, poll = run("schedules", "list", "--json", "--url", url).json
    assert (nightly["cron"], nightly["zone"], nightly["every"], nightly["missed"]) == (
        *("0 3 * * *", "Europe/Berlin", None, "one"),
    )
    assert (nightly["options"]["priority"], nightly["options"]["max_attempts"]) == (5, None)
    assert (poll["every"], poll["payload"], len(poll["next_runs"])) == (3600.0, {"source": "a"}, 5)
    assert run("schedules", "show", "poll", "--json", "--url", url).json == poll


def test_pause_run_resume_and_delete(run: Run, url: str) -> None:
    """One after the other, each of them told."""
    assert run("schedules", "pause", "nightly", "poll", "--url", url).lines == [
        "paused nightly",
        "paused poll",
    ]
    job_id = UUID(run("schedules", "run", "poll", "--url", url).lines[0])
    shown = run("schedules", "show", "poll", "--url", url).out
    assert "state       paused" in shown
    assert f"last job    {job_id}" in shown
    job = run("jobs", "show", str(job_id), "--json", "--url", url).json
    assert job["schedule"] == "poll"
    assert f"poll, for {job['scheduled_for']}" in run("jobs", "show", str(job_id), "--url", url).out
    assert run("schedules", "resume", "poll", "--url", url).lines == ["resumed poll"]
    assert "next runs" in run("schedules", "show", "poll", "--url", url).out
    assert run("schedules", "delete", "poll", "--url", url).lines == ["deleted poll"]
    assert [one["name"] for one in run("schedules", "--json", "--url", url).json] == ["nightly"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show", "nightlyy"), "did you mean nightly?"),
        (("create", "nightly", "cleanup", "--every", "60"), "replace it"),
        (("create", "a", "cleanup"), "--cron or --every"),
        (("create", "a", "cleanup", "--every", "60", "--zone", "UTC"), "--zone is for --cron"),
        (("create", "a", "cleanup", "--cron", "x * * * *"), "its minute is 'x'"),
        (("create", "a", "cleanup", "{", "--every", "60"), "not JSON"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(run: Run, url: str, arguments: tuple[str, ...], words: str) -> None:
    """And changes nothing."""
    refused = run("schedules", *arguments, "--url", url)
    assert refused.code != 0
    assert words in refused.errors
    assert len(run("schedules", "--json", "--url", url).json) == 2
