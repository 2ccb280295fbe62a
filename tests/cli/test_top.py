"""``tidewheel top``: what it shows, and that the terminal is given back whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project, Terminal, on_terminal, wait_until
from tests.cli.terminal_emulator import Vt
from tests.servers.postgres import PostgresServer
from tests.servers.shared import fresh_url
from tidewheel import TaskError, Tidewheel
from tidewheel.admin.reports.answers import (
    Attention,
    FailedGroup,
    FailedJobs,
    Finding,
    FindingKind,
    Severity,
)
from tidewheel.admin.reports.queue_snapshot import QueueSnapshot
from tidewheel.cli.top import state_poller
from tidewheel.cli.top.renderer import Canvas, render, share_rows
from tidewheel.cli.top.state import RateMeter, TopState
from tidewheel.cli.top.state_poller import StatePoller, pause_after_poll
from tidewheel.cli.top.styled_text import display_width, render_line, truncate
from tidewheel.cli.top.terminal_screen import ENTER_SCREEN, LEAVE_SCREEN
from tidewheel.core.model import JobRecord, Progress, State
from tidewheel.core.reports import Distribution, MinuteStats, Stats, TaskActivity, TaskStats, TopicStats

needs_terminal = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal and signals")

NOW = 1_800_000_000_000_000
MINUTE = 60_000_000


# -- what is shown ------------------------------------------------------------------------------------------


def glance(*minutes: MinuteStats, topics: int = 1, running: int = 0, completed: int = 0) -> QueueSnapshot:
    names = [f"topic{number}\x1b[2J漢字" if number else "mail" for number in range(topics)]
    lanes = [
        TaskStats(name, "send", pending=9, due=7, activity=TaskActivity(series=minutes)) for name in names
    ]
    jobs = [
        JobRecord(
            id=uuid4(), number=number, tenant="root", topic="mail", task="send", state=State.RUNNING,
            priority=0, attempt=1, max_attempts=3, created_at=NOW, run_at=NOW, started_at=NOW - 90_000_000,
            progress=Progress(43.0, "row\n43\x07", "reading") if number % 2 else None, worker="host:1",
        )
        for number in range(running)
    ]  # fmt: skip
    stats = Stats(
        pending=9, running=running, completed=completed, failed=3, cancelled=0, delayed=2, oldest_due_at=NOW,
        topics=tuple(TopicStats(name, pending=9, running=running, failed=3) for name in names),
        window_seconds=300, run_time=Distribution(1, 1, 1, 1, 1), wait_time=Distribution(1, 1, 1, 1, 1),
        series=minutes,
    )  # fmt: skip
    return QueueSnapshot(NOW, stats, lanes, jobs)


def view(seen: QueueSnapshot, failures: int = 2) -> TopState:
    shown = TopState("sqlite:///jobs.db", "sqlite 3.51.3", 1.0, glance=seen)
    moment = datetime.fromtimestamp(NOW / 1e6, UTC)
    group = FailedGroup(
        fingerprint="1", topic="mail", task="send", error="e", sample="late \x1b]0;owned\x07" + "x" * 300,
        jobs=3, first_failed_at=moment, last_failed_at=moment, newest=uuid4(), trend=(0,) * 12, where="",
    )  # fmt: skip
    shown.failed = FailedJobs(
        answer="", jobs=3, complete=True, errors=failures, window_seconds=1, groups=(group,) * failures
    )
    finding = Finding(
        kind=FindingKind.NO_WORKER, severity=Severity.CRITICAL, title="No worker takes " + "mail " * 40,
        explanation="", remedy="", jobs=7,
    )  # fmt: skip
    shown.attention = Attention(answer="", critical=1, warnings=0, infos=0, findings=(finding,) * 4, more=0)
    shown.history.extend([1.0, 2.0, 400.0] * 100)
    return shown


@pytest.mark.parametrize("columns", [20, 40, 79, 80, 132, 300])
@pytest.mark.parametrize("rows", [4, 10, 19, 24, 60, 200])
@pytest.mark.parametrize("trouble", [None, "the server is gone\n\x1b[2J" * 20])
def test_every_size_is_filled_and_nothing_is_beyond_it(columns: int, rows: int, trouble: str | None) -> None:
    """A line too wide would be cut or wrapped by the terminal, one too many would scroll the first away."""
    shown = view(glance(topics=12, running=30), failures=30)
    shown.error = trouble
    lines = render(shown, Canvas(columns, rows), now=1.0)
    assert len(lines) == rows
    for line in lines:
        text = render_line(line, columns, colour=False)
        assert display_width(text) <= columns
        assert text.isprintable()


def test_a_screen_of_80_by_24_has_a_place_for_everything() -> None:
    """Counts, rates, what is wrong, and of topics, running jobs and failures a fair share each."""
    shown = view(glance(topics=12, running=30), failures=30)
    lines = [render_line(line, 80, colour=False) for line in render(shown, Canvas(80, 24), now=1.0)]
    heads = [place for place, line in enumerate(lines) if line.startswith((" TOPIC", " RUNNING", " FAILED"))]
    assert lines[0].startswith(" tidewheel top  sqlite:///jobs.db  sqlite 3.51.3")
    assert lines[1].startswith(" 7 due  30 running  2 delayed  3 failed  0 workers")
    assert lines[4].startswith(" critical: No worker takes mail")
    assert "and 2 more: tidewheel why" in lines[6]
    assert [second - first for first, second in zip(heads, [*heads[1:], 23], strict=True)] == [6, 5, 5]
    assert " 43 % reading: row 43" in "".join(lines)
    assert lines[-1].startswith(" q quits")


def test_a_screen_of_40_by_10_has_what_matters_most() -> None:
    """How much waits and fails, what is wrong, a topic and a failure; no row is left empty."""
    shown = view(glance(topics=12, running=30), failures=30)
    lines = [render_line(line, 40, colour=False) for line in render(shown, Canvas(40, 10), now=1.0)]
    assert lines[1].startswith(" 7 due  30 running  3 failed  0 workers")
    heads = [line.split()[0] for line in lines[3:7]]
    assert (heads, lines[-1].split()[0]) == (["critical:", "critical:", "and", "TOPIC"], "q")
    assert all(lines)
    shown.attention = None
    lines = [render_line(line, 40, colour=False) for line in render(shown, Canvas(40, 10), now=1.0)]
    assert [line.split()[0] for line in lines[3:]] == [
        "TOPIC", "mail", "RUNNING", "send", "FAILED", "send", "q",
    ]  # fmt: skip


def test_a_store_that_is_silent_is_said_to_be() -> None:
    """Before it is given up; figures that stand still must not look like a queue that does."""
    shown = view(glance())
    shown.polled_at = 100.0
    last = [
        render_line(render(shown, Canvas(80, 24), now=now)[-1], 80, colour=False) for now in (101.0, 107.0)
    ]
    assert last[0] == " q quits   every 1 s   the store answered in 0 ms"
    assert last[1] == " q quits   the store has not answered for 7.0 s"


def test_what_is_older_than_the_counts_beside_it_says_so() -> None:
    """The head of the groups is of their moment, and so is what needs attention; nobody adds up two."""
    shown = view(glance())
    assert shown.failed is not None
    shown.failed = replace(shown.failed, jobs=34, complete=False)
    shown.polled_at = shown.details_at = 100.0
    lines = [render_line(line, 80, colour=False) for line in render(shown, Canvas(80, 24), now=100.0)]
    [head] = [line for line in lines if line.startswith(" FAILED")]
    assert head.startswith(" FAILED 34+, 2 errors ")
    assert "as of" not in "".join(lines)
    shown.details_at = 96.0
    lines = [render_line(line, 80, colour=False) for line in render(shown, Canvas(80, 24), now=100.0)]
    [head] = [line for line in lines if line.startswith(" FAILED")]
    assert head.rstrip().endswith("ERROR, as of 07:59:56")  # NOW is 08:00:00
    assert " and 2 more, as of 07:59:56: tidewheel why" in lines


async def test_counts_and_groups_are_seen_in_the_same_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as grouping is cheap: 34 failed beside a group of 3 sends people after what is not there."""
    monkeypatch.setattr(state_poller, "CHEAP_RATIO", 0.0)
    app = Tidewheel("memory://")

    @app.task(max_attempts=1)
    async def fail() -> None:
        raise TaskError("no")

    async with app:
        shown = TopState("", "", 1.0)
        lookout = StatePoller(app, shown)
        groups: FailedJobs | None = None
        for failed in (1, 3):
            await fail.enqueue_many([{}] * (failed - (shown.failed.jobs if shown.failed else 0)))
            await app.run_until_idle()
            await lookout._poll()
            assert shown.glance is not None
            assert shown.failed is not None
            assert shown.glance.stats.failed == shown.failed.jobs == failed
            assert shown.details_age < 1.0
            groups = shown.failed
        # What costs too much is left to the seldom look.
        monkeypatch.setattr(state_poller, "CHEAP_RATIO", 1e9)
        await fail.enqueue()
        await app.run_until_idle()
        await lookout._poll()
        assert shown.glance is not None
        assert (shown.glance.stats.failed, shown.failed) == (4, groups)


