"""Two tenants in one store, each shadowed by a store of its own in which nobody else has ever been.

Whatever a tenant asks must be answered there as here. The answers are compared in words both sides share: a
job is the n-th of its tenant, and of numbers, which are the store's and not the tenant's, nothing is said.
"""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID, uuid4

from tidewheel import (
    Count,
    Job,
    JobPage,
    SecurityContext,
    Stats,
    Tidewheel,
    TidewheelError,
    TopicStats,
    acting_as,
)
from tidewheel.core.model import ClaimRequest, Completed, Failed, JobError, Lane, Outcome, Settlement
from tidewheel.testing.clock import FrozenClock

TOPICS = ("mail", "reports", "billing")
KEYS = (None, None, "k1", "k2", "k3")
STATES = (None, "pending", "running", "completed", "failed", "cancelled", "delayed", "claimed", "retrying")
LEASE_SECONDS = 1e6
FIELDS = (
    *("tenant", "topic", "task", "state", "shown_state", "priority", "key", "correlation_id", "user_id"),
    *("service_id", "attempt", "max_attempts", "timeout", "payload", "checkpoint", "worker", "progress"),
    *(
        "cancel_requested",
        "error",
        "error_summary",
        "attempts",
        "duplicate",
        "replaced",
        "created_at",
        "run_at",
    ),
    *("claimed_at", "started_at", "finished_at", "leased_until"),
)

Verb = Callable[[Tidewheel, "Side"], Awaitable[Any]]


@dataclass
class Side:
    """One tenant's jobs as one app knows them, in the order of their making."""

    app: Tidewheel
    ids: list[UUID] = field(default_factory=list)
    handles: list[Job[Any]] = field(default_factory=list)
    cursor: int | None = None
    known: dict[UUID, int] = field(default_factory=dict)

    def meet(self, job: Job[Any]) -> int:
        if job.id not in self.known:
            self.known[job.id] = len(self.ids)
            self.ids.append(job.id)
            self.handles.append(job)
        return self.known[job.id]

    async def answer(self, verb: Verb) -> Any:
        """What came of it, in common words."""
        try:
            return self._words(await verb(self.app, self))
        except TidewheelError as error:
            text = str(error)
            for job_id, place in self.known.items():
                text = text.replace(str(job_id), f"<{place}>")
            return type(error), text

    def _words(self, value: Any) -> Any:
        match value:
            case Job():
                return (self.meet(value), {name: getattr(value, name) for name in FIELDS})
            case JobPage():
                self.cursor = value.cursor
                return (self._words(list(value)), value.cursor is None, value.total, value.total_exact)
            case list():
                return [self._words(item) for item in value]
            case Stats() | Count() | TopicStats() | None | int() | str():
                return value
            case _:
                raise AssertionError(f"no words for {value!r}")


class Tenant:
    """One of the two, on both sides."""

    def __init__(self, name: str, shared: Tidewheel, alone: Tidewheel) -> None:
        self.context = SecurityContext(name, user_id=f"{name}-user", correlation_id=f"{name}-request")
        self.here, self.alone = Side(shared), Side(alone)

    async def same(self, what: str, verb: Verb) -> None:
        with acting_as(self.context):
            here, alone = await self.here.answer(verb), await self.alone.answer(verb)
        assert here == alone, f"{self.context.tenant} would be told otherwise without the other: {what}"


