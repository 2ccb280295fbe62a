"""``tidewheel bench``: it measures, it explains, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project, on_terminal
from tests.servers import PgBouncer, PostgresServer
from tidewheel.verification.benchmark import Measurement, worker_process

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGINT to one process")
needs_terminal = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")

OF_JOBS = {"pick_up", "enqueue_one", "enqueue_callers", "enqueue_many", "drain", "together"}


def schemas(server: PostgresServer) -> set[str]:
    """The benchmark's schemas on this server."""

    async def look() -> set[str]:
        connection = await asyncpg.connect(server.url())
        try:
            rows = await connection.fetch(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, 'tidewheel_scratch')"
            )
            return {row[0] for row in rows}
        finally:
            await connection.close()

    return asyncio.run(look())


def execute(server: PostgresServer, statement: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(server.url())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    asyncio.run(run())


def files(project: Project) -> set[str]:
    return {path.name for path in project.directory.iterdir()} - {"__pycache__"}


def check_measured(measured: dict[str, Any], names: set[str]) -> None:
    assert set(measured) == names
    for figure in measured.values():
        assert figure["count"] > 0
        assert figure["seconds"] > 0
        assert figure["jobs_per_second"] is None or figure["jobs_per_second"] > 0
        if figure["p50_seconds"] is not None:
            assert 0 < figure["p50_seconds"] <= figure["p99_seconds"]


def test_a_file_is_measured_beside_and_never_opened(run: Run, project: Project) -> None:
    """The same directory, so the same disk; the user's own database keeps every byte."""
    run("enqueue", "mail", "{}", "--url", project.url)
    database = project.directory / "jobs.db"
    before, content = files(project), database.read_bytes()
    answer = run("bench", "--seconds", "1", "--payload", "500", "--json", "--url", project.url)
    assert answer.code == 0
    check_measured(answer.json["measurements"], OF_JOBS | {"commit"})
    assert answer.json["store"].startswith("SQLite 3.")
    assert answer.json["settings"]["synchronous"] == "full"
    assert answer.json["payload_bytes"] == 500
    assert str(project.directory / "tidewheel_scratch_") in answer.errors
    assert files(project) == before
    assert database.read_bytes() == content


def test_a_store_in_memory_is_measured_in_this_process(run: Run) -> None:
    """No disk and no server, so nothing is said about them."""
    answer = run("bench", "--seconds", "1", "--json", "--url", "memory://")
    check_measured(answer.json["measurements"], OF_JOBS)


def test_a_server_is_measured_in_a_schema_that_goes(run: Run, postgres: PostgresServer) -> None:
    """The same database, and the test server's settings are called what they are: not durable."""
    answer = run("bench", "--seconds", "1", "--json", "--url", postgres.url())
    assert answer.code == 0
    check_measured(answer.json["measurements"], OF_JOBS | {"commit", "round_trip"})
    assert answer.json["settings"]["connection"] == "direct"
    concerns = " ".join(answer.json["concerns"])
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert f"{name} is off" in concerns
    assert "pooler" not in concerns
    assert not schemas(postgres)


def test_behind_a_pooler_pick_up_is_by_polling(
    run: Run, postgres: PostgresServer, pgbouncer: PgBouncer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and how often."""
    monkeypatch.setenv("TIDEWHEEL_POLL_INTERVAL", "0.05")
    answer = run("bench", "--seconds", "1", "--url", pgbouncer.url())
    assert answer.code == 0
    assert "a pooler sits between" in answer.out
    assert "it polls, every 50 ms (poll_interval)" in answer.out
    assert not schemas(postgres)


def test_a_role_that_may_not_make_a_schema_is_told_what_to_do(run: Run, postgres: PostgresServer) -> None:
    """Who, where, and the statement that changes it."""
    execute(postgres, "CREATE ROLE bench_guest LOGIN")
    try:
        answer = run("bench", "--url", postgres.url().replace("postgres@", "bench_guest@"))
    finally:
        execute(postgres, "DROP ROLE bench_guest")
    assert answer.code == 2
    assert "bench_guest may not create a schema" in answer.errors
    assert "GRANT CREATE ON DATABASE postgres TO bench_guest" in answer.errors
    assert len(answer.errors.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seconds", "0.5"), "seconds is 0.5; 1 to 600 are possible"),
        (("--seconds", "soon"), "'soon' is no duration"),
        (("--payload", "3"), "payload is 3; 11 to 65,536 are possible"),
        (("--url", "mysql://db"), "names no store Tidewheel knows"),
        (("--url", "sqlite:///nowhere/jobs.db"), "nowhere does not exist"),
        (("--url", "sqlite:///jobs.db?synchronous=off"), "it can be full or normal"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    run: Run, project: Project, arguments: tuple[str, ...], said: str
) -> None:
    """Before anything is made."""
    before = files(project)
    answer = run("bench", *arguments)
    assert answer.code == 2
    assert said in answer.errors
    assert files(project) == before


@contextmanager
def hang_ups_heard() -> Iterator[None]:
    """By whoever is started meanwhile, also where nohup started the tests."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@needs_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", 0)])
