"""``tidewheel keys`` and ``tidewheel superusers``."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, Within
from tests.cli.processes import Project
from tidewheel import NotAuthenticated, Tidewheel


def test_a_key_is_shown_once_and_works(run: Run, project: Project, within: Within) -> None:
    """As JSON for programs; what is listed has no key in it, and the audit log says who made it."""
    made = run("keys", "create", "--superuser", "--json", "--url", project.url).json
    assert made["superuser"] is True
    secret = made["key"].split("_", 2)[2]
    listed = run("keys", "list", "--json", "--url", project.url)
    assert [one["id"] for one in listed.json] == [made["id"]]
    assert secret not in listed.out

    async def look(app: Tidewheel) -> Any:
        caller = await app.access.authenticate(bearer=made["key"])
        return caller.superuser, (await app.access.audit.lines()).lines

    superuser, [line] = within(look)
    assert superuser
    assert (line.action, line.kind, line.target) == ("key.create", "cli", made["id"])
    assert line.actor == f"cli: {getpass.getuser()}@{socket.gethostname()}"


def test_a_credential_is_explained_without_being_in_the_history(run: Run, project: Project) -> None:
    """Read from standard input; a rejected one is a reason and exit code 1."""
    key = run("keys", "create", "--tenant", "acme", "--scope", "read", "--url", project.url).lines[0]
    told = run("access", "explain", "--url", project.url, input=f"{key}\n")
    assert (told.code, told.lines[0].startswith("accepted: key ")) == (0, True)
    assert "tenant acme; scopes: read" in told.lines[0]
    assert "  may not see states, errors and results of jobs: manage_rule" in told.lines
    assert "  may not enqueue jobs: needs the scope enqueue" in told.lines
    shown = run("access", "explain", key, "--json", "--url", project.url).json
    assert (shown["accepted"], shown["tenant"], shown["scopes"]) == (True, "acme", ["read"])
    wrong = run("access", "explain", "-", "--url", project.url, input=f"{key[:-43]}{'A' * 43}\n")
    assert (wrong.code, wrong.lines) == (
        1,
        [f"rejected: the secret of an API key is wrong (key {key.split('_')[1]})"],
    )


def test_who_makes_a_key_for_a_new_database_is_told_so(run: Run, tmp_path: Path) -> None:
    """A key for another store than the one that is served would only be seen by its being refused."""
    url = f"sqlite:///{tmp_path / 'new.db'}"
    first = run("keys", "create", "--url", url)
    assert f"made the database {tmp_path / 'new.db'}" in first.errors
    assert len(first.lines) == 1
    assert run("keys", "create", "--url", url).errors == ""


def test_a_key_has_what_it_was_given(run: Run, project: Project) -> None:
    """A name, a tenant, scopes and an end; without --json the key alone is on standard output."""
    arguments = [
        "--name",
        "billing",
        "--tenant",
        "acme",
        "--scope",
        "read",
        "--scope",
        "enqueue",
        "--expires",
        "30d",
    ]
    answer = run("keys", "create", *arguments, "--url", project.url)
    [key] = answer.lines
    assert key.startswith("tw_")
    [listed] = run("keys", "list", "--json", "--url", project.url).json
    assert (listed["name"], listed["tenant"], listed["scopes"]) == ("billing", "acme", ["enqueue", "read"])
    assert listed["expires_at"] is not None
    row = run("keys", "list", "--url", project.url).lines[1].split("\t")
    assert row[:4] == [listed["id"], "billing", "acme", "enqueue read"]
    assert row[4].startswith("ends in ")


def test_a_revoked_key_works_no_more(run: Run, project: Project, within: Within) -> None:
    """And is shown as what it is."""
    made = run("keys", "create", "--json", "--url", project.url).json
    assert run("keys", "revoke", made["id"], "--url", project.url).lines == [f"revoked {made['id']}"]
    assert run("keys", "list", "--url", project.url).lines[1].split("\t")[4] == "revoked"

    async def use(app: Tidewheel) -> None:
        with pytest.raises(NotAuthenticated):
            await app.access.authenticate(bearer=made["key"])

    within(use)


def test_bad_keys_are_refused(run: Run, project: Project) -> None:
    """With the exit code of a mistake."""
    run("keys", "create", "--url", project.url)
    for arguments in (
        ["create", "--scope", "write"],
        ["create", "--tenant", "a b"],
        ["create", "--superuser", "--tenant", "acme"],
        ["create", "--expires", "soon"],
        ["revoke", "0" * 16],
        ["revoke", "nonsense"],
    ):
        assert run("keys", *arguments, "--url", project.url).code == 2, arguments


def test_superusers_are_made_with_a_password_from_standard_input(
    run: Run, project: Project, within: Within
) -> None:
    """Never from the command line, where everybody would see it."""
    answer = run("superusers", "create", "ada", "--url", project.url, input="correct horse\n")
    assert answer.lines == ["ada may log in"]
    assert run("superusers", "create", "bob", "--url", project.url, input="short\n").code == 2
    assert [one["name"] for one in run("superusers", "list", "--json", "--url", project.url).json] == ["ada"]
    assert run("superusers", "list", "--url", project.url).lines[1].split("\t")[0] == "ada"

    async def log_in(app: Tidewheel) -> str:
        return (await app.access.log_in("ada", "correct horse")).caller.name

    assert within(log_in) == "ada"
    assert run("superusers", "remove", "ada", "--url", project.url).lines == ["removed ada"]
    assert run("superusers", "remove", "ada", "--url", project.url).code == 2
    assert run("superusers", "list", "--json", "--url", project.url).json == []


def test_the_groups_explain_themselves(run: Run) -> None:
    """Without a command: what there is."""
    for group, command in (("keys", "revoke"), ("superusers", "remove")):
        assert command in run(group).out
