"""``tidewheel doctor``: it looks, it tries, it tells, and it leaves nothing behind."""

from __future__ import annotations

import errno
import os
import re
import signal
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project, on_terminal, wait_until
from tests.cli.test_bench import execute, files, schemas
from tests.servers import PostgresServer
from tests.servers.shared import fresh_url
from tests.stores.postgres.stores import schema_of
from tidewheel.cli import doctor
from tidewheel.stores import DatabaseProfile
from tidewheel.stores.postgres import health
from tidewheel.stores.sqlite import schema as sqlite_schema
from tidewheel.verification.checker import CheckReport, RecoveryTimes, Violation
from tidewheel.verification.fault_run import FaultRunPlan, FaultRunResult
from tidewheel.verification.invariants import INVARIANTS

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGINT to one process")
needs_terminal = pytest.mark.skipif(os.name == "nt", reason="needs a pseudo-terminal")

PROMISES = [*(rule.name for rule in INVARIANTS), "sound"]
COUNTS = {
    "enqueues": 1200,
    "jobs": 1100,
    "grants": 1150,
    "endings": 1140,
    "orphans": 10,
    "processes gone": 12,
}

Pretend = Callable[..., None]


def damage(project: Project, statement: str) -> None:
    connection = sqlite3.connect(project.directory / "jobs.db")
    connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for temporary files of this test alone, so that what is left there can be told."""
    directory = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    return directory


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretend:
    """A sweep that takes no time and ends as told."""

    def pretend(
        *violations: Violation, recovery: RecoveryTimes | None = None, counts: dict[str, int] | None = None
    ) -> None:
        async def verify(
            url: str, plan: FaultRunPlan, *, begun: Any, watch: Any, keep: Path
        ) -> FaultRunResult:
            del url
            begun("a place of its own")
            watch("making trouble", 0.5)
            keep.mkdir(exist_ok=True)
            (keep / "worker-1.jsonl").write_text("{}\n")
            report = CheckReport(
                list(violations),
                COUNTS if counts is None else counts,
                {"worker killed": 7, "worker frozen past its lease": 1200},
                recovery or RecoveryTimes(orphans=10, timed=10, worst_after_lease=0.25),
                {violation.rule: 1234 for violation in violations},
            )
            return FaultRunResult(
                plan, report, DatabaseProfile("SQLite 3.99"), "a place of its own", plan.seconds + 4
            )

        monkeypatch.setattr(doctor, "verify", verify)

    return pretend


FILES = """
import tidewheel.builtin
from tidewheel import Tidewheel