class Pair:
    """Both, and the dice."""

    def __init__(
        self, shared: Tidewheel, alone: tuple[Tidewheel, Tidewheel], clock: FrozenClock, seed: int
    ) -> None:
        self.shared = shared
        self.clock = clock
        self.dice = random.Random(seed)
        names = ("acme", "globex")
        self.tenants = tuple(Tenant(name, shared, app) for name, app in zip(names, alone, strict=True))
        self.done: dict[str, int] = {}

    async def run(self, operations: int) -> None:
        """So many of each tenant, one after another in a random order; now and then a worker's turn."""
        turns = [*self.tenants] * operations
        self.dice.shuffle(turns)
        for tenant in turns:
            if self.dice.random() < 0.03:
                await self.work()
            if self.dice.random() < 0.05:
                self.clock.advance(self.dice.choice([0.5, 10, 70]))
            other = self.tenants[tenant is self.tenants[0]]
            await self.step(tenant, other)

    async def step(self, tenant: Tenant, other: Tenant) -> None:
        """One operation. Every second id is somebody else's, or nobody's."""
        dice = self.dice
        what, weight = zip(*_OPERATIONS.items(), strict=True)
        [operation] = dice.choices(what, weight)
        self.done[operation.__name__] = self.done.get(operation.__name__, 0) + 1
        await tenant.same(operation.__name__, operation(self, tenant, other))

    async def work(self) -> None:
        """A worker takes all there is, in all three stores, and does what each job's payload says."""
        await _work(self.shared)
        for tenant in self.tenants:
            await _work(tenant.alone.app)

    def place(self, tenant: Tenant, other: Tenant) -> Callable[[Side], UUID]:
        """Which job an operation is about."""
        chance = self.dice.random()
        if chance < 0.5 and tenant.here.ids:
            place = self.dice.randrange(len(tenant.here.ids))
            return lambda side: side.ids[place]
        if chance < 0.9 and other.here.ids:
            theirs = self.dice.choice(other.here.ids)
            return lambda _: theirs
        nobodys = UUID(int=self.dice.getrandbits(128), version=4)
        return lambda _: nobodys

    def filters(self) -> dict[str, Any]:
        dice = self.dice
        chosen = {
            "topic": dice.choice([None, None, *TOPICS]),
            "state": dice.choice(STATES),
            "key": dice.choice([None, None, None, *KEYS]),
            "task": dice.choice([None, None, None, "", "send"]),
            "text": dice.choice([None, None, None, "ok", "boom"]),
            "correlation_id": dice.choice([None, None, "acme-request", "globex-request"]),
        }
        return {name: value for name, value in chosen.items() if value is not None}


async def _work(app: Tidewheel) -> None:
    lanes = tuple(Lane(topic) for topic in (*TOPICS, "send"))
    while jobs := (await app.store.claim(ClaimRequest("worker", lanes, 1000, LEASE_SECONDS))).jobs:
        ended: list[Settlement] = []
        for job in jobs:
            outcome: Outcome | None = None
            if b"ok" in job.payload:
                outcome = Completed(b'"done"')
            elif b"bad" in job.payload:
                outcome = Failed(JobError("boom", "it broke"))
            if outcome is not None:  # others stay in the worker's hands
                ended.append(Settlement(job.lease, outcome, 0.5))
        await app.store.settle(ended)


# -- what a tenant may ask ----------------------------------------------------------------------------------