def test_a_slow_store_is_left_alone_and_a_silent_one_is_asked_again_soon() -> None:
    """Ten seconds without an answer are no reason to overlook for another forty that it is back."""
    assert pause_after_poll(1.0, 0.01, answered=True) == 0.99
    assert pause_after_poll(1.0, 2.0, answered=True) == 8.0
    assert pause_after_poll(1.0, 10.0, answered=False) == 5.0
    assert pause_after_poll(1.0, 0.01, answered=False) == 0.99


def test_rows_are_shared_by_need() -> None:
    """Nobody gets more than it wants, and what is left goes to the others."""
    assert share_rows(10, [1, 20, 20]) == [1, 5, 4]
    assert share_rows(100, [1, 2, 3]) == [1, 2, 3]
    assert share_rows(2, [5, 5, 5]) == [1, 1, 0]
    assert share_rows(-3, [5]) == [0]


def test_texts_are_cut_by_columns() -> None:
    """A wide character takes two of them, and what is cut says so."""
    assert truncate("abc", 3) == "abc"
    assert truncate("abcd", 3) == "ab…"
    assert truncate("漢字漢字", 5) == "漢字…"
    assert truncate("a\x1b[31mb", 20) == r"a\x1b[31mb"
    assert truncate("abc", 0) == ""


