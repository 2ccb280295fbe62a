"""``windlass demo``: it runs, it shows, it ends, it leaves nothing behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cli.processes import Project, on_terminal
from windlass.cli.demo.journal import GATHER_SECONDS, Journal, Kind

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGINT to one process")
needs_terminal = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")


@pytest.fixture
def temporary(project: Project) -> Path:
    """Where the demo's process makes its temporary directory."""
    path = project.directory / "tmp"
    path.mkdir()
    return path


def test_it_ends_by_itself_and_sums_up(project: Project, temporary: Path) -> None:
    """Events as lines, then what happened, then what to do next; the file is gone."""
    with project.start("demo", "--seconds", "2", TMPDIR=str(temporary), TEMP=str(temporary)) as process:
        first = process.wait_for(r"^ +(\d+\.\d)s  done ")
        assert float(first[1]) < 1.5
        assert any(temporary.iterdir())
        assert process.wait() == 0
    text = process.text
    for kind in ("done", "retry", "duplicate", "planned"):
        assert f"s  {kind}" in text
    assert "jobs completed" in text
    assert "What to do next" in text
    assert "windlass worker myproject.jobs:app" in text
    assert "\x1b" not in text
    assert not any(temporary.iterdir())


@needs_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(project: Project, temporary: Path, number: int) -> None:
    """The summary comes all the same, and the file goes."""
    with project.start("demo", TMPDIR=str(temporary)) as process:
        process.wait_for("  done ")
        process.signal(number)
        assert process.wait() == 0
        assert "What to do next" in process.text
        assert "Traceback" not in process.text
    assert not any(temporary.iterdir())


@needs_terminal
@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (60, 16)])
def test_a_terminal_gets_a_live_view(project: Project, temporary: Path, columns: int, rows: int) -> None:
    """Topics, running jobs and events on the other screen, which is given back at the end."""
    with on_terminal(project, "demo", columns=columns, rows=rows, TMPDIR=str(temporary)) as terminal:
        terminal.wait_for("windlass demo")
        terminal.wait_for("topics")
        terminal.wait_for("what happens")
        terminal.wait_for("emails?,? ")
        assert ("running now" in terminal.text) == (rows >= 24)
        assert "\x1b[?1049h" in terminal.raw
        terminal.signal()
        assert terminal.wait() == 0
        assert "\x1b[?1049l" in terminal.raw
        assert "\x1b[?25h" in terminal.raw
        end = terminal.text[terminal.text.rindex("What to do next") :]
        assert all(len(line) <= 79 for line in end.splitlines())
        assert not any(temporary.iterdir())


@needs_terminal
def test_a_terminal_without_unicode_gets_lines(project: Project) -> None:
    """Bars and boxes would be noise there."""
    with on_terminal(project, "demo", "--seconds", "1", PYTHONIOENCODING="ascii") as terminal:
        assert terminal.wait() == 0
        assert "  done " in terminal.text
        assert "╭" not in terminal.text


def test_the_journal_gathers_a_burst_into_one_line() -> None:
    """Forty emails are one line that counts; it is handed out when it is complete, and in order."""
    journal = Journal()
    for number in range(40):
        journal.add(Kind.DONE, "mail", f"to {number}", group="email")
    journal.add(Kind.FAILED, "payments", "order 7")
    assert [str(event) for event in journal.events] == ["40 emails, the last to 39", "order 7"]
    assert journal.news() == []
    for event in journal.events:
        event.at -= GATHER_SECONDS
    assert [str(event) for event in journal.news()] == ["40 emails, the last to 39", "order 7"]
    journal.add(Kind.DONE, "mail", "to ada", group="email")
    assert [str(event) for event in journal.news(everything=True)] == ["email to ada"]
    assert journal.news(everything=True) == []
    assert journal.counts[Kind.DONE] == 41
