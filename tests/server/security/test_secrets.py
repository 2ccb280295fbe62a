"""What is hidden stays hidden, however it is asked for."""

from __future__ import annotations

import json
import logging
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.security.callers import ACME, SUPERUSER, Caller, PublishedKey, bearer
from tests.server.security.cases import cases
from tests.server.security.oracle import Expected, expected
from tests.server.security.world import Rules, World, world
from tidewheel import SecurityContext, acting_as
from tidewheel.core.model import ClaimRequest, Failed, JobError, Lane, Settlement
from tidewheel.server.redaction import Redaction

SECRET = "s3cr3t-hunter2"  # noqa: S105 - what must not be found
HIDDEN = {
    "password": SECRET,
    "PassWord": SECRET,
    "card": {"number": SECRET, "kind": "visa"},
    "people": [{"name": "ann", "password": SECRET}],
    "to": "ann",
}
MANAGER = "acme's key to enqueue and manage and read and work"
READER = "acme's key to read"
TOPICAL = "acme's key for one topic"
SUPER = "a superuser's key to enqueue and manage and read and work"

PROBES = (
    f"payload.password:{SECRET}",
    "payload.password~s3",
    "payload.password:*",
    "-payload.password:null",
    "payload.password>a",
    f"payload.PassWord:{SECRET}",
    "payload.card.number~s3",
    'payload["card"]["number"]~s3',
    "payload.people[0].password~s3",
    "payload.password.inner:1",
    "state:pending (topic:mail OR payload.password~s3)",
    "-topic:mail OR payload.password<t OR state:failed",
    "-(-payload.password~s3)",
)


async def _plant(made: World) -> str:
    with acting_as(SecurityContext(ACME, user_id="ann")):
        job = await made.app.enqueue("mail", HIDDEN, key="planted")
    return str(job.id)


async def test_what_is_redacted_cannot_be_asked_for(published: PublishedKey) -> None:
    """A filter on a hidden value is refused whoever asks, in lists and previews: yes or no is an answer."""
    async with world(Rules.SOME, published) as made:
        await _plant(made)
        for name, why in ((MANAGER, "redact"), (TOPICAL, "redact"), (SUPER, "redact"), (READER, "manage")):
            caller = made.caller(name)
            for probe in PROBES:
                got = await made.ask(caller, "GET", f"/api/jobs?where={quote(probe)}")
                assert got.status in {403, 422}, (name, probe, got)
                assert why in got.json()["detail"], (name, probe, got)
                preview = {"action": "cancel", "filter": {"where": probe}, "preview": True}
                got = await made.ask(caller, "POST", "/api/jobs/bulk", body=preview)
                assert got.status in {403, 422}, (name, probe, got)


async def test_payloads_are_not_searched_for_those_who_are_not_shown_all_of_them(
    published: PublishedKey,
) -> None:
    """A text search looks at hidden values, too; so it is for superusers, unless nothing is hidden."""
    async with world(Rules.SOME, published) as made:
        await _plant(made)
        for query in ("text=s3", "where=text:s3", "where=s3cr3t", "where=-text:s3"):
            for name in (MANAGER, READER, TOPICAL):
                got = await made.ask(made.caller(name), "GET", f"/api/jobs?{query}")
                assert got.status == 403, (query, got)
        got = await made.ask(made.caller(SUPER), "GET", "/api/jobs?text=s3cr3t")
        assert got.json()["total"] == 1


async def test_who_does_not_manage_asks_nothing_about_payloads(published: PublishedKey) -> None:
    """A key to read is not shown payloads, so it cannot filter by them; one to manage can."""
    async with world(Rules.SOME, published) as made:
        await _plant(made)
        query = "/api/jobs?where=payload.card.kind:visa"
        assert (await made.ask(made.caller(READER), "GET", query)).status == 403
        assert (await made.ask(made.caller(MANAGER), "GET", query)).json()["total"] == 1


async def test_only_superusers_ask_about_workers(published: PublishedKey) -> None:
    """Names of workers are shown to superusers, so only they can filter by them."""
    async with world(Rules.SOME, published) as made:
        assert (await made.ask(made.caller(MANAGER), "GET", "/api/jobs?where=worker~h")).status == 403
        assert (await made.ask(made.caller(SUPER), "GET", "/api/jobs?where=worker~h")).status == 200


@pytest.mark.parametrize(
    ("path", "hidden"),
    [
        (("password",), True),
        (("a", "PASSWORD", "b"), True),
        (("card", "number"), True),
        (("card", "number", "inner"), True),
        (("card",), False),
        (("other", "card", "number"), False),
        (("rows", 3, "pin"), True),
        (("rows", 3), False),
        (("to",), False),
    ],
)
def test_what_is_hidden_in_an_answer_is_hidden_in_a_filter(path: tuple[str | int, ...], hidden: bool) -> None:
    """``hides`` agrees with what ``apply`` replaces."""
    redaction = Redaction(("password", "card.number", "rows.*.pin"))
    assert redaction.hides(path) == hidden
    body: Any = "plain"
    for step in reversed(path):
        body = [body] * 4 if isinstance(step, int) else {step: body}
    assert ("plain" not in json.dumps(redaction.apply(body))) == hidden