@pytest.mark.parametrize("on", ["sqlite", "postgres"])
def test_a_signal_ends_it_and_nothing_is_left(
    project: Project, postgres: PostgresServer, on: str, number: int
) -> None:
    """Whatever it is doing just then; impatience does not stop the clearing away."""
    before = files(project)
    url = postgres.url() if on == "postgres" else project.url
    with hang_ups_heard(), project.start("bench", "--url", url) as process:
        process.wait_for("measuring for about 45 s in ")
        process.signal(number)
        process.signal(number)
        assert process.wait() == 130
    assert process.seen[-1] == "stopped; nothing is left behind"
    assert "Traceback" not in process.text
    assert files(project) == before
    assert not schemas(postgres)


def test_a_worker_that_cannot_start_is_an_error_and_nothing_is_left(
    run: Run, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last words are passed on."""
    monkeypatch.setattr(worker_process, "_PROGRAM", "import sys; sys.exit('no more memory')")
    before = files(project)
    answer = run("bench", "--seconds", "1")
    assert answer.code == 1
    assert "the benchmark's worker ended with code 1: no more memory" in answer.errors
    assert files(project) == before


def test_without_a_url_it_is_the_disk_of_this_directory_and_in_a_pipe_it_is_lines(
    run: Run, project: Project
) -> None:
    """Tab-separated figures, a sentence each, and the conditions to compare by. No tidewheel.db is made."""
    before = files(project)
    answer = run("bench", "--seconds", "1")
    assert files(project) == before
    assert answer.lines[0].startswith("SQLite 3.")
    assert answer.lines[0].endswith(": sqlite:///tidewheel.db")
    assert answer.lines[2] == "MEASURED\tJOBS/S\tP50\tP99"
    for name in ("enqueue", "callers", "in bulk", "worker", "together", "pick-up"):
        assert sum(line.startswith(f"{name}: ") for line in answer.lines) == 1
    assert "synchronous full" in answer.lines[-1]
    assert answer.lines[-1].endswith("payload 100 bytes, 1 s")
    assert "\x1b" not in answer.out


@needs_terminal
@pytest.mark.parametrize(("columns", "url"), [(80, "sqlite:///jobs.db"), (120, "memory://")])
def test_a_terminal_gets_a_bar_and_then_a_table(project: Project, columns: int, url: str) -> None:
    """Nothing is cut off or runs over the edge."""
    with on_terminal(project, "bench", "--seconds", "1", "--url", url, columns=columns) as terminal:
        terminal.wait_for("pick-up by an idle worker .* of 1 s")
        assert terminal.wait() == 0
    result = terminal.text[terminal.text.rindex(f": {url}") :]
    lines = [line.rstrip() for line in result.splitlines()]
    assert all(len(line) <= columns for line in lines)
    assert "…" not in result
    assert any(line.startswith("enqueue_many, 1,000 at a time") for line in lines)
    assert "\x1b[1;32m" in terminal.raw


@needs_terminal
def test_no_colours_where_none_are_wanted(project: Project) -> None:
    """NO_COLOR is heard by table and prose alike."""
    with on_terminal(project, "bench", "--seconds", "1", "--url", "memory://", NO_COLOR="1") as terminal:
        assert terminal.wait() == 0
    assert "enqueue, one at a time" in terminal.text
    assert not re.search(r"\x1b\[(\d+;)*[39][0-7]m", terminal.raw)


def test_every_measurement_has_a_name_and_a_share_of_the_time() -> None:
    """One that is added is shown, and the whole stays as long as was asked for."""
    from tidewheel.cli.bench import measurement_title
    from tidewheel.verification.benchmark.measurements import MEASUREMENTS
    from tidewheel.verification.benchmark.run import TIME_SHARES

    assert list(TIME_SHARES) == list(MEASUREMENTS) == list(Measurement)
    assert sum(TIME_SHARES.values()) == pytest.approx(1.0)
    assert all(measurement_title(measurement) for measurement in Measurement)
