"""One tenant learns nothing of another: its answers are those of a queue in which the other never was."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from tests.server.security.callers import ACME, GLOBEX, bearer
from tests.server.security.cases import Case, cases
from tests.server.security.client import Got, ask
from tests.server.security.world import ACMES, Rules, make_app
from tidewheel import Job, SecurityContext, Tidewheel, acting_as
from tidewheel.core.model import (
    ClaimRequest,
    Completed,
    Failed,
    JobError,
    Lane,
    Outcome,
    Settlement,
    WorkerRecord,
)
from tidewheel.server import create_api
from tidewheel.server.api import Api
from tidewheel.server.events.ring_buffer import EventKind, EventRing, TopicSubject
from tidewheel.testing.clock import FrozenClock

KINDS: dict[str, dict[str, Any]] = {
    "all": {},
    "reading": {"scopes": ["read"]},
    "one topic": {"service_id": "mailer"},
    "one user": {"service_id": "personal", "user_id": "ann"},
}
_cursor = re.compile(rb'"cursor":"[^"]+"')
_event_id = re.compile(rb"(?m)^id: [A-Za-z0-9_-]{32}$")


@dataclass
class Queue:
    """A queue with acme's jobs, and how to tell their ids."""

    app: Tidewheel
    api: Api
    clock: FrozenClock
    ids: list[UUID] = field(default_factory=list)
    keys: dict[str, Any] = field(default_factory=dict)

    async def enqueue(self, tenant: str, topic: str, user: str, **options: Any) -> UUID:
        with acting_as(SecurityContext(tenant, user_id=user)):
            job: Job[Any] = await self.app.enqueue(topic, {"to": user}, **options)
        if tenant == ACME:
            self.ids.append(job.id)
        return job.id

    async def run(self, tenant: str, topic: str, outcome: Outcome) -> None:
        """Take the next job, which is this tenant's, and end it like this."""
        store = self.app.store
        claim = await store.claim(ClaimRequest(f"worker of {tenant}", (Lane(topic),), 1, 60.0))
        assert [job.tenant for job in claim.jobs] == [tenant]
        await store.mark_started([job.lease for job in claim.jobs])
        await store.settle([Settlement(job.lease, outcome) for job in claim.jobs])

    async def told(self, kind: str, target: str) -> tuple[int, Any, bytes]:
        """What acme is told, without what every queue makes up for itself."""
        key = self.keys[kind]
        got: Got = await ask(self.api, "GET", target, headers=bearer(key.key))
        body = _event_id.sub(b"id: <id>", _cursor.sub(b'"cursor":"<cursor>"', got.body))
        body = body.replace(key.info.id.encode(), b"<key>")
        for place, job_id in enumerate(self.ids):
            body = body.replace(str(job_id).encode(), f"<{place}>".encode())
        headers = [(name, value) for name, value in got.headers if name != b"content-length"]
        return got.status, headers, body


@asynccontextmanager
async def _queue(*, shared: bool) -> AsyncIterator[Queue]:
    """Acme's day; ``shared`` with globex, which does all sorts of things in between."""
    clock = FrozenClock()
    async with make_app("memory://", clock, Rules.SOME) as app:
        api = create_api(app)
        await api.open()
        made = Queue(app, api, clock)
        for kind, options in KINDS.items():
            made.keys[kind] = await app.access.create_key("", tenant=ACME, **options)
        if shared:
            await _globex(made)
        for topic, user in (("mail", "ann"), ("mail", "ben"), ("reports", "ann"), ("mail", "ann")):
            await made.enqueue(ACME, topic, user, priority=5)
        await made.enqueue(ACME, "mail", "ann", key="k", delay=60)
        if shared:
            await _globex(made)
        await made.run(ACME, "mail", Completed(b"1"))
        await made.run(ACME, "mail", Failed(JobError("ValueError", "no such user")))
        if shared:
            await _globex(made)
            await app.pause("globex-only")
            await app.access.create_key("globex", tenant=GLOBEX)
        clock.advance(7)
        try:
            yield made
        finally:
            await api.close()


