"""A queue with several tenants' jobs, the API in front of it, and every kind of caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final
from uuid import UUID

from tests.server.security.callers import (
    ACME,
    GLOBEX,
    JWT_SECRET,
    SUPERUSER,
    Caller,
    PublishedKey,
    make_callers,
)
from tests.server.security.client import Got, ask
from tidewheel import SecurityContext, Tidewheel, acting_as
from tidewheel.core.model import ROOT_TENANT
from tidewheel.server import create_api
from tidewheel.server.api import Api
from tidewheel.stores.memory import MemoryStore
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock

BOUNDED: Final = " && ".join(
    (
        "@request.body.run_at = null",
        "(@request.body.max_attempts <= 3 || @request.body.max_attempts = null)",
        "@request.body.key = null",
        "@request.body.correlation_id = null",
        "@request.body.on_duplicate = null",
        "@request.body.after_any = null",
        "@request.body.task = 'mail'",
    )
)
"""What a caller may say whose jobs are to be plain ones of one task."""


class Rules(Enum):
    """What the operator has set, and so whom the rules let in."""

    CLOSED = ("", "")
    """superusers"""
    SOME = (
        f"@request.auth.id != '' && (@request.auth.service_id != 'bounded' || ({BOUNDED}))",
        (
            "@request.auth.id != ''"
            " && (@request.auth.service_id != 'mailer' || topic = 'mail')"
            " && (@request.auth.service_id != 'personal' || user_id = @request.auth.user_id)"
        ),
    )
    """who shows something, some of them with a row filter"""
    PUBLIC = ("true", "true")
    """everybody"""


@dataclass(frozen=True, slots=True)
class Target:
    """A job that is asked for: whose, and where."""

    name: str
    tenant: str = ACME
    topic: str = "mail"
    user: str | None = None
    gone: bool = False

    @property
    def key(self) -> str:
        """The key of the job that stands there all the time."""
        return "key of " + self.name.replace("'", "")


ACMES: Final = Target("acme's mail of ann", user="ann")
DELETED: Final = Target("a deleted job", user="ann", gone=True)
UNKNOWN: Final = Target("an id of no job", gone=True)
TARGETS: Final = (
    ACMES,
    Target("acme's report of ben", topic="reports", user="ben"),
    Target("globex's mail of ann", tenant=GLOBEX, user="ann"),
    Target("the root tenant's mail", tenant=ROOT_TENANT),
    Target("acme's mail of ben", user="ben"),
    DELETED,
    UNKNOWN,
)
OWNERS: Final = (
    "acme's key to enqueue and manage and read and work",
    "globex's key to enqueue and manage and read and work",
    "a superuser's key to enqueue and manage and read and work",
)
"""Who have started a bulk operation."""
NOBODYS_ID: Final = UUID("01890a5d-ac96-774b-bcce-b302099a8057")


@dataclass
class World:
    """Everything a case needs."""

    rules: Rules
    app: Tidewheel
    api: Api
    clock: FrozenClock
    callers: tuple[Caller, ...]
    standing: dict[Target, UUID] = field(default_factory=dict)
    operations: dict[str, str] = field(default_factory=dict)  # a bulk operation of each of these callers

    async def ask(self, caller: Caller | None, method: str, target: str, **more: Any) -> Got:
        headers = {**({} if caller is None else caller.headers), **more.pop("headers", {})}
        return await ask(self.api, method, target, headers=headers, **more)

    def caller(self, name: str) -> Caller:
        [found] = [caller for caller in self.callers if caller.name == name]
        return found

    async def make(self, target: Target, state: str = "pending", key: str | None = None) -> UUID:
        """A job as the target says, made by the program itself."""
        if target is UNKNOWN:
            return NOBODYS_ID
        context = SecurityContext(target.tenant, user_id=target.user, allow_root=True)
        with acting_as(context):
            job = await self.app.enqueue(target.topic, {"to": "ann", "password": "hunter2"}, key=key)
        if state == "cancelled":
            await self.app.cancel(job.id)
        if target.gone:
            await self.app.delete(job.id)
        elif state == "running":
            await self.app.store.claim_job(job.id, worker="hand", lease_seconds=3600)
        return job.id

    async def make_operation(self, owner: str) -> str:
        """A bulk operation this caller has started, whether or not the rules would let it."""
        caller = self.caller(owner)
        name = (await self.ask(caller, "GET", "/api/jobs/session")).json()["name"]
        with acting_as(None if caller.superuser else SecurityContext(caller.tenant)):
            started = await self.app.bulk.start("cancel", {"key": "of no job"}, actor=name)
        return started.id

    async def forget(self, job_id: UUID) -> None:
        """Remove a job a case had made, whatever became of it."""
        # Verdicts are not looked at: it may be gone already.
        await self.app.store.take_back([job_id])
        await self.app.store.delete([job_id])

    async def quiet(self) -> None:
        """Until nothing goes on in the background any more."""
        while tasks := [task for task in asyncio.all_tasks() if task.get_name().startswith("tidewheel-bulk")]:
            await asyncio.wait(tasks)
        for _ in range(3):  # what was just noted on the side, such as a key's use
            await asyncio.sleep(0)

    def audit_lines(self) -> int:
        return sum(kind == "audit" for kind, _ in _book(self.app.store).documents)

    def sessions(self) -> dict[Any, Any]:
        """The sessions as they are stored."""
        documents = _book(self.app.store).documents
        return {name: document for name, document in documents.items() if name[0] == "session"}

    def put_back(self, sessions: dict[Any, Any]) -> None:
        """Let these sessions be there again."""
        _book(self.app.store).documents.update(sessions)

    def forget_traces(self) -> None:
        """Keep the world as small as it was; the operations that cases ask for stay."""
        documents, kept = _book(self.app.store).documents, set(self.operations.values())
        for kind, name in list(documents):
            if kind in {"audit", "superuser", "schedule"} or (kind == "bulk" and name not in kept):
                del documents[kind, name]


_JOB_FIELDS: Final = (
    "id",
    "state",
    "attempt",
    "priority",
    "run_at",
    "finished_at",
    "cancel_requested",
    "fence",
    "payload",
    "after",
)


def dump(store: Store) -> Any:
    """All there is in a store in memory. Documents by their versions, which grow with every write."""
    book = _book(store)
    return (
        [tuple(getattr(job, name) for name in _JOB_FIELDS) for job in book.jobs.values()],
        sorted(book.keys),
        dict(book.pauses),
        sorted(book.workers),
        {name: document.version for name, document in book.documents.items()},
    )


def _book(store: Store) -> Any:
    assert isinstance(store, MemoryStore)
    return store._table


@contextmanager
def counting(store: Store) -> Iterator[list[str]]:
    """The names of the verbs called meanwhile, in order."""
    called: list[str] = []

    def watched(name: str, verb: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            called.append(name)
            return verb(*args, **named)

        return call

    names = [name for name in vars(Store) if not name.startswith("_") and callable(getattr(Store, name))]
    for name in names:
        setattr(store, name, watched(name, getattr(store, name)))
    try:
        yield called
    finally:
        for name in names:
            delattr(store, name)


def make_app(
    url: str, clock: FrozenClock, rules: Rules, jwks_url: str | None = None, **more: Any
) -> Tidewheel:
    enqueue_rule, manage_rule = rules.value
    app = Tidewheel(
        url,
        clock=clock,
        enqueue_rule=enqueue_rule,
        manage_rule=manage_rule,
        superuser=SUPERUSER,
        jwt_secret=JWT_SECRET,
        jwt_jwks_url=jwks_url,
        jwt_tenant_claim="tenant",
        redact=("password", "card.number"),
        **more,
    )
    for name in ("mail", "reports"):
        app.task(name=name)(_send)
    return app


def _send(to: str = "", password: str = "", **rest: Any) -> None:
    """A task's body is never run here."""


@asynccontextmanager
async def world(rules: Rules, published: PublishedKey, url: str = "memory://") -> AsyncIterator[World]:
    """Opened, with one job of each target and every key used once."""
    clock = FrozenClock()
    async with make_app(url, clock, rules, published.url) as app:
        api = create_api(app)
        await api.open()
        made = World(rules, app, api, clock, await make_callers(app, clock, published))
        for target in TARGETS:
            made.standing[target] = await made.make(target, key=target.key)
        for owner in OWNERS:
            made.operations[owner] = await made.make_operation(owner)
        for caller in made.callers:  # a key's first use is noted; time stands still, so no later one is
            await made.ask(caller, "GET", "/api/jobs")
        await made.quiet()
        try:
            yield made
        finally:
            await api.close()