app = Tidewheel("sqlite:///jobs.db", check_on_start=False)
app.include(tidewheel.builtin, roots=["data"])
"""


def test_files_are_compared_with_completed_jobs(run: Run, project: Project) -> None:
    """What is gone, changed or there again is told with its job; nothing on the disk is touched."""
    data = project.directory / "data"
    data.mkdir()
    project.write("filing.py", FILES)
    from tidewheel.cli.app_loader import load_app

    app = load_app("filing:app")
    with app.sync:
        for name in ("whole", "gone", "changed"):
            app.sync.enqueue("create_file", {"path": name, "content": name})
        app.sync.enqueue("delete_file", {"path": "again"})
        app.sync.run_until_idle()
    answer = run("doctor", "--app", "filing:app")
    assert answer.code == 0
    assert "4 files of 4 completed file jobs compared with the disk: 0 files differ." in answer.lines
    (data / "gone").unlink()
    (data / "changed").write_text("other")
    (data / "again").write_text("again")
    before = sorted((path.name, path.read_text()) for path in data.iterdir())
    answer = run("doctor", "--app", "filing:app")
    assert (answer.code, answer.lines[0]) == (1, "# WRONG: 3 problems")
    assert f"- WRONG: {data / 'gone'} is gone, though job" in answer.out
    told = run("doctor", "--app", "filing:app", "--json").json
    assert told["files"]["files"] == 4
    assert {found["task"] for found in told["files"]["disagreements"]} == {"create_file", "delete_file"}
    assert sorted((path.name, path.read_text()) for path in data.iterdir()) == before
    assert run("doctor", "--app", "filing:app", "--no-files").code == 0
    assert run("doctor", "--url", project.url).code == 0  # nobody knows the roots


def test_a_file_s_name_is_shown_and_not_obeyed_and_leftovers_are_a_note(run: Run, project: Project) -> None:
    """A path comes from whoever may enqueue: it neither drives the terminal nor adds a line to the report."""
    data = project.directory / "data"
    data.mkdir()
    project.write("filing.py", FILES)
    from tidewheel.cli.app_loader import load_app

    name = "a\n- WRONG: b\x1b[2J"
    app = load_app("filing:app")
    with app.sync:
        job = app.sync.enqueue("create_file", {"path": name, "content": "x"})
        app.sync.run_until_idle()
    left = data / f".tidewheel-{job.id}-1.part"
    left.write_text("half")
    answer = run("doctor", "--app", "filing:app")
    assert answer.code == 0
    note = "- note: 1 hidden file (4 bytes) of killed runs, whose jobs are over, such as"
    assert f"{note} {left};" in answer.out
    (data / name).unlink()
    answer = run("doctor", "--app", "filing:app")
    assert answer.code == 1
    [wrong] = [line for line in answer.lines if line.startswith("- WRONG")]
    assert wrong.startswith(f"- WRONG: {data}/a - WRONG: b\\x1b[2J is gone, though job {job.id} ")
    told = run("doctor", "--app", "filing:app", "--json").json
    assert told["files"]["leftovers"] == [{"job_id": str(job.id), "path": str(left), "bytes": 4}]
    assert left.exists()


def test_tasks_that_an_app_does_not_have_are_told(run: Run, project: Project) -> None:
    """Their jobs wait for ever; without an app nobody can tell that from a worker that is to be started."""
    run("enqueue", "forgotten", "{}", "--url", project.url)
    assert run("doctor", "--url", project.url).code == 0
    answer = run("doctor", "--app", "jobs:app")
    assert answer.code == 1
    assert "- WRONG: 1 due job of forgotten, which neither a live worker nor this app knows" in answer.out


def test_leases_that_nobody_ends_are_told(run: Run, project: Project) -> None:
    """A job whose worker is gone comes back as soon as any worker lives, and until then it is stuck."""
    run("enqueue", "send_digest", '{"user_id": "42"}', "--app", "jobs:app")
    damage(
        project,
        "UPDATE tidewheel_jobs SET state = 2, leased_until = created_at - 60000000, claimed_at = created_at, "
        "fence = 1, worker = 'gone'",
    )
    damage(project, "UPDATE tidewheel_job_counts SET state = 2 WHERE state = 1")
    damage(project, "UPDATE tidewheel_sequences SET value = 1 WHERE name = 'fence'")
    told = run("doctor", "--url", project.url, "--json")
    assert told.code == 1
    [problem] = [finding for finding in told.json["findings"] if finding["level"] == "problem"]
    assert problem["kind"] == "lease_ended"
    assert "1 job of send_digest ended without a word from the worker" in problem["text"]


def test_a_running_job_without_a_lease_is_told(run: Run, postgres: PostgresServer) -> None:
    """A constraint forbids it, unless somebody dropped that."""
    url = fresh_url()
    run("enqueue", "mail", "{}", "--url", url)
    schema = schema_of(url)
    execute(postgres, f"ALTER TABLE {schema}.jobs DROP CONSTRAINT jobs_check")
    execute(postgres, f"UPDATE {schema}.jobs SET state = 2")  # noqa: S608 - a name of ours
    answer = run("doctor", "--url", url)
    assert answer.code == 1
    assert "runs without a lease" in answer.out


# -- the store's own check ----------------------------------------------------------------------------------


def test_a_store_that_is_well(run: Run, project: Project) -> None:
    """Exit code 0, what it stands on, and not one job or file more than before."""
    run("enqueue", "mail", "{}", "--url", project.url)
    before = files(project)
    answer = run("doctor", "--url", project.url)
    assert (answer.code, answer.errors) == (0, "")
    assert answer.lines[0].startswith("# Well: SQLite 3.")
    assert f"- store: {project.url}" in answer.lines
    assert "synchronous full" in answer.out
    told = run("doctor", "--url", project.url, "--json").json
    assert told["well"] is told["checked"] is True
    assert [finding["kind"] for finding in told["findings"] if finding["level"] != "note"] == ["no_worker"]
    assert told["sizes"]["file"] > 4096
    assert told["files"] is None
    assert told["verified"] is None
    assert told["settings"]["synchronous"] == "full"
    assert files(project) == before
    assert run("stats", "--json", "--url", project.url).json["pending"] == 1


def test_a_server_that_is_in_doubt_is_still_well(run: Run, postgres_url: str) -> None:
    """What makes promises weaker is said, and is no error: somebody may have chosen it."""
    run("migrate", "--url", postgres_url)
    answer = run("doctor", "--url", postgres_url.replace("postgres@", "postgres:hunter2@"))
    assert answer.code == 0
    assert answer.lines[0].startswith("# Well: PostgreSQL ")
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        assert f"- in doubt: {name} is off" in answer.out
    assert "hunter2" not in answer.out + answer.errors
    assert "postgres:***@" in answer.out


def test_damage_is_told_and_not_repaired(run: Run, project: Project) -> None:
    """Exit code 1, and the same again the next time."""
    run("enqueue", "mail", "{}", "--url", project.url)
    damage(project, "UPDATE tidewheel_job_counts SET n = n + 1")
    damage(project, "UPDATE tidewheel_sequences SET value = 0 WHERE name = 'number'")
    for _ in range(2):
        answer = run("doctor", "--url", project.url)
        assert answer.code == 1
        assert answer.lines[0] == "# WRONG: 2 problems"
        assert "- WRONG: sequence number is behind" in answer.out
    told = run("doctor", "--url", project.url, "--json")
    assert told.code == 1
    assert told.json["well"] is False
    problems = [finding for finding in told.json["findings"] if finding["level"] == "problem"]
    assert [problem["kind"] for problem in problems] == ["store", "store"]


def test_damage_on_a_server_is_told(run: Run, postgres: PostgresServer) -> None:
    """There it is the rules of the schema that are looked at."""
    url = fresh_url()
    run("enqueue", "mail", "{}", "--url", url)
    assert run("doctor", "--url", url).code == 0
    execute(postgres, f"UPDATE {schema_of(url)}.jobs SET attempt = 99")  # noqa: S608
    answer = run("doctor", "--url", url)
    assert answer.code == 1
    assert re.search(r"^- WRONG: job .* had 99 attempts", answer.out, re.MULTILINE)


def test_names_of_others_are_not_obeyed_by_the_terminal(run: Run, project: Project) -> None:
    """Topics, paths and names of transactions may hold anything; a report is kept and read on terminals."""
    run("enqueue", "mail", "{}", "--url", project.url)
    for table in ("jobs", "job_counts"):
        damage(project, f"UPDATE tidewheel_{table} SET topic = 'a' || char(27) || ']0;owned' || char(7, 10)")  # noqa: S608
    for output in (("--output", "report.md"), ()):
        answer = run("doctor", "--url", project.url, *output)
        assert r"a\x1b]0;owned\x07" in answer.out
        assert "\x1b" not in answer.out
    assert "\x1b" not in (project.directory / "report.md").read_text()


def test_a_disk_that_is_read_only_is_said_to_be(
    run: Run, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not that a file which was never made could not be removed."""
    run("migrate", "--url", project.url)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    answer = run("doctor", "--url", project.url)
    assert (answer.code, answer.errors) == (0, "")


