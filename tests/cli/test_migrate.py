"""``tidewheel migrate --print``: the SQL on standard output, for those who own their DDL."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import Project

POSTGRES = ("--url", "postgresql:///?schema=queue")


def test_what_is_printed_is_run_by_hand_and_then_nothing_is_missing(run: Run, project: Project) -> None:
    """Printing makes no file; an app that does not migrate then works on what was made."""
    at = ("--url", project.url)
    sql = run("migrate", "--print", *at).out
    assert not (project.directory / "jobs.db").exists()
    with closing(sqlite3.connect(project.directory / "jobs.db")) as connection:
        connection.executescript(sql)
    printed = run("migrate", "--print", *at)
    assert printed.out.startswith("-- The tables have version 1")
    assert all(line.startswith("--") for line in printed.lines)
    assert run("migrate", *at, "--json").json["steps"] == []
    assert run("enqueue", "mail", "{}", *at).code == 0


def test_no_server_is_needed_when_the_version_is_said(run: Run) -> None:
    """The URL names the kind of database and the schema."""
    whole = run("migrate", "--print", "--since", "0", *POSTGRES)
    assert whole.code == 0
    assert 'CREATE SCHEMA "queue"' in whole.out
    assert "tidewheel_owner" not in whole.out
    answer = run("migrate", "--print", "--since", "1", "--rls", "--json", *POSTGRES).json
    assert (answer["steps"], answer["version"]) == (["rls"], 1)
    assert "CREATE ROLE" in answer["sql"]


def test_grants_are_printed_for_a_role(run: Run) -> None:
    """With row-level security a membership, without it the rights one by one."""
    grants = run("migrate", "--print", "--grants", "shop", *POSTGRES)
    assert 'GRANT INSERT ON "queue".jobs' in grants.out
    members = run("migrate", "--print", "--grants", "shop", "--rls", *POSTGRES)
    assert members.out == 'GRANT tidewheel_api TO "shop";\n'
    assert "grants need a postgresql:// URL" in run("migrate", "--print", "--grants", "shop").errors


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--since", "0"), "add --print"),
        (("--grants", "shop"), "add --print"),
        (("--print", "--grants", "shop", "--since", "0"), "grants have no versions"),
        (("--print", "--export", "alembic", "--directory", "."), "give one of them"),
        (("--export", "alembic"), "--export needs --directory"),
        (("--directory", "."), "need --export"),
        (("--after", "abc"), "need --export"),
        (("--print", "--since", "-1"), "-1"),
        (("--print", "--since", "9"), "this Tidewheel knows 0"),
        (("--print", "--url", "memory://"), "without a schema"),
        (("--print", "--rls"), "needs a postgresql:// URL"),
        (("--export", "alembic", "--directory", ".", "--rls"), "needs a postgresql:// URL"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: tuple[str, ...], said: str) -> None:
    """With the remedy, and nothing is printed or made."""
    answer = run("migrate", *arguments)
    assert answer.code == 2
    assert said in " ".join(answer.errors.split())
    assert answer.out == ""


def test_an_app_that_may_not_migrate_says_what_to_do(run: Run, project: Project) -> None:
    """The command, and the one that prints its SQL."""
    project.write(
        "still.py", 'from tidewheel import Tidewheel\napp = Tidewheel("sqlite:///x.db", migrate=False)\n'
    )
    sqlite3.connect(project.directory / "x.db").execute("CREATE TABLE mine (a)").connection.close()
    answer = run("enqueue", "mail", "{}", "--app", "still:app")
    assert answer.code != 0
    assert "tidewheel migrate --print" in answer.errors