async def test_secrets_are_in_no_answer_and_in_no_log(
    published: PublishedKey, caplog: pytest.LogCaptureFixture
) -> None:
    """Payloads, credentials and queries are told to nobody: every route, every caller, every log record."""
    caplog.set_level(logging.DEBUG)
    told: list[tuple[str, bytes]] = []
    async with world(Rules.SOME, published) as made:
        job_id = await _plant(made)
        for caller in made.callers:
            for case in cases():
                if case.route.is_mutation and expected(made.rules, case, caller) is Expected.DONE:
                    continue  # these are tried elsewhere, and would change what there is to tell
                target = case.filled(job_id, made, "f" * 16)
                got = await made.ask(caller, case.route.method, target, body=case.body)
                told.append((f"{case} for {caller.name}", got.body))
        told += [
            (
                "a wrong payload",
                await _body(made, {"task": "mail", "payload": {"to": 1, "password": SECRET}}),
            ),
            ("an unknown task", await _body(made, {"task": "nope", "payload": {"password": SECRET}})),
            ("an unknown field", await _body(made, {"task": "mail", "payload": HIDDEN, "state": "failed"})),
            ("no JSON", await _body(made, None, b'{"task": "mail", "payload": "' + SECRET.encode())),
            ("a wrong login", await _login(made, {"name": "root", "password": [SECRET]})),
            ("a failed login", await _login(made, {"name": "root", "password": SECRET})),
        ]
        lines = await made.app.access.audit.lines(limit=200)
        told.append(("the audit log", repr(lines).encode()))
        keys = [word for caller in made.callers for word in _credentials(caller.headers)]
    secrets = [SECRET, SUPERUSER.split(":")[1], *keys]
    csrf = {caller.headers["x-csrf-token"] for caller in made.callers if "x-csrf-token" in caller.headers}
    logged = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
    for what, text in told:
        leaked = [secret for secret in secrets if secret.encode() in text]
        if "/session" in what:  # which tells a session its own token
            leaked = [secret for secret in leaked if secret not in csrf]
        assert not leaked, (what, text)
    assert not [secret for secret in secrets if secret in logged]


async def _body(made: World, body: Any, raw: bytes | None = None) -> bytes:
    got = await made.ask(made.caller(SUPER), "POST", "/api/jobs/enqueue", body=body, raw=raw)
    assert got.status in {400, 422}, got
    return got.body


async def _login(made: World, body: Any) -> bytes:
    got = await made.ask(None, "POST", "/api/jobs/session", body=body)
    assert got.status in {401, 422}, got
    return got.body


def _credentials(headers: Any) -> list[str]:
    shown = [headers.get("authorization", "").partition(" ")[2], headers.get("cookie", "").partition("=")[2]]
    shown += [headers.get("x-csrf-token", "")]
    return [word for word in shown if len(word) > 20]


async def test_an_error_of_the_servers_own_tells_an_incident_and_nothing_else(
    published: PublishedKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever an exception says, which may be a statement with its values, is for the log."""
    async with world(Rules.SOME, published) as made:
        caller = made.caller(SUPER)

        async def broken(*_: object, **__: object) -> None:
            raise RuntimeError(f"a statement with {SECRET} in it")

        for verb in ("get", "list_jobs", "enqueue", "stats", "topics", "workers", "delete", "documents"):
            monkeypatch.setattr(made.app.store, verb, broken)
        seen = 0
        for case in cases():
            if case.route.streams or expected(made.rules, case, caller) is not Expected.DONE:
                continue
            job_id = next(iter(made.standing.values()))
            got = await made.ask(
                caller, case.route.method, case.filled(job_id, made, "f" * 16), body=case.body
            )
            assert SECRET.encode() not in got.body, (case, got)
            if got.status == 500:
                assert got.code == "internal_error"
                assert got.json()["incident"]
                seen += 1
        assert seen >= 10


async def test_a_traceback_is_for_superusers_and_an_explicit_scope(published: PublishedKey) -> None:
    """It has file paths and source lines. Scopes to read and to manage are not enough, on any route."""
    error = JobError("ValueError", "no", traceback=f"File x, line 1\n  {SECRET}")
    async with world(Rules.SOME, published) as made:
        job_id = await _plant(made)
        await _fail(made, error)
        scoped = await made.app.access.create_key("", tenant="acme", scopes=["read", "tracebacks"])
        seeing = Caller("acme's key to read and tracebacks", bearer(scoped.key))
        for caller in (*(made.caller(name) for name in (MANAGER, READER, "acme's token", SUPER)), seeing):
            for path in (f"/api/jobs/{job_id}", f"/api/jobs/{job_id}/result"):
                got = await made.ask(caller, "GET", path)
                assert got.status == 200, got
                assert (SECRET.encode() in got.body) == (caller is seeing or caller.superuser), caller.name


async def _fail(made: World, error: JobError) -> None:
    store = made.app.store
    claim = await store.claim(ClaimRequest("w", (Lane("mail", "mail"),), 100, 60.0))
    await store.settle([Settlement(job.lease, Failed(error)) for job in claim.jobs])
