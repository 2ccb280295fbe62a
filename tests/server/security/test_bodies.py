"""Fields, texts and cursors that nobody should send: refused, and nothing happens."""

from __future__ import annotations

import base64
import copy
import json
import re
import string
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints
from urllib.parse import quote, urlencode

import msgspec

from tests.server.security.callers import PublishedKey
from tests.server.security.cases import BODIES, PARAMETER, Case, cases
from tests.server.security.test_secrets import MANAGER, READER, SUPER
from tests.server.security.world import ACMES, NOBODYS_ID, Rules, World, dump, world
from tidewheel.server.route import Route
from tidewheel.server.routes import ROUTES
from tidewheel.server.routes.enqueue_routes import EnqueueBody

NOBODYS = (
    *("state", "status", "tenant", "tenant_id", "fence", "attempt", "attempts", "id", "number", "superuser"),
    *("created", "created_at", "worker", "user_id", "service_id", "leased_until", "locked_until", "result"),
    *("error", "errors", "finished_at", "started_at", "version", "hash", "scopes", "revoked_at", "actor"),
    *(
        "role",
        "is_admin",
        "permissions",
        "retention",
        "headers",
        "__class__",
        "constructor",
        "__proto__",
        "$where",
    ),
    *("payload.password", ""),
)
"""What a job, a key or a user has and no body may set, and what other systems fell for."""


def _places(body: Any, kind: type[msgspec.Struct]) -> Iterator[tuple[list[Any], frozenset[str]]]:
    """Every object in a body that is no payload: the path to it, and what it may hold."""
    yield [], frozenset(field.encode_name for field in msgspec.structs.fields(kind))
    for field in msgspec.structs.fields(kind):
        value = body.get(field.encode_name)
        inner = [one for one in _structs(field.type) if isinstance(value, dict | list)]
        for one in inner:
            items = value if isinstance(value, list) else [value]
            for index, item in enumerate(items):
                tag = one.__struct_config__.tag
                if not isinstance(item, dict) or (tag is not None and item.get("kind") != tag):
                    continue
                for path, names in _places(item, one):
                    known = names | ({"kind"} if tag is not None else set())
                    yield [field.encode_name, *([index] if isinstance(value, list) else []), *path], known


def _structs(kind: Any) -> Iterator[type[msgspec.Struct]]:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind
    for argument in get_args(kind):
        yield from _structs(argument)


async def test_no_body_sets_what_is_not_its_to_set(published: PublishedKey) -> None:
    """Mass assignment: a field that a body does not have is refused by name, also inside of it, also for a
    superuser, and nothing is written.
    """
    async with world(Rules.SOME, published) as made:
        before = dump(made.app.store)
        for route in ROUTES:
            if route.body is not None:
                assert await _assign(made, route, route.body) >= len(NOBODYS) - 10
        assert dump(made.app.store) == before


async def _assign(made: World, route: Route, kind: type[msgspec.Struct]) -> int:
    """How many fields were tried."""
    sample = copy.deepcopy(BODIES[kind])
    if kind is EnqueueBody:
        sample["retry"] = {"kind": "fixed", "delay": 1}
    names = {"topic": "mail", "id": str(NOBODYS_ID), "superuser": "nobody", "schedule": "nightly"}
    path, tried = PARAMETER.sub(lambda found: names[found[1]], route.path), 0
    for place, known in _places(sample, kind):
        for name in NOBODYS:
            if name in known:
                continue
            body = copy.deepcopy(sample)
            inner = body
            for step in place:
                inner = inner[step]
            inner[name] = True
            got = await made.ask(made.caller(SUPER), route.method, path, body=body)
            assert (got.status, got.code) == (422, "invalid_input"), (route.name, place, name, got)
            pointer = "#" + "".join(f"/{step}" for step in [*place, name])
            assert got.json()["errors"][0]["pointer"] == pointer
            tried += 1
    return tried


def _twice(body: Any) -> Iterator[str]:
    """A body as JSON texts in each of which one object has a member twice, anywhere in it."""
    if isinstance(body, dict):
        texts = {json.dumps(name): json.dumps(value) for name, value in body.items()}
        for name in body:
            plain = json.dumps(name)
            escaped = '"' + "".join(f"\\u{ord(character):04x}" for character in name) + '"'
            for again in (plain, escaped):
                yield _object([(again, texts[plain]), *texts.items()])
            for inner in _twice(body[name]):
                yield _object(list((texts | {plain: inner}).items()))
    if isinstance(body, list):
        for place, value in enumerate(body):
            for inner in _twice(value):
                items = [inner if at == place else json.dumps(one) for at, one in enumerate(body)]
                yield f"[{', '.join(items)}]"


def _object(members: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in members) + "}"