def test_rates_are_those_of_what_happened() -> None:
    """Minutes go on growing; pruning, which takes completed jobs away, makes no rate smaller."""
    meter = RateMeter()
    first = MinuteStats(NOW, enqueued=10, completed=10)
    assert meter.measure(glance(first, completed=5000), 1.0) is None
    grown = MinuteStats(NOW, enqueued=30, completed=20, failed=4)
    begun = MinuteStats(NOW + MINUTE, completed=2)
    rates = meter.measure(glance(grown, begun, completed=0), 3.0)
    assert rates is not None
    assert rates.overall == {"enqueued": 10.0, "completed": 6.0, "failed": 2.0, "retried": 0.0}
    assert rates.topics["mail"]["completed"] == 6.0
    assert meter.measure(glance(grown), 3.0) is None  # no time has passed
    later = meter.measure(glance(begun), 4.0)  # the first minute has left the window
    assert later is not None
    assert set(later.overall.values()) == {0.0}


# -- in a pipe ----------------------------------------------------------------------------------------------


@pytest.fixture
def jobs(project: Project, within: Within, work_off: Callable[[], None]) -> None:
    async def fill(app: Tidewheel) -> None:
        await app.enqueue("send_digest", {"user_id": "42"})
        await app.enqueue("send_digest", {"user_id": "nobody"})

    async def more(app: Tidewheel) -> None:
        await app.enqueue_many("nightly", [{}] * 4)

    within(fill)
    work_off()
    within(more)


@pytest.mark.usefixtures("jobs")
def test_in_a_pipe_it_is_plain_text_once(run: Run, project: Project) -> None:
    """Everything, not only what fits on a screen, and no control sequences."""
    for more in ((), ("--once",)):
        answer = run("top", "--every", "200ms", "--url", project.url, *more)
        assert answer.code == 0
        assert "\x1b" not in answer.out
        assert " 4 due  0 running  0 delayed  1 failed  0 workers" in answer.out
        assert " critical: No worker is running (4 jobs)" in answer.out
        [row] = [line for line in answer.lines if line.startswith(" nightly")]
        assert row.split() == ["nightly", "4", "0", "0", "0", "0", "0", "0"]
        assert any(line.endswith("no_user: nobody lives here") for line in answer.lines)


def test_it_looks_at_postgresql(run: Run) -> None:
    """The same figures from the other database."""
    at = ("--url", fresh_url())
    run("enqueue", "nightly", *at)
    text = run("top", "--once", "--every", "200ms", *at).out
    assert " 1 due  0 running" in text
    assert "postgresql" in text


@pytest.mark.usefixtures("jobs")
def test_a_tenant_sees_its_own(run: Run, project: Project) -> None:
    """Of another tenant's jobs neither a count nor an error is shown."""
    text = run("top", "--once", "--every", "200ms", "--tenant", "acme", "--url", project.url).out
    assert " 0 due" in text
    assert "nobody lives here" not in text


def test_what_makes_no_sense_is_refused(run: Run) -> None:
    """Before anything is opened."""
    answer = run("top", "--every", "10ms")
    assert (answer.code, "0.01 s is out of range; give 0.2 s to 3600 s" in answer.errors) == (2, True)
    assert run("top").code == 1  # there is no such file


# -- on a terminal ------------------------------------------------------------------------------------------


def shown(terminal: Terminal, columns: int = 80, rows: int = 24) -> Vt:
    return Vt(columns, rows, terminal.raw)


def assert_given_back(terminal: Terminal, modes: list[object]) -> None:
    """The usual screen, the cursor, and keys as they were."""
    screen = shown(terminal)
    assert not screen.other
    assert screen.cursor_shown
    assert terminal.raw.count(ENTER_SCREEN) == terminal.raw.count(LEAVE_SCREEN)
    assert terminal.modes == modes


