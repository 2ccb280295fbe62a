"""The same commands on PostgreSQL: only the URL changes."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project, wait_until
from tests.servers.shared import fresh_url
from tidewheel.cli.demo import _demo_url

ON_A_SERVER = """
import os
from tidewheel import Tidewheel

app = Tidewheel(os.environ["TIDEWHEEL_URL"])


@app.task
async def greet(name: str) -> str:
    return f"hello {name}"
"""


def test_a_job_is_enqueued_shown_listed_counted_and_changed(run: Run) -> None:
    """Migrate, enqueue, show, list, stats, topics, cancel, requeue and delete by --url."""
    at = ("--url", fresh_url())
    assert run("migrate", *at).lines[0].startswith("applied 0001")
    assert run("migrate", *at, "--json").json["steps"] == []
    job_id = run("enqueue", "mail", '{"to": "ä"}', *at).out.strip()
    shown = run("jobs", "show", job_id, "--json", *at).json
    assert (shown["state"], shown["payload"]) == ("pending", {"to": "ä"})
    assert [job["id"] for job in run("jobs", "list", "--json", *at).json["items"]] == [job_id]
    assert run("stats", "--json", *at).json["pending"] == 1
    assert run("topics", "--json", *at).json[0]["topic"] == "mail"
    assert run("jobs", "cancel", job_id, *at).code == 0
    assert run("jobs", "requeue", job_id, *at).code == 0
    assert run("jobs", "cancel", job_id, *at).code == 0
    assert run("jobs", "delete", job_id, *at).code == 0
    assert run("stats", "--json", *at).json["cancelled"] == 0


def test_the_six_questions_are_answered(run: Run) -> None:
    """In the same words, with the same fields."""
    at = ("--url", fresh_url())
    run("enqueue", "mail", '{"to": 1}', *at)
    run("enqueue", "mail", '{"to": 1}', *at)
    told = run("why", "--json", *at).json
    assert (told["outstanding"]["due"], told["duplicates"]["same_payload"][0]["jobs"]) == (2, 2)
    assert told["stuck"]["things"][0]["kind"] == "no_worker"
    text = run("why", "all", *at).out
    assert "2 jobs outstanding: 2 due, 0 running, 0 delayed" in text
    assert "No worker is running" in text


def test_row_level_security_is_set_up_and_looked_at(run: Run, project: Project) -> None:
    """After the steps, and again by itself; the doctor says what is wrong with roles, and SQLite has none."""
    at = ("--url", fresh_url())
    steps = run("migrate", *at, "--rls").lines
    assert steps[0].startswith("applied 0001")
    assert steps[-1] == "applied rls"
    assert run("migrate", *at, "--json").json["steps"] == []
    assert run("migrate", *at, "--rls", "--json").json["steps"] == ["rls"]
    answer = run("doctor", *at)
    assert answer.code == 1
    assert "superuser postgres, whom no policy holds" in answer.out
    refused = run("migrate", "--url", project.url, "--rls")
    assert refused.code == 2
    assert "row-level security needs a postgresql:// URL" in refused.errors


def test_many_jobs_come_from_a_file(run: Run, project: Project, postgres_url: str) -> None:
    """JSON lines, one job each."""
    lines = project.write("jobs.jsonl", "".join(f'{{"n": {number}}}\n' for number in range(25)))
    run("migrate", "--url", postgres_url)
    assert run("enqueue", "mail", "--many", str(lines), "--url", postgres_url).code == 0
    assert run("stats", "--json", "--url", postgres_url).json["pending"] == 25


@pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGTERM to one process")
def test_a_worker_process_runs_jobs_from_a_server(run: Run, project: Project, postgres_url: str) -> None:
    """An app on PostgreSQL, its worker as a process of its own, stopped by a signal."""
    project.write("greetings.py", ON_A_SERVER)
    with project.start("worker", "greetings:app", TIDEWHEEL_URL=postgres_url) as process:
        process.wait_for("Ctrl-C stops")
        job_id = run("enqueue", "greet", json.dumps({"name": "Ada"}), "--url", postgres_url).out.strip()
        job = ("jobs", "show", job_id, "--json", "--url", postgres_url)
        wait_until(lambda: run(*job).json["state"] == "completed")
        assert run(*job).json["result"] == "hello Ada"
        process.signal(signal.SIGTERM)
        assert process.wait() == 0


def test_the_demo_works_in_a_schema_of_its_own_and_says_where_the_jobs_are(
    run: Run, postgres_url: str
) -> None:
    """Only the URL changes; the jobs of the application in the same database are left alone."""
    answer = run("demo", "--seconds", "1.5", "--url", postgres_url)
    assert answer.code == 0
    assert f"The jobs are left in {postgres_url}." in answer.out
    assert run("stats", "--json", "--url", postgres_url).json["completed"] > 0


def test_without_a_schema_in_the_url_the_demo_makes_its_own() -> None:
    """tidewheel_demo; a schema that is named, and other stores, are used as they are."""
    assert _demo_url("postgresql://db/shop") == "postgresql://db/shop?schema=tidewheel_demo"
    assert _demo_url("postgres://db/shop?sslmode=require") == (
        "postgres://db/shop?sslmode=require&schema=tidewheel_demo"
    )
    assert _demo_url("postgresql://db/shop?schema=try") == "postgresql://db/shop?schema=try"
    assert _demo_url("sqlite:///demo.db") == "sqlite:///demo.db"


def test_a_server_that_is_not_there_is_one_line_and_an_exit_code(run: Run) -> None:
    """No traceback: what was tried, and why it did not work."""
    answer = run("stats", "--url", "postgresql://nobody@127.0.0.1:1/jobs")
    assert answer.code != 0
    assert len(answer.errors.splitlines()) == 1
    assert "127.0.0.1:1" in answer.errors


def test_a_password_is_never_shown(run: Run, postgres_url: str) -> None:
    """URLs carry secrets; messages do not."""
    url = postgres_url.replace("postgres@", "postgres:hunter2@")
    said = [
        run("migrate", "--url", url),
        run("stats", "--url", url),
        run("stats", "--url", url + "&schema=1"),
    ]
    assert all("hunter2" not in answer.out + answer.errors for answer in said)
