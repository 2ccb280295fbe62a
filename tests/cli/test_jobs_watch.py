"""``tidewheel jobs list --watch``: a list that stays."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import COMMAND, Process, Project, on_terminal
from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.cli.jobs.job_list import watch_jobs

FAST = ("--watch", "--every", "100ms")


@pytest.fixture
def first(within: Within) -> str:
    async def enqueue(app: Tidewheel) -> str:
        return str((await app.enqueue("mail", {"to": "anna"})).id)

    made: str = within(enqueue)
    return made


def _enqueued(within: Within, topic: str = "mail") -> str:
    async def enqueue(app: Tidewheel) -> str:
        return str((await app.enqueue(topic, {})).id)

    made: str = within(enqueue)
    return made


def _cancelled(within: Within, job_id: str) -> None:
    async def cancel(app: Tidewheel) -> None:
        await app.cancel(job_id)

    within(cancel)


def _stopped(process: Process) -> int:
    process.signal(signal.SIGINT)
    return process.wait()


def test_a_pipe_gets_jobs_as_they_come_and_change(project: Project, within: Within, first: str) -> None:
    """A header, what is there, then a line for each change; Ctrl-C is the way to end it, and no failure."""
    with project.start("jobs", "list", *FAST, "--url", project.url) as process:
        process.wait_for(rf"^{first}\tpending\t")
        second = _enqueued(within)
        process.wait_for(rf"^{second}\tpending\t")
        _cancelled(within, first)
        process.wait_for(rf"^{first}\tcancelled\t.*job_canceled")
        assert _stopped(process) == 0
    assert process.seen[0].startswith("ID\tSTATE\t")
    assert [line[:36] for line in process.seen[1:]] == [first, second, first]


def test_json_is_a_line_for_each(project: Project, within: Within, first: str) -> None:
    """For programs that read lines; filters narrow it as they do a list."""
    with project.start("jobs", "list", "topic:mail", *FAST, "--json", "--url", project.url) as process:
        process.wait_for(first)
        _enqueued(within, "other")
        second = _enqueued(within)
        process.wait_for(second)
        assert _stopped(process) == 0
    assert [json.loads(line)["id"] for line in process.seen] == [first, second]


def test_a_reader_that_leaves_ends_it_also_without_news(project: Project, first: str) -> None:
    """As with ``| head -1`` on a queue where nothing happens any more."""
    command = [*COMMAND, "jobs", "list", *FAST, "--json", "--url", project.url]
    with subprocess.Popen(
        command, cwd=project.directory, env=project.environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            assert json.loads(process.stdout.readline())["id"] == first
            process.stdout.close()
            assert process.wait(PATIENCE) == 141
        finally:
            process.kill()


async def test_a_second_ctrl_c_finds_the_first_one_taken(capsys: pytest.CaptureFixture[str]) -> None:
    """asyncio counts who was cancelled: what is not taken back comes out as a traceback while closing."""
    async with Tidewheel("memory://") as app:

        async def watch() -> int:
            await watch_jobs(app, {}, limit=5, every=60.0, as_json=False)
            running = asyncio.current_task()
            assert running is not None
            return running.cancelling()

        watching = asyncio.create_task(watch())
        while "STATE" not in capsys.readouterr().out:
            await asyncio.sleep(0)
        watching.cancel()
        assert await watching == 0


def test_a_store_that_goes_away_and_comes_back_is_watched_on(
    project: Project, within: Within, first: str
) -> None:
    """Said once; then the list goes on."""
    path, aside = project.directory / "jobs.db", project.directory / "aside.db"
    with project.start("jobs", "list", *FAST, "--url", project.url) as process:
        process.wait_for(first)
        path.rename(aside)
        process.wait_for("going on when it is back")
        aside.rename(path)
        second = _enqueued(within)
        process.wait_for(rf"^{second}\tpending\t")
        assert _stopped(process) == 0
    assert process.text.count("going on when it is back") == 1


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_a_terminal_shows_the_list_and_gives_the_screen_back(
    project: Project, within: Within, first: str
) -> None:
    """On a screen of its own, no line longer than it is wide; more jobs than lines are cut."""
    for _ in range(3):
        within(lambda app: app.enqueue_many("mail", [{}] * 10))
    with on_terminal(project, "jobs", "list", "topic:mail", *FAST, "--url", project.url) as terminal:
        terminal.wait_for("31 jobs  topic:mail")
        terminal.wait_for("Ctrl-C ends")
        newest = _enqueued(within)
        terminal.wait_for("32 jobs")
        terminal.wait_for(newest)
        terminal.signal()
        assert terminal.wait() == 0
    assert "\x1b[?1049h" in terminal.raw
    assert "\x1b[?1049l" in terminal.raw
    assert first not in terminal.text  # the oldest, for which there is no line
    [*_, frame] = [frame for frame in terminal.raw.split("\x1b[H") if newest in frame]
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", frame).splitlines()
    assert (len(lines), max(map(len, lines))) == (24, 80)


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="this system has no pseudo-terminals")
def test_an_error_message_cannot_draw_on_the_terminal(project: Project, within: Within) -> None:
    """What a handler raised is shown, not obeyed."""

    async def fail(app: Tidewheel) -> None:
        @app.task(max_attempts=1)
        async def hostile() -> None:
            raise ValueError("\x1b[2Jgone\x07")

        await hostile.enqueue()
        await app.run_until_idle()

    within(fail)
    with on_terminal(project, "jobs", "list", "--url", project.url, columns=150) as terminal:
        assert terminal.wait() == 0
    assert "\x1b[2J" not in terminal.raw
    assert r"\x1b[2Jgone" in re.sub(r"\s+", " ", terminal.raw)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["-q"], "ids alone do not tell"),
        (["--cursor", "5"], "leave --cursor and --offset out"),
        (["--every", "1ms"], "it can be from 100 ms to 1h"),
        (["stat:failed"], "there is no field"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Run, project: Project, first: str, arguments: list[str], complaint: str
) -> None:
    """Before anything is shown."""
    answer = run("jobs", "list", "--watch", *arguments, "--url", project.url)
    assert (answer.code, answer.out) == (2, "")
    assert complaint in answer.errors