def test_each_line_of_what_sqlite_says_is_a_finding(run: Run, project: Project) -> None:
    """It says a hundred things in one; the first are told, and how many more there are."""
    run("migrate", "--url", project.url)
    file = project.directory / "jobs.db"
    content = bytearray(file.read_bytes())
    content[20] = 16  # bytes that every page keeps free at its end, which none of them does
    file.write_bytes(content)
    answer = run("doctor", "--url", project.url)
    assert answer.code == 1
    told = [line for line in answer.lines if line.startswith("- WRONG: SQLite: ")]
    assert len(told) == 21
    assert re.fullmatch(r"- WRONG: SQLite: and \d+ more; PRAGMA integrity_check tells them", told[-1])
    assert not [line for line in answer.lines if line.startswith(("Page ", "On tree ", "***"))]


def test_a_file_that_is_no_database_is_a_finding(run: Run, project: Project) -> None:
    """Not an error of the doctor's: that is what it is asked about."""
    project.write("jobs.db", "Dear diary, " * 1000)
    answer = run("doctor", "--url", project.url)
    assert answer.code == 1
    assert "is damaged or not a database" in answer.out
    assert "Its own check was not run." in answer.out


@pytest.mark.parametrize("empty", [False, True])
def test_a_file_that_is_not_there_is_not_made(run: Run, project: Project, empty: bool) -> None:
    """Nor is an empty one filled; asking is not making."""
    if empty:
        project.write("jobs.db", "")
    before = files(project)
    answer = run("doctor", "--url", project.url)
    assert answer.code == 1
    assert "there is no database" in answer.errors
    assert files(project) == before
    assert not empty or not (project.directory / "jobs.db").stat().st_size