def enqueue(pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    dice = pair.dice
    options: dict[str, Any] = {
        "key": dice.choice(KEYS),
        "until": dice.choice(["pruned", "finished"]),
        "on_duplicate": dice.choice(["keep", "keep", "replace"]),
        "delay": dice.choice([0, 0, 0, 5, 60]),
        "priority": dice.choice([0, 0, 5, -5]),
    }
    topic, word = dice.choice([*TOPICS, "send"]), dice.choice(["ok", "bad", "hang"])
    return lambda app, _: app.enqueue(topic, {"word": word}, **options)


def enqueue_many(pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    topic, key = pair.dice.choice(TOPICS), pair.dice.choice(KEYS)
    words = [pair.dice.choice(["ok", "bad", "hang"]) for _ in range(pair.dice.randrange(4))]
    return lambda app, _: app.enqueue_many(topic, words, key=key)


def enqueue_for_the_other(pair: Pair, tenant: Tenant, other: Tenant) -> Verb:
    name = pair.dice.choice([other.context.tenant, "root", tenant.context.tenant])
    return lambda app, _: app.enqueue("mail", tenant=name)


def get(pair: Pair, tenant: Tenant, other: Tenant) -> Verb:
    place = pair.place(tenant, other)
    return lambda app, side: app.get(place(side))


def result(pair: Pair, tenant: Tenant, other: Tenant) -> Verb:
    place = pair.place(tenant, other)
    return lambda app, side: app.result(place(side), timeout=0)


def wait_for_the_others_result(pair: Pair, _tenant: Tenant, other: Tenant) -> Verb:
    theirs = pair.dice.choice(other.here.ids) if other.here.ids else uuid4()
    return lambda app, _: app.result(theirs)


def cancel(pair: Pair, tenant: Tenant, other: Tenant) -> Verb:
    place = pair.place(tenant, other)
    return lambda app, side: app.cancel(place(side))


def requeue(pair: Pair, tenant: Tenant, other: Tenant) -> Verb:
    place = pair.place(tenant, other)
    return lambda app, side: app.requeue(place(side))


def take_back(pair: Pair, tenant: Tenant, other: Tenant) -> Verb:
    place = pair.place(tenant, other)
    return lambda app, side: app.take_back(place(side))


def delete(pair: Pair, tenant: Tenant, other: Tenant) -> Verb:
    place = pair.place(tenant, other)
    return lambda app, side: app.delete(place(side))


def use_the_others_handle(pair: Pair, tenant: Tenant, other: Tenant) -> Verb:
    """One that was made under the other's context and came into the wrong hands."""
    verb = pair.dice.choice(["refresh", "cancel", "requeue", "take_back", "delete", "result"])
    if not other.here.handles:
        return get(pair, tenant, other)
    stolen = pair.dice.choice(other.here.handles)
    missing = stolen.id

    async def use(app: Tidewheel, side: Side) -> Any:
        if side is tenant.here:
            return await getattr(Job(app, stolen.record), verb)()
        return await app.get(missing)

    return use


def jobs(pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    filters, limit, offset = pair.filters(), pair.dice.choice([1, 3, 50]), pair.dice.choice([0, 0, 2])
    on = pair.dice.random() < 0.3
    return lambda app, side: app.jobs(
        limit=limit, offset=offset, cursor=side.cursor if on else None, **filters
    )


def count(pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    filters = pair.filters()
    return lambda app, _: app.count(**filters)


def look_for_the_other(pair: Pair, _tenant: Tenant, other: Tenant) -> Verb:
    name = other.context.tenant
    looks: list[Verb] = [
        lambda app, _: app.jobs(tenant=name),
        lambda app, _: app.count(tenant=name),
        lambda app, _: app.stats(tenant=name),
        lambda app, _: app.topics(tenant=name),
        lambda app, _: app.delete_all(tenant=name),
    ]
    return pair.dice.choice(looks)


def act_on_all(pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    filters = pair.filters()
    verb = pair.dice.choice(["cancel_all", "requeue_all", "requeue_all", "take_back_all", "delete_all"])
    return lambda app, _: getattr(app, verb)(**filters)


def stats(_pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    return lambda app, _: app.stats()


def topics(_pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    return lambda app, _: app.topics()


def questions(pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    question = pair.dice.choice(["outstanding", "failed", "stuck", "durations", "duplicates", "last_hour"])

    async def ask(app: Tidewheel, _side: Side) -> str:
        return _without_ids(asdict(await getattr(app.questions, question)()))

    return ask


def task_stats(_pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    async def ask(app: Tidewheel, _side: Side) -> str:
        return repr(await app.task_stats())

    return ask


def _without_ids(value: Any) -> str:
    """As a text: the ids of two stores differ, everything else must not."""
    return re.sub(r"UUID\('[0-9a-f-]+'\)", "<id>", repr(value))


def act_on_everybody(pair: Pair, _tenant: Tenant, _other: Tenant) -> Verb:
    acts: list[Verb] = [
        lambda app, _: app.pause("mail"),
        lambda app, _: app.resume("mail"),
        lambda app, _: app.workers(),
        lambda app, _: app.migrate(),
        lambda app, _: app.check(),
        lambda app, _: app.run_worker(),
        lambda app, _: app.run_until_idle(),
    ]
    return pair.dice.choice(acts)


_OPERATIONS: dict[Callable[[Pair, Tenant, Tenant], Verb], int] = {
    enqueue: 30,
    enqueue_many: 5,
    enqueue_for_the_other: 3,
    get: 10,
    result: 6,
    wait_for_the_others_result: 2,
    cancel: 6,
    requeue: 6,
    take_back: 6,
    delete: 6,
    use_the_others_handle: 5,
    jobs: 12,
    count: 8,
    look_for_the_other: 3,
    act_on_all: 3,
    stats: 5,
    topics: 4,
    questions: 8,
    task_stats: 3,
    act_on_everybody: 3,
}
