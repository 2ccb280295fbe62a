"""The same attacks where there is SQL underneath: a part of the matrix, and texts that could end a quote."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints
from urllib.parse import urlencode

import pytest

from tests.server.security.callers import Caller, PublishedKey
from tests.server.security.cases import A_SCHEDULE, Case, cases
from tests.server.security.oracle import Expected, expected
from tests.server.security.test_bodies import INJECTIONS
from tests.server.security.test_matrix import Surprises
from tests.server.security.test_secrets import MANAGER, READER, SUPER, TOPICAL
from tests.server.security.world import Rules, World, world
from tests.stores.all_stores.urls import STORES
from tidewheel import Every
from tidewheel.core.model import JobFilter

CALLERS = {
    "nobody",
    "a revoked key",
    MANAGER,
    READER,
    TOPICAL,
    "acme's key for one user",
    "globex's key to enqueue and manage and read and work",
    SUPER,
}
STORED = '{"to":"ann","password":"hunter2"}'
"""The payload of every job here, as a search for a text sees it."""
KINDS = ("audit", "bulk", "key", "schedule", "secret", "session", "session_epoch", "superuser")


@pytest.fixture(params=[name for name in STORES if name != "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return STORES[request.param](tmp_path)


async def _dump(made: World) -> Any:
    """What is in a store, as its own verbs tell it."""
    store = made.app.store
    page = await store.list_jobs(JobFilter(), limit=200)
    documents = [
        (kind, document.id, document.version)
        for kind in KINDS
        for document in await store.documents(kind, limit=200)
    ]
    return page.items, documents, await store.topics(), await store.workers()


async def test_refused_requests_and_reading_ones_change_nothing(url: str, published: PublishedKey) -> None:
    """Every route, for one caller of each kind that a store can tell apart: what the oracle expects, and
    the store as it was.
    """
    surprises = Surprises()
    async with world(Rules.SOME, published, url) as made:
        await made.app.schedules.create(A_SCHEDULE, "mail", Every(60))
        before = await _dump(made)
        for case in cases():
            for caller in made.callers:
                if caller.name in CALLERS:
                    await _try(made, case, caller, surprises)
        surprises.check(await _dump(made) == before, "something was left behind")
        surprises.check(await made.app.check() == [], "the store is not sound")
    surprises.tell()


async def _try(made: World, case: Case, caller: Caller, surprises: Surprises) -> None:
    wanted = expected(made.rules, case, caller)
    if wanted is Expected.DONE and case.route.is_mutation:
        return  # what is permitted is tried on the memory store, and by the tests of each route
    job_id = made.standing[case.job] if case.job is not None else ""
    got = await made.ask(caller, case.route.method, case.filled(job_id, made, "f" * 16), body=case.body)
    status, code = wanted.value
    fine = (
        got.status in case.route.responses
        if wanted is Expected.DONE
        else (got.status, got.code) == (status, code)
    )
    surprises.check(fine, case, caller.name, wanted, got)


async def test_no_text_ends_a_quote(url: str, published: PublishedKey) -> None:
    """In every text of a query, in filters and in bodies: a 4xx or no match, and a sound store afterwards."""
    async with world(Rules.SOME, published, url) as made:
        before = await _dump(made)
        for case in cases():
            hints = get_type_hints(case.route.query)
            names = [name for name, kind in hints.items() if str in (kind, *get_args(kind))]
            if case.route.method != "GET" or case.job is not None or case.path != case.route.path:
                continue
            for name in names:
                for text in INJECTIONS:
                    got = await made.ask(made.caller(SUPER), "GET", f"{case.path}?{urlencode({name: text})}")
                    assert got.status in {200, 404, 422}, (case, name, text, got)
        for text in INJECTIONS:
            for term in (
                "topic",
                "error",
                "text",
                "key",
                "payload.to",
                'payload["a"]',
                "user",
                "correlation",
            ):
                where = f"{term}~{_quoted(text)} OR {term}:{_quoted(text)}"
                got = await made.ask(made.caller(SUPER), "GET", f"/api/jobs?{urlencode({'where': where})}")
                assert got.status in {200, 422}, (where, got)
                if got.status == 200 and not (term == "text" and text in STORED):
                    assert got.json()["total"] == 0, (where, got)
        assert await _dump(made) == before
        for text in INJECTIONS:
            body = {"task": "mail", "payload": {"to": text, text[:50]: [text]}}
            for more in ({}, {"key": text}, {"correlation_id": text}):
                got = await made.ask(made.caller(SUPER), "POST", "/api/jobs/enqueue", body={**body, **more})
                assert got.status in {200, 201, 422}, (text, more, got)
        assert await made.app.check() == []


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