@needs_terminal
@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("end", ["q", signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_however_it_ends_the_terminal_is_as_before(project: Project, end: str | signal.Signals) -> None:
    """q, Ctrl-C, a kill, a closed window: whoever sits there can go on working."""
    with on_terminal(project, "top", "--every", "200ms", "--url", project.url) as terminal:
        modes = terminal.modes
        terminal.wait_for("nobody lives here")
        assert terminal.modes != modes  # keys are not shown
        lines = shown(terminal).lines
        assert lines[0].startswith(" tidewheel top  sqlite:///")
        assert lines[-1].startswith(" q quits")
        if isinstance(end, str):
            terminal.type(end)
        else:
            terminal.signal(end)
        assert terminal.wait() == 0
        assert_given_back(terminal, modes)


@needs_terminal
@pytest.mark.usefixtures("jobs")
def test_another_size_is_drawn_at_once(project: Project) -> None:
    """The whole of it: nothing of the old size stays."""
    with on_terminal(project, "top", "--every", "200ms", "--url", project.url) as terminal:
        terminal.wait_for("nobody lives here")
        before = len(terminal.raw)
        terminal.resize(50, 12)
        wait_until(lambda: terminal._read(0.1) and "\x1b[12;1H" in terminal.raw[before:])
        piece = terminal.raw[before:]
        screen = Vt(50, 12, ENTER_SCREEN + piece[piece.index("\x1b[2J") :])
        assert screen.lines[0].startswith(" tidewheel top")
        assert screen.lines[-1].startswith(" q quits")
        terminal.type("q")
        assert terminal.wait() == 0


@needs_terminal
@pytest.mark.usefixtures("jobs")
def test_it_gives_the_terminal_back_while_it_is_stopped(project: Project) -> None:
    """Ctrl-Z, some other work, fg: the screen is left meanwhile, and drawn again."""
    with on_terminal(project, "top", "--every", "200ms", "--url", project.url) as terminal:
        modes = terminal.modes
        terminal.wait_for("q quits")
        terminal.signal(signal.SIGTSTP)
        # A process without a terminal of its own to be stopped from goes on at once, as the kernel has it.
        wait_until(lambda: bool(terminal._read(0.1)) and terminal.raw.count(ENTER_SCREEN) == 2)
        assert terminal.raw.index(LEAVE_SCREEN) < terminal.raw.rindex(ENTER_SCREEN)
        terminal.type("q")
        assert terminal.wait() == 0
        assert_given_back(terminal, modes)


@needs_terminal
@pytest.mark.usefixtures("jobs")
def test_a_closed_window_ends_it(project: Project) -> None:
    """Nobody looks any more, and nothing is left that asks the store for ever."""
    with on_terminal(project, "top", "--every", "200ms", "--url", project.url) as terminal:
        terminal.wait_for("q quits")
        terminal.hang_up()
        try:
            terminal.popen.wait(30)
        except subprocess.TimeoutExpired:
            pytest.fail("it goes on")


@needs_terminal
@pytest.mark.usefixtures("jobs")
def test_without_colours_where_nobody_wants_any(project: Project) -> None:
    """NO_COLOR is heeded."""
    with on_terminal(project, "top", "--url", project.url, NO_COLOR="1") as terminal:
        terminal.wait_for("nobody lives here")
        assert "\x1b[31m" not in terminal.raw
        assert "\x1b[7m" not in terminal.raw
        terminal.type("q")
        assert terminal.wait() == 0


@needs_terminal
def test_a_store_that_goes_away_is_waited_for(project: Project, tmp_path: Path) -> None:
    """The last figures stay, the last line says what is wrong, and q still quits; then it is back."""
    with PostgresServer() as server:
        url = server.url()
        with project.start("enqueue", "nightly", "--url", url) as process:
            assert process.wait() == 0
        with on_terminal(project, "top", "--every", "200ms", "--url", url) as terminal:
            modes = terminal.modes
            terminal.wait_for("nightly")
            server.stop("immediate")
            terminal.wait_for("no answer from the store for")
            assert any(line.startswith(" nightly") for line in shown(terminal).lines)
            assert "no answer" in shown(terminal).lines[-1]
            server.start()
            wait_until(lambda: bool(terminal._read(1.0)) and "answered in" in shown(terminal).lines[-1])
            server.stop("immediate")
            wait_until(lambda: bool(terminal._read(1.0)) and "no answer" in shown(terminal).lines[-1])
            terminal.signal(signal.SIGTERM)
            assert terminal.wait() == 0
            assert_given_back(terminal, modes)