async def _globex(made: Queue) -> None:
    """Jobs before, between and after; the same keys, users and topics, and some of its own."""
    for topic in ("mail", "reports", "globex-only"):
        for user in ("ann", "ben"):
            await made.enqueue(GLOBEX, topic, user, priority=9 if topic != "reports" else -9)
    await made.enqueue(GLOBEX, "mail", "ann", key="k", priority=-9)  # after acme's
    await made.run(GLOBEX, "mail", Completed(b"2"))
    await made.run(GLOBEX, "mail", Failed(JobError("ValueError", "globex's error")))
    await made.run(GLOBEX, "globex-only", Failed(JobError("GlobexError", "of its own")))
    last = await made.enqueue(GLOBEX, "reports", "ann")
    await made.app.cancel(last)
    now = await made.app.store.now()
    await made.app.store.heartbeat(
        WorkerRecord(name="globex's", host="host", pid=1, version="0", started_at=now)
    )
    bulk = await made.app.bulk.start("cancel", {"topic": "globex-only", "tenant": GLOBEX}, actor="globex")
    assert bulk.matched
    await made.app.bulk.close()


async def test_a_tenant_is_told_what_it_would_be_told_alone() -> None:
    """Every GET route, byte for byte and header for header, ids and random texts aside: lists, counts,
    series, durations, topics, questions, events, and the errors of what does not exist.
    """
    async with _queue(shared=True) as shared, _queue(shared=False) as alone:
        tried = 0
        for case in cases():
            if case.route.method != "GET" or case.job not in (None, ACMES):
                continue
            for place in range(len(shared.ids)) if case.job is not None else (0,):
                targets = [(_target(case, one.ids[place]), one) for one in (shared, alone)]
                for kind in KINDS:
                    for query in _queries(case):
                        here, there = [await one.told(kind, target + query) for target, one in targets]
                        assert here == there, f"{case} {query} tells {kind} of globex"
                        tried += 1
        assert tried > 300


def _queries(case: Case) -> list[str]:
    fields = case.route.query.__struct_fields__
    queries = [""]
    if "offset" in fields:
        queries += ["?limit=1", "?limit=2&offset=1"]
    if "cursor" in fields:
        queries += ["?limit=1", "?limit=2"]
    if "where" in fields:
        queries += ["?where=topic:globex-only", "?where=state:failed", "?where=error:globex", "?key=k"]
    return queries


def _target(case: Case, job_id: UUID) -> str:
    path = re.sub(r"\{operation:\w+\}", "01890a5d-ac96-774b-bcce-b302099a8057", case.path)
    return re.sub(r"\{id:\w+\}", str(job_id), path) + case.query.format(id=job_id)


async def test_ids_of_events_tell_nothing_of_other_tenants() -> None:
    """All events of a server have one numbering. Ids are texts of which no two are alike, whether or not
    something happened in between, so that nobody counts what happens to others.
    """
    ring = EventRing()
    ids = [ring.id_at(ring.head).decode() for _ in range(50)]
    for number in range(50):
        ring.add(TopicSubject(GLOBEX, f"topic-{number}"), EventKind.TOPIC, b"{}")
        ids.append(ring.id_at(ring.head).decode())
    assert len(set(ids)) == 100
    assert len({len(one) for one in ids}) == 1
    assert [ring.position_of(one) for one in ids] == [0] * 50 + list(range(1, 51))
    for one in ids:
        for place in range(len(one)):
            bent = one[:place] + ("A" if one[place] != "A" else "B") + one[place + 1 :]
            assert ring.position_of(bent) is None
    assert EventRing().position_of(ids[0]) is None


async def test_a_leak_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is not blind: a single verb that forgets its tenant is caught."""
    async with _queue(shared=True) as shared, _queue(shared=False) as alone:
        store = shared.app.store
        topics = store.topics

        async def forgetful(*, tenant: str | None = None) -> Any:
            del tenant
            return await topics(tenant=None)

        monkeypatch.setattr(store, "topics", forgetful)
        here, there = [await one.told("all", "/api/jobs/topics") for one in (shared, alone)]
        assert here != there
