"""``tidewheel stats`` and ``tidewheel migrate``."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project, on_terminal
from tidewheel import Tidewheel


@pytest.fixture
def jobs(project: Project, within: Within, work_off: Callable[[], None]) -> None:
    async def fill(app: Tidewheel) -> None:
        await app.enqueue_many("send_digest", [{"user_id": "42"}] * 3)
        await app.enqueue("send_digest", {"user_id": "nobody"}, tenant="acme")
        await app.enqueue("send_digest", {"user_id": "7"}, delay=3600)

    within(fill)
    work_off()


@pytest.mark.usefixtures("jobs")
def test_json_has_counts_times_and_series(run: Run, project: Project) -> None:
    """Everything the Python call answers, with times as ISO 8601."""
    stats = run("stats", "--json", "--url", project.url).json
    assert {name: stats[name] for name in ("pending", "running", "completed", "failed", "cancelled")} == {
        "pending": 1, "running": 0, "completed": 3, "failed": 1, "cancelled": 0,
    }  # fmt: skip
    assert (stats["delayed"], stats["success_rate"], stats["window_seconds"]) == (1, 0.75, 3600)
    assert stats["run_time"]["count"] == stats["wait_time"]["count"] == 4
    assert set(stats["run_time"]) == {"count", "average", "p50", "p95", "p99"}
    assert sum(minute["completed"] for minute in stats["series"]) == 3
    assert stats["series"][0]["minute"].endswith(":00+00:00")
    assert [topic["topic"] for topic in stats["topics"]] == ["send_digest"]


@pytest.mark.usefixtures("jobs")
def test_window_and_tenant_narrow(run: Run, project: Project) -> None:
    """Both options reach the store."""
    assert run("stats", "--window", "2h", "--json", "--url", project.url).json["window_seconds"] == 7200
    assert run("stats", "--tenant", "acme", "--json", "--url", project.url).json["failed"] == 1
    assert run("stats", "--tenant", "acme", "--json", "--url", project.url).json["completed"] == 0
    assert run("stats", "--window", "0", "--url", project.url).code == 2


@pytest.mark.usefixtures("jobs")
def test_a_pipe_gets_plain_lines(run: Run, project: Project) -> None:
    """Readable in a log, splittable by tabs."""
    lines = run("stats", "--url", project.url).lines
    assert "completed\t3\t75.0% success in the last 1h" in lines
    assert "pending\t1\t1 delayed" in lines
    assert any(line.startswith("run time\t4\t") for line in lines)
    assert any(line.startswith("enqueued ") and line.endswith("/min") for line in lines)
    assert not any("█" in line for line in lines)


@pytest.mark.usefixtures("jobs")
@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")
def test_a_terminal_gets_a_screenful(project: Project) -> None:
    """Tables and bars that fit into eighty columns."""
    with on_terminal(project, "stats", "--url", project.url) as terminal:
        assert terminal.wait() == 0
        assert "75.0% success" in terminal.text
        assert "█" in terminal.text
        assert all(len(line) <= 80 for line in terminal.text.splitlines())


def test_an_empty_queue_has_stats(run: Run) -> None:
    """Nothing measured yet is no error."""
    run("migrate", "--url", "sqlite:///new.db")
    assert run("stats", "--url", "sqlite:///new.db").code == 0
    assert run("stats", "--json", "--url", "sqlite:///new.db").json["success_rate"] is None


def test_migrate_names_its_steps_once(run: Run, project: Project) -> None:
    """The first run makes the tables, the second finds them."""
    first = run("migrate", "--url", "sqlite:///new.db")
    assert first.code == 0
    assert first.lines[0].startswith("applied 0001")
    assert run("migrate", "--url", "sqlite:///new.db").out == "sqlite:///new.db is up to date\n"
    assert run("migrate", "--url", "sqlite:///new.db", "--json").json == {
        "url": "sqlite:///new.db",
        "steps": [],
    }


def test_migrate_works_for_an_app(run: Run, project: Project) -> None:
    """The app's own store is meant."""
    assert run("migrate", "--app", "jobs:app").lines[0].startswith("applied 0001")
    assert (project.directory / "jobs.db").exists()
