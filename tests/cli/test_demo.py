"""``tidewheel demo``: it runs, it shows, it ends, it leaves nothing behind."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import sys
import webbrowser
from pathlib import Path
from typing import Final

import httpx2
import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project, on_terminal, wait_until
from tests.patience import PATIENCE
from tidewheel.cli import demo
from tidewheel.cli.demo import demo_server
from tidewheel.cli.demo.activity_log import GROUP_SECONDS, ActivityKind, ActivityLog

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
        process.wait_for(r"^ +\d+\.\ds  done ")
        assert any(temporary.iterdir())
        assert process.wait() == 0
    text = process.text
    for kind in ("done", "retry", "duplicate", "planned"):
        assert f"s  {kind}" in text
    assert "jobs completed" in text
    assert "What to do next" in text
    assert "tidewheel worker myproject.jobs:app" in text
    assert "\x1b" not in text
    assert not any(temporary.iterdir())


def assert_is_served(url: str, password: str) -> None:
    """The UI is there, and its API lets in who knows the password of this run."""
    assert httpx2.get(url, timeout=PATIENCE).headers["content-type"].startswith("text/html")
    login = url.removesuffix("/ui/") + "/api/jobs/session"
    assert (
        httpx2.post(login, json={"name": "demo", "password": password}, timeout=PATIENCE).status_code == 200
    )
    wrong = {"name": "demo", "password": "another-one"}
    assert httpx2.post(login, json=wrong, timeout=PATIENCE).status_code == 401


def test_a_taken_port_is_an_error_when_it_was_asked_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual port may well be taken by another demo; a port that was named is meant."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = run("demo", "--port", str(port))
        assert (answer.code, f"cannot listen on 127.0.0.1 port {port}" in answer.errors) == (2, True)
        monkeypatch.setattr(demo_server, "DEFAULT_PORT", port)
        listener, login = demo_server.open_demo_listener(None)
        with listener:
            assert login.url == f"http://127.0.0.1:{listener.getsockname()[1]}/ui/"
            assert listener.getsockname()[1] != port


def test_every_run_has_a_password_of_its_own() -> None:
    """It is good to read aloud, and not shown by accident."""
    first, second = demo_server.DemoLogin("http://one/"), demo_server.DemoLogin("http://one/")
    assert first.password != second.password
    assert first.password not in repr(first)


class TestBrowser:
    """A browser is opened for somebody who sits there, and for nobody else."""

    THERE: Final = {"DISPLAY": ":0"}

    @pytest.fixture(autouse=True)
    def _somebody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(demo, "is_terminal", lambda: True)
        monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.BackgroundBrowser("xdg-open"))
        monkeypatch.setattr(sys, "platform", "linux")

    def test_a_person_at_a_display_gets_one(self) -> None:
        """On X and on Wayland."""
        assert demo.should_open_browser(self.THERE)
        assert demo.should_open_browser({"WAYLAND_DISPLAY": "wayland-0"})

    @pytest.mark.parametrize("name", ["CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"])
    def test_nobody_else_does(self, name: str) -> None:
        """Not in CI, not over ssh, not without a display."""
        assert not demo.should_open_browser({**self.THERE, name: "1"})
        assert not demo.should_open_browser({})

    def test_a_pipe_gets_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nobody watches there."""
        monkeypatch.setattr(demo, "is_terminal", lambda: False)
        assert not demo.should_open_browser(self.THERE)

    def test_a_browser_in_the_terminal_is_not_opened(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It would draw where the demo draws. Nor is one that is not there."""
        monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("w3m"))
        assert not demo.should_open_browser(self.THERE)

        def none() -> None:
            raise webbrowser.Error("could not locate runnable browser")

        monkeypatch.setattr(webbrowser, "get", none)
        assert not demo.should_open_browser(self.THERE)


@needs_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly(project: Project, temporary: Path, number: int) -> None:
    """The summary comes all the same, and the file goes. Until then the UI is there."""
    with project.start("demo", TMPDIR=str(temporary)) as process:
        url = process.wait_for(r"^The web UI is at (http://127\.0\.0\.1:\d+/ui/)$")[1]
        password = process.wait_for(r"^  password  ([a-z0-9-]{14})$")[1]
        process.wait_for("  done ")
        assert_is_served(url, password)
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
        terminal.wait_for("tidewheel demo")
        terminal.wait_for(r"http://127\.0\.0\.1:\d+/ui/ .*demo .*[a-z0-9]{4}-[a-z0-9]{4}-[a-z0-9]{4}")
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
    """Bars and boxes would be noise there. A browser is opened where it is asked for, at the page named."""
    opened = project.directory / "opened"
    script = project.write("browser.sh", f'#!/bin/sh\necho "$1" > {shlex.quote(str(opened))}\n')
    script.chmod(0o755)
    with on_terminal(
        project, "demo", "--seconds", "1", "--browser", PYTHONIOENCODING="ascii", BROWSER=str(script)
    ) as terminal:
        assert terminal.wait() == 0
        assert "  done " in terminal.text
        assert "╭" not in terminal.text
        wait_until(opened.exists)
        assert f"The web UI is at {opened.read_text()}" in terminal.text


def test_the_journal_gathers_a_burst_into_one_line() -> None:
    """Forty emails are one line that counts; it is handed out when it is complete, and in order."""
    journal = ActivityLog()
    for number in range(40):
        journal.add(ActivityKind.DONE, "mail", f"to {number}", group="email")
    journal.add(ActivityKind.FAILED, "payments", "order 7")
    assert [str(event) for event in journal.events] == ["40 emails, the last to 39", "order 7"]
    assert journal.take_events() == []
    for event in journal.events:
        event.at -= GROUP_SECONDS
    assert [str(event) for event in journal.take_events()] == ["40 emails, the last to 39", "order 7"]
    journal.add(ActivityKind.DONE, "mail", "to ada", group="email")
    assert [str(event) for event in journal.take_events(include_open_groups=True)] == ["email to ada"]
    assert journal.take_events(include_open_groups=True) == []
    assert journal.counts[ActivityKind.DONE] == 41