async def test_no_body_says_a_member_twice(published: PublishedKey) -> None:
    """In whichever object of whichever body, payloads included, also with its name in escapes: refused, and
    nothing is written. Two readers of such a text may read two things.
    """
    async with world(Rules.SOME, published) as made:
        before, tried = dump(made.app.store), 0
        names = {"topic": "mail", "id": str(NOBODYS_ID), "superuser": "nobody", "schedule": "nightly"}
        for route in ROUTES:
            if route.body is None:
                continue
            path = PARAMETER.sub(lambda found: names[found[1]], route.path)
            for text in _twice(BODIES[route.body]):
                assert json.loads(text) == BODIES[route.body], text  # it is JSON, for most who read it
                got = await made.ask(made.caller(SUPER), route.method, path, raw=text.encode())
                if got.status not in {403, 404}:
                    assert (got.status, got.code) == (422, "invalid_input"), (route.name, text, got)
                    assert "twice" in got.json()["detail"]
                    tried += 1
        assert tried > 100
        assert dump(made.app.store) == before


async def test_nobody_chooses_a_tenant(published: PublishedKey) -> None:
    """The tenant comes from what was shown: not from a body, a query or a header. New jobs may say one's own,
    which changes nothing.
    """
    async with world(Rules.SOME, published) as made:
        caller, before = made.caller(MANAGER), dump(made.app.store)
        for tenant in ("globex", "acme"):
            body: Any
            for body in ({"task": "mail", "tenant": tenant}, {"jobs": [{"task": "mail", "tenant": tenant}]}):
                path = "enqueue-many" if "jobs" in body else "enqueue"
                if tenant != "acme":
                    assert (await made.ask(caller, "POST", f"/api/jobs/{path}", body=body)).status == 422
            body = {"action": "delete", "filter": {"tenant": tenant}}
            assert (await made.ask(caller, "POST", "/api/jobs/bulk", body=body)).status == 422
            for case in cases():
                if case.route.method == "GET" and "tenant" in case.route.query.__struct_fields__:
                    got = await made.ask(caller, "GET", f"{case.path}?tenant={tenant}")
                    assert got.status == 422, (case, got)
        assert dump(made.app.store) == before
        headers = {"x-tenant": "globex", "x-tenant-id": "globex", "x-tidewheel-tenant": "globex"}
        got = await made.ask(caller, "POST", "/api/jobs/enqueue", body={"task": "mail"}, headers=headers)
        found = await made.app.get(got.json()["id"])
        assert found.tenant == "acme"


async def test_what_another_tenant_says_in_a_filter_is_about_its_own_jobs(published: PublishedKey) -> None:
    """``tenant:globex`` and everything around it in a filter finds nothing of globex's for acme."""
    wheres = ("tenant:globex", "tenant:acme OR tenant:globex", "-tenant:acme", "tenant>a", "-(tenant:acme)")
    async with world(Rules.SOME, published) as made:
        for where in wheres:
            got = await made.ask(made.caller(MANAGER), "GET", f"/api/jobs?where={quote(where)}")
            assert got.status in {200, 422}, (where, got)
            if got.status == 200:
                assert {item["tenant"] for item in got.json()["items"]} <= {"acme"}, where


async def test_a_bulk_action_stays_within_what_its_caller_sees(published: PublishedKey) -> None:
    """Everything, said by a caller with a row filter, is everything that filter shows."""
    async with world(Rules.SOME, published) as made:
        # acme's mail, acme's report, globex's, the root tenant's, another mail of acme's
        ids = list(made.standing.values())[:5]
        caller = made.caller("acme's key for one topic")
        body = {"action": "cancel", "filter": {"where": "state:pending OR -state:pending"}}
        preview = await made.ask(caller, "POST", "/api/jobs/bulk", body={**body, "preview": True})
        assert preview.json()["matched"] == 2
        assert (await made.ask(caller, "POST", "/api/jobs/bulk", body=body)).status == 202
        await made.quiet()
        states = [str((await made.app.get(job_id)).state) for job_id in ids]
        assert states == ["cancelled", "pending", "pending", "pending", "cancelled"]
        kicked = await made.ask(made.caller(MANAGER), "POST", "/api/jobs/topics/mail/kick", body={})
        assert kicked.json()["kicked"] == 0  # no failed ones; and none of others


# -- cursors --------------------------------------------------------------------------------------------


def _bent(cursor: str) -> Iterator[str]:
    """A cursor that was changed a little, and what was never one."""
    for place in range(len(cursor)):
        other = next(one for one in string.ascii_letters if one != cursor[place])
        yield cursor[:place] + other + cursor[place + 1 :]
    yield from (cursor[:-1], cursor[1:], cursor + "A", cursor * 2, cursor[::-1], cursor.swapcase())
    yield from ("1", "0", "-1", "null", "AAAA", "=" * 20, "%00", "x" * 100, str(2**63), str(2**64), "9" * 90)
    yield base64.urlsafe_b64encode((5).to_bytes(20, "big")).decode().rstrip("=")
    yield base64.urlsafe_b64encode(bytes(20)).decode().rstrip("=")


