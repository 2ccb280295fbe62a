"""From MODULE:APP to the user's app, and what is said when that does not work."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project


def test_an_app_in_the_working_directory_is_found(run: Run, project: Project) -> None:
    """No PYTHONPATH, no installation: the file beside you is importable."""
    answer = run("migrate", "--app", "jobs:app", "--json")
    assert answer.code == 0
    assert answer.json["url"] == "sqlite:///jobs.db"


def test_the_attribute_may_be_left_out(run: Run, project: Project) -> None:
    """A module's ``app``, or its only app, is meant."""
    project.write("single.py", "from tidewheel import Tidewheel\nqueue = Tidewheel('sqlite:///single.db')\n")
    assert run("migrate", "--app", "jobs", "--json").json["url"] == "sqlite:///jobs.db"
    assert run("migrate", "--app", "single", "--json").json["url"] == "sqlite:///single.db"


def test_an_attribute_may_be_inside_something(run: Run, project: Project) -> None:
    """Dots go deeper: module:services.queue."""
    project.write(
        "nested.py",
        "from tidewheel import Tidewheel\nclass services:\n    queue = Tidewheel('sqlite:///nested.db')\n",
    )
    assert run("migrate", "--app", "nested:services.queue", "--json").json["url"] == "sqlite:///nested.db"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("nosuch:app", "there is no module 'nosuch', neither in"),
        ("jobs.deeper:app", "there is no module 'jobs.deeper'"),
        ("jobs:ap", "module 'jobs' has no attribute 'ap' (did you mean app?)"),
        ("jobs:queue", "module 'jobs' has no attribute 'queue'; its apps: app"),
        ("jobs:wait", "jobs:wait is a Task, not a Tidewheel app; its apps: app"),
        ("jobs.py", "'jobs.py' is a file; give the module: jobs:app"),
        ("./jobs.py:app", "give the module: jobs:app"),
        (":app", "':app' names no app; write it as module:attribute"),
        ("my-jobs:app", "'my-jobs:app' names no app"),
    ],
)
def test_a_wrong_reference_says_what_would_be_right(run: Run, reference: str, words: str) -> None:
    """Value and remedy in one line, exit code 2."""
    answer = run("stats", "--app", reference)
    assert answer.code == 2
    assert words in answer.errors
    assert answer.errors.count("\n") == 1


def test_several_apps_or_none_are_listed(run: Run, project: Project) -> None:
    """Which one is meant has to be said."""
    project.write("none.py", "x = 1\n")
    project.write(
        "two.py",
        "from tidewheel import Tidewheel\na = Tidewheel('sqlite:///a.db')\nb = Tidewheel('sqlite:///b.db')\n",
    )
    assert "module 'two' has several apps; its apps: a, b" in run("stats", "--app", "two").errors
    assert "module 'none' has no app; it has no Tidewheel app" in run("stats", "--app", "none").errors


def test_a_module_that_fails_is_one_line(run: Run, project: Project) -> None:
    """The user's mistake in the user's words; the traceback is one option away."""
    project.write("broken.py", "def load():\n    return 1 // 0\n\nload()\n")
    answer = run("stats", "--app", "broken:app")
    assert answer.code == 1
    assert answer.errors == (
        "error: importing 'broken' failed: ZeroDivisionError: integer division or modulo by zero "
        "(--traceback shows where)\n"
    )


@pytest.mark.parametrize("way", ["option", "environment"])
def test_the_traceback_on_request_starts_in_the_users_file(
    run: Run, project: Project, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Of all frames only those of the user's code help."""
    project.write("broken.py", "def load():\n    return 1 // 0\n\nload()\n")
    if way == "environment":
        monkeypatch.setenv("TIDEWHEEL_DEBUG", "1")
    answer = run("stats", "--app", "broken:app", *(["--traceback"] if way == "option" else []))
    lines = answer.errors.splitlines()
    assert lines[1] == "Traceback (most recent call last):"
    assert 'broken.py", line 4' in lines[2]
    assert "importlib" not in answer.errors


def test_a_module_missing_inside_the_users_module_is_their_error(run: Run, project: Project) -> None:
    """A dependency that is not installed is not mistaken for a wrong reference."""
    project.write("needy.py", "import surely_not_installed\n")
    answer = run("stats", "--app", "needy:app")
    assert answer.code == 1
    assert (
        "importing 'needy' failed: ModuleNotFoundError: No module named 'surely_not_installed'"
        in answer.errors
    )


def test_a_module_that_exits_does_not_end_the_command_silently(run: Run, project: Project) -> None:
    """sys.exit at import time is reported like any other failure."""
    project.write("leaving.py", "import sys\nsys.exit(0)\n")
    answer = run("stats", "--app", "leaving:app")
    assert answer.code == 1
    assert "importing 'leaving' failed: SystemExit" in answer.errors