def test_a_schema_that_is_not_there_is_not_made(run: Run, postgres: PostgresServer) -> None:
    """On a server the place can be reached, so there is a report; it says what is missing."""
    url = fresh_url()
    answer = run("doctor", "--url", url)
    assert answer.code == 1
    assert "- WRONG: there are no tables of Tidewheel yet; `tidewheel migrate`" in answer.out
    assert run("migrate", "--url", url).lines[0].startswith("applied 0001")
    assert not schemas(postgres)


def test_older_and_newer_tables_are_left_as_they_are(
    run: Run, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor migrates nothing, and does not look at tables it does not know."""
    run("migrate", "--url", project.url)
    later = [*sqlite_schema.load_migrations(), (2, "0002_later", "CREATE TABLE tidewheel_x (a)")]
    with monkeypatch.context() as newer:
        newer.setattr(sqlite_schema, "load_migrations", lambda: later)
        answer = run("doctor", "--url", project.url)
        assert answer.code == 1
        assert "the tables are older than this Tidewheel" in answer.out
        assert "0002_later" in answer.out
        assert run("migrate", "--json", "--url", project.url).json["steps"] == ["0002_later"]
    answer = run("doctor", "--url", project.url)
    assert answer.code == 1
    assert "has schema version 2, this Tidewheel knows 1; upgrade Tidewheel" in answer.out


def test_a_server_that_is_away_is_one_line(run: Run) -> None:
    """Nothing can be said about it."""
    answer = run("doctor", "--url", "postgresql://nobody@127.0.0.1:1/jobs")
    assert (answer.code, answer.out) == (1, "")
    assert "127.0.0.1:1/jobs (schema tidewheel) cannot be reached" in answer.errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--seconds", "60"), "--seconds is about --verify"),
        (("--seed", "3"), "--seed is about --verify"),
        (("--keep", "somewhere"), "--keep is about --verify"),
        (("--verify", "--seconds", "1"), "seconds is 1; 5 to 86,400 are possible"),
        (("--verify", "--seed", "-1"), "--seed"),
        (("--verify", "--url", "memory://"), "is out of reach for other processes"),
        (("--verify", "--keep", "."), "is not empty"),
        (("--output", "nowhere/report.md"), "nowhere/report.md cannot be written"),
        (("--url", "mysql://db"), "names no store Tidewheel knows"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    run: Run, project: Project, temporary: Path, arguments: tuple[str, ...], said: str
) -> None:
    """Before any trouble is made."""
    before = files(project)
    answer = run("doctor", *arguments)
    assert answer.code == 2
    assert said in answer.errors
    assert files(project) == before
    assert not list(temporary.iterdir())


# -- the sweep ----------------------------------------------------------------------------------------------


def test_promises_are_tried_beside_the_users_store(run: Run, project: Project, temporary: Path) -> None:
    """A real sweep, as short as can be: nothing of it is left but the report, and no job was touched."""
    run("enqueue", "mail", "{}", "--url", project.url)
    database = project.directory / "jobs.db"
    before, content = files(project), database.read_bytes()
    arguments = ("--verify", "--seconds", "5", "--seed", "7", "--url", project.url)
    answer = run("doctor", *arguments, "--json", "--output", "report.md")
    assert answer.code == 0, answer.out
    told = answer.json
    verified = told["verified"]
    assert told["well"] is verified["kept"] is True
    assert (verified["seconds"], verified["seed"]) == (5, 7)
    assert [promise["name"] for promise in verified["promises"]] == PROMISES
    assert {promise["verdict"] for promise in verified["promises"]} <= {"kept", "untried"}
    assert sum(verified["faults"].values()) > 0
    assert verified["counts"]["jobs"] > 0
    assert verified["recovery"]["promised_seconds_after_lease"] == 1.0
    assert verified["histories"] is None
    assert f"making trouble for 5 s in {project.directory}" in answer.errors
    report = (project.directory / "report.md").read_text("utf-8")
    assert report.startswith("# Kept: no promise was broken in 5 s of faults on SQLite 3.")
    assert re.search(r"^- date: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$", report, re.MULTILINE)
    assert "- faults: for 5 s, seed 7" in report
    assert report.count("\n- kept: ") + report.count("\n- not tried: ") == len(PROMISES)
    assert "docs/explanation/promises.md" in report
    assert files(project) == before | {"report.md"}
    assert not list(temporary.iterdir())
    assert database.read_bytes() == content


@needs_signals
@pytest.mark.parametrize("on", ["sqlite", "postgres"])
def test_ctrl_c_ends_it_and_nothing_is_left(
    project: Project, postgres: PostgresServer, temporary: Path, on: str
) -> None:
    """No file, no schema, no history and no process; impatience does not stop the clearing away."""
    before = files(project)
    url = postgres.url() if on == "postgres" else project.url
    with project.start("doctor", "--verify", "--output", "report.md", "--url", url) as process:
        process.wait_for("making trouble for 60 s in ")
        members = children_once_there(process.popen.pid)
        process.signal(signal.SIGINT)
        process.signal(signal.SIGINT)
        assert process.wait() == 130
    assert process.seen[-1] == "stopped; nothing is left behind"
    assert "Traceback" not in process.text
    assert files(project) == before
    assert not list(temporary.iterdir())
    assert not schemas(postgres)
    assert not [member for member in members if Path(f"/proc/{member}").exists()]


def children_once_there(parent: int) -> list[int]:
    """The processes that another has started, at least two; where the system tells."""
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    if not listed.exists():
        return []
    wait_until(lambda: len(listed.read_text().split()) >= 2)
    return [int(number) for number in listed.read_text().split()]


def test_a_role_that_may_not_make_a_schema_is_told_what_to_do(run: Run, postgres: PostgresServer) -> None:
    """As for the benchmark: who, where, and the statement that changes it."""
    execute(postgres, "CREATE ROLE doctors_guest LOGIN")
    try:
        answer = run(
            "doctor",
            "--verify",
            "--url",
            postgres.url(schema="no_tables").replace("postgres@", "doctors_guest@"),
        )
    finally:
        execute(postgres, "DROP ROLE doctors_guest")
    assert answer.code == 2
    assert "GRANT CREATE ON DATABASE postgres TO doctors_guest" in answer.errors


# -- the report ---------------------------------------------------------------------------------------------


def test_a_role_that_may_not_see_the_jobs_is_told_what_ails_the_server(
    run: Run, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it may not see is one problem; who holds what and what runs out it can be told all the same."""
    monkeypatch.setattr(health, "CONNECTION_SHARE", 0.0)
    url = fresh_url()
    run("migrate", "--url", url)
    schema = schema_of(url)
    execute(
        postgres,
        f"CREATE ROLE tidewheel_bare LOGIN; GRANT USAGE ON SCHEMA {schema} TO tidewheel_bare;"
        f"GRANT SELECT ON {schema}.schema_versions TO tidewheel_bare",
    )
    try:
        told = run("doctor", "--url", url.replace("postgres@", "tidewheel_bare@"), "--json")
    finally:
        execute(postgres, "DROP OWNED BY tidewheel_bare; DROP ROLE tidewheel_bare")
    assert (told.code, told.json["checked"]) == (1, False)
    kinds = {finding["kind"]: finding for finding in told.json["findings"]}
    assert "permission denied" in kinds["store"]["text"]
    assert kinds["few_connections"]["level"] == "doubt"


def test_a_broken_promise_is_told_with_its_evidence(run: Run, project: Project, pretend: Pretend) -> None:
    """Exit code 1; which promise, what was found, and the histories, which nobody could make again."""
    run("migrate")
    pretend(
        Violation("leases", "job 1: b got it too early"), Violation("sound", "worker-3 ended with code 1")
    )
    answer = run("doctor", "--verify", "--seed", "5")
    assert answer.code == 1
    assert answer.lines[0].startswith("# BROKEN: 2 promises (leases, sound) in 60 s of faults on SQLite 3.")
    place = answer.lines.index(
        "- BROKEN: No fence is given out twice, fences grow, and no two valid leases of a job overlap "
        "(leases: 1,150 leases granted)."
    )
    assert answer.lines[place + 1 : place + 3] == [
        "  - job 1: b got it too early",
        "  - and 1,234 more of this kind",
    ]
    assert answer.out.count("\n- kept: ") == len(PROMISES) - 2
    assert "--seed 5 --keep DIRECTORY" in answer.out
    [kept] = [Path(word) for word in re.findall(r"kept in (\S+):", answer.out)]
    assert (kept / "worker-1.jsonl").exists()
    told = run("doctor", "--verify", "--keep", "evidence", "--json")
    assert told.code == 1
    assert told.json["verified"]["histories"] == "evidence"
    broken = [promise for promise in told.json["verified"]["promises"] if promise["verdict"] == "broken"]
    assert [(promise["name"], promise["findings"], promise["left_out"]) for promise in broken] == [
        ("leases", ["job 1: b got it too early"], 1234),
        ("sound", ["worker-3 ended with code 1"], 1234),
    ]


def test_a_damaged_store_is_wrong_also_when_no_promise_was_broken(
    run: Run, project: Project, pretend: Pretend
) -> None:
    """Both are said, and the exit code is that of the worse."""
    run("enqueue", "mail", "{}", "--url", project.url)
    damage(project, "UPDATE tidewheel_job_counts SET n = n + 1")
    pretend()
    answer = run("doctor", "--verify", "--url", project.url)
    assert answer.code == 1
    assert answer.lines[0].startswith("# WRONG: 1 problem; no promise was broken in 60 s")


def test_before_there_is_a_store_promises_can_be_tried(run: Run, project: Project, pretend: Pretend) -> None:
    """Whoever has not decided yet wants to know most of all. Nothing is made, on no store."""
    pretend()
    before = files(project)
    answer = run("doctor", "--verify", "--url", project.url)
    assert answer.code == 0
    assert "- note: there is no database" in answer.out
    assert files(project) == before
    answer = run("doctor", "--verify", "--url", fresh_url())
    assert answer.code == 0
    assert "- note: there are no tables of Tidewheel yet" in answer.out


def test_what_was_not_tried_is_not_called_kept(run: Run, pretend: Pretend) -> None:
    """A sweep in which nobody died says nothing about recovery."""
    pretend(recovery=RecoveryTimes(), counts={**COUNTS, "orphans": 0})
    answer = run("doctor", "--verify")
    assert "- not tried: A second after a lease has ended by time" in answer.out
    assert "Every lease was ended by its worker, so recovery was not tried" in answer.out


@pytest.mark.parametrize(
    ("timed", "worst", "said"),
    [
        (10, 0.0, "found again no later than the end of its lease; promised is 1 s."),
        (10, 0.25, "found again 250 ms after the end of its lease; promised is 1 s."),
        (10, 1.5, "Nobody who asked for work was turned away meanwhile"),
        (4, 0.25, "Of 4 it is known for certain when they ended. The slowest"),
        (0, None, "Of none it is known when it ended"),
    ],
)
def test_recovery_is_told_against_its_promise(
    run: Run, pretend: Pretend, timed: int, worst: float | None, said: str
) -> None:
    """The slowest counts; where it is beyond the promise and none was broken, why that can be."""
    pretend(recovery=RecoveryTimes(orphans=10, timed=timed, worst_after_lease=worst))
    answer = run("doctor", "--verify")
    assert answer.code == 0
    assert said in answer.out


def test_the_report_goes_to_a_new_file_and_to_the_terminal(
    run: Run, project: Project, pretend: Pretend
) -> None:
    """Reports are kept, so none is written over; that is found out before the minute, not after it."""
    pretend()
    answer = run("doctor", "--verify", "--output", "report.md")
    assert (project.directory / "report.md").read_text("utf-8") == answer.out
    again = run("doctor", "--verify", "--output", "report.md")
    assert (again.code, again.out) == (2, "")
    assert "report.md is there already" in again.errors
    assert (project.directory / "report.md").read_text("utf-8") == answer.out
    assert "making trouble" not in again.errors


def test_a_report_that_does_not_come_leaves_no_file(run: Run, project: Project) -> None:
    """The name is free for the next try."""
    answer = run("doctor", "--output", "report.md", "--url", project.url)
    assert answer.code == 1
    assert not (project.directory / "report.md").exists()


def test_histories_are_kept_on_request(run: Run, project: Project, temporary: Path, pretend: Pretend) -> None:
    """Also when all is well, and only there."""
    pretend()
    (project.directory / "evidence").mkdir()
    assert run("doctor", "--verify", "--keep", "evidence").code == 0
    assert (project.directory / "evidence/worker-1.jsonl").exists()
    assert not list(temporary.iterdir())


def test_every_run_makes_other_trouble(run: Run, pretend: Pretend) -> None:
    """Unless told to repeat one; the seed is in the report."""
    pretend()
    seeds = {run("doctor", "--verify", "--json").json["verified"]["seed"] for _ in range(3)}
    assert len(seeds) > 1
    assert run("doctor", "--verify", "--json", "--seed", "9").json["verified"]["seed"] == 9


@needs_terminal
def test_on_a_terminal_lines_fit_and_the_verdict_is_in_colour(run: Run, project: Project) -> None:
    """Wrapped where words end, items under their beginning."""
    run("migrate", "--url", project.url)
    url = f"{project.url}?synchronous=normal"
    with on_terminal(project, "doctor", "--url", url, columns=60) as terminal:
        assert terminal.wait() == 0
    result = terminal.text[terminal.text.rindex("# Well") :]
    lines = [line.rstrip() for line in result.splitlines()]
    assert all(len(line) <= 60 for line in lines if url not in line)
    doubt = next(number for number, line in enumerate(lines) if line.startswith("- in doubt: synchronous"))
    assert lines[doubt + 1].startswith("  ")
    assert "\x1b[1;32m# Well" in terminal.raw


@needs_terminal
def test_on_a_terminal_a_bar_shows_how_far_a_sweep_is(project: Project) -> None:
    """It goes with the sweep, and leaves a line that says so."""
    with on_terminal(project, "doctor", "--verify") as terminal:
        terminal.wait_for(r"making trouble .* \d:\d\d:\d\d")
        terminal.popen.send_signal(signal.SIGINT)
        assert terminal.wait() == 130
    assert terminal.text.splitlines()[-1].endswith("stopped; nothing is left behind")