async def test_a_cursor_nobody_gave_is_refused(published: PublishedKey) -> None:
    """Changed, cut, made up, huge: 422 with the parameter named, never an error of the server's. Cursors of
    the lists for superusers, who see all there is, are plain; one of them may happen to be right.
    """
    async with world(Rules.SOME, published) as made:
        caller = made.caller(SUPER)
        sealed = ("/api/jobs", "/api/jobs/bulk")
        for path in (*sealed, "/api/jobs/keys", "/api/jobs/audit"):
            cursor = (await made.ask(caller, "GET", f"{path}?limit=1")).json()["cursor"]
            assert (await made.ask(caller, "GET", f"{path}?limit=1&cursor={quote(cursor)}")).status == 200
            for bent in _bent(cursor):
                got = await made.ask(caller, "GET", f"{path}?limit=1&cursor={quote(bent)}")
                if path in sealed or got.status != 200:
                    assert (got.status, got.code) == (422, "invalid_input"), (bent, got)
            assert (await made.ask(caller, "GET", f"{path}?cursor={'A' * 5000}")).status == 422
            assert (await made.ask(caller, "GET", f"{path}?cursor={'A' * 100_000}")).status == 414


async def test_anothers_cursor_shows_nothing_of_another(published: PublishedKey) -> None:
    """A cursor is a place between jobs. It is good for the caller it was given to, of any list, and for no
    other one, who would learn what came before it.
    """
    async with world(Rules.SOME, published) as made:
        for path in ("/api/jobs", "/api/jobs/bulk"):
            given = await made.ask(made.caller(SUPER), "GET", f"{path}?limit=1")
            place = f"{path}?limit=1&cursor={quote(given.json()['cursor'])}"
            assert (await made.ask(made.caller(SUPER), "GET", place)).status == 200
            for other in (READER, "acme's key for one topic", "globex's key to read"):
                got = await made.ask(made.caller(other), "GET", place)
                assert (got.status, got.code) == (422, "invalid_input"), (place, other)


# -- texts ----------------------------------------------------------------------------------------------

INJECTIONS = (
    "'",
    '"',
    "' OR '1'='1",
    "'; DROP TABLE tidewheel_jobs; --",
    "%",
    "_",
    "%%%",
    "\\",
    "\\'",
    "\x00",
    "a\x00b",
    "\ud800".encode("utf-8", "surrogatepass").decode("latin-1"),
    "$.a",
    "$[*]",
    "a.b.c",
    "]]><!--",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "${jndi:ldap://x}",
    "../../etc/passwd",
    "\r\nSet-Cookie: a=b",
    "\u202e\u2066",
    "🦀" * 50,
    "1e999",
    "NaN",
    "-1",
    "9" * 400,
    "(" * 300,
    "not " * 200,
    "payload." * 100,
    "payload.a[0].b:1 OR 1=1",
    'payload."a\\"b":1',
    "age>99999999999999999999y",
    "created>0001-01-01",
    "created<9999-12-31T23:59:59+14:00",
)


async def test_no_text_in_a_query_or_a_path_is_more_than_a_text(published: PublishedKey) -> None:
    """Quotes, wildcards, control characters, markup and walls of brackets: no match or a 4xx, no harm."""
    async with world(Rules.SOME, published) as made:
        for case in cases():
            if case.job is None or (case.job is ACMES and case.query):
                await _inject(made, case)
        assert await made.app.check() == []


NAMED = re.compile(r"\{(topic|key|superuser)(:\w+)?\}")


async def _inject(made: World, case: Case) -> None:
    caller, before = made.caller(SUPER), dump(made.app.store)
    names = [
        name for name, kind in get_type_hints(case.route.query).items() if str in (kind, *get_args(kind))
    ]
    for text in INJECTIONS:
        for name in names if case.route.method == "GET" else ():
            got = await made.ask(caller, "GET", f"{case.path}?{urlencode({name: text})}")
            assert got.status < 500, (name, text, got)
        path = NAMED.sub(quote(text, safe=""), case.path)
        if path != case.path:
            got = await made.ask(made.caller(READER), case.route.method, path, body=case.body)
            assert got.status < 500, (text, got)
    if case.route.method == "GET":
        assert dump(made.app.store) == before


async def test_no_text_in_a_body_or_a_header_is_more_than_a_text(published: PublishedKey) -> None:
    """The same in every text a job can carry; what is accepted comes back as it was given."""
    fields = (
        "topic",
        "task",
        "key",
        "correlation_id",
        "format",
        "until",
        "on_duplicate",
        "run_at",
        "payload",
    )
    async with world(Rules.SOME, published) as made:
        caller = made.caller(SUPER)
        for text in INJECTIONS:
            for name in fields:
                body = {"task": "mail", name: {"to": text} if name == "payload" else text}
                raw = json.dumps(body).encode()
                got = await made.ask(caller, "POST", "/api/jobs/enqueue", raw=raw)
                assert got.status < 500, (name, text, got)
                if got.status in {200, 201} and name in {"key", "correlation_id"}:
                    shown = await made.ask(caller, "GET", f"/api/jobs/{got.json()['id']}")
                    assert shown.json()[name] == text
            for header in ("idempotency-key", "x-correlation-id", "last-event-id", "x-csrf-token", "origin"):
                value = text.encode("utf-8", "replace").decode("latin-1")
                got = await made.ask(
                    caller, "POST", "/api/jobs/enqueue", body={"task": "mail"}, headers={header: value}
                )
                assert got.status < 500, (header, text, got)
        assert await made.app.check() == []
