"""What a job's record tells of its life, however often and whenever one looks."""

from __future__ import annotations

import asyncio
import random
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidewheel.core.clock import to_datetime
from tidewheel.core.model import (
    Cancelled,
    Claimed,
    ClaimRequest,
    Completed,
    Failed,
    JobError,
    JobRecord,
    Lane,
    NewJob,
    NewStep,
    OnDuplicate,
    Outcome,
    Progress,
    Released,
    Report,
    Retried,
    Settlement,
    State,
)
from tidewheel.core.timeline import Happening, TimelineEntry, timeline
from tidewheel.stores import Store, create_store
from tidewheel.stores.bounds import StoreLimits
from tidewheel.testing.clock import FrozenClock

BOOM = JobError("boom", "it broke")
LEASE = 60.0

Fact = tuple[Any, ...]


class Life:
    """One job, driven by hand; ``facts`` is everything that happened to it, as it was done."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.store: Store = create_store("memory://", clock=self.clock, limits=StoreLimits())
        self.facts: set[Fact] = set()
        self.held: Claimed | None = None
        self.started = False
        self.steps = 0

    @property
    def now(self) -> int:
        return self.clock.now()

    async def begin(self, delay: float) -> None:
        await self.store.open()
        new = NewJob(id=uuid4(), topic="t", key="k", delay=delay, max_attempts=None)
        (answer,) = await self.store.enqueue([new])
        self.job_id = answer.job_id
        self.facts.add((Happening.ENQUEUED, self.now))
        if delay:
            self.facts.add((Happening.DELAYED, answer.run_at))

    async def record(self) -> JobRecord:
        record = await self.store.get(self.job_id)
        assert record is not None
        return record

    async def do(self, action: str) -> None:
        """Whatever of it is possible now. Every verb has a moment of its own."""
        self.clock.advance(0.001)
        before = await self.record()
        match action:
            case "claim" if self.held is None:
                self.clock.advance(max(0, before.run_at - self.now) / 1e6)
                await self._claim()
            case "start" if self.held and not self.started:
                await self.store.mark_started([self.held.lease])
                self._has_started()
            case "report" if self.held:
                await self.store.report([Report(self.held.lease, progress=Progress(5.0))])
                self._has_started()
                self.facts.add((Happening.PROGRESS, self.now))
            case "step" if self.held:
                self.steps += 1
                step = NewStep(f"s{self.steps}", b"1", 0.0001)
                await self.store.report([Report(self.held.lease, step=step)])
                self._has_started()
                self.facts.add((Happening.STEP, self.now))
            case "retry":
                await self._settle(Retried(5.0, BOOM))
            case "retry at once":
                await self._settle(Retried(0.0, BOOM))
            case "release":
                await self._settle(Released())
            case "snooze":
                await self._settle(Released(7.0))
            case "complete":
                await self._settle(Completed())
            case "fail":
                await self._settle(Failed(BOOM))
            case "give up":
                await self._settle(Cancelled(BOOM))
            case "lose":
                await self._lose()
            case "cancel":
                await self.store.cancel([self.job_id])
                if before.state is State.RUNNING:
                    self.facts.add((Happening.CANCEL_REQUESTED, before.claimed_at))
                elif before.state is State.PENDING:
                    self.facts.add((Happening.CANCELLED, self.now))
            case "requeue" if before.state in (State.FAILED, State.CANCELLED):
                await self.store.requeue([self.job_id])
                self.facts.add((Happening.REQUEUED, self._last_error(before)))
            case "replace":
                await self._replace()

    def _has_started(self) -> None:
        """The first word of a handler records its start."""
        if not self.started:
            self.started = True
            self.facts.add((Happening.STARTED, self.now))

    async def _claim(self) -> None:
        claim = await self.store.claim(ClaimRequest("w", (Lane("t"),), limit=1, lease_seconds=LEASE))
        for claimed in claim.jobs:
            self.held, self.started = claimed, False
            self.facts.add((Happening.CLAIMED, self.now))

    async def _settle(self, outcome: Outcome) -> None:
        if self.held is None:
            return
        if not self.started:  # the store learns of the start together with the end
            self.facts.add((Happening.STARTED, self.now - 100))
        held, self.held = self.held, None
        assert await self.store.settle([Settlement(held.lease, outcome, None if self.started else 0.0001)])
        if isinstance(outcome, Retried | Failed | Cancelled):
            self.facts.add((Happening.ERRORED, self.now))
        await self._came_of_it()

    async def _lose(self) -> None:
        if self.held is None:
            return
        self.held = None
        self.clock.advance(LEASE)
        before = await self.record()
        await self.store.rescue()
        if (await self.record()).attempts != before.attempts:
            self.facts.add((Happening.ERRORED, self.now))
        await self._came_of_it()

    async def _came_of_it(self) -> None:
        after = await self.record()
        if after.state.final:
            self.facts.add((Happening(after.state), self.now))
        elif self._last_error(after) and after.attempt == after.attempts[-1].attempt:
            self.facts.add((Happening.RETRYING, max(after.run_at, after.attempts[-1].ended_at)))
        elif not after.attempts and after.run_at > after.created_at:
            self.facts.add((Happening.DELAYED, after.run_at))

    async def _replace(self) -> None:
        new = NewJob(id=uuid4(), topic="t", key="k", delay=3.0, on_duplicate=OnDuplicate.REPLACE)
        (answer,) = await self.store.enqueue([new])
        if answer.replaced:
            self.facts.add((Happening.DELAYED, answer.run_at))

    @staticmethod
    def _last_error(record: JobRecord) -> int | None:
        return record.attempts[-1].ended_at if record.attempts else None


def fact(entry: TimelineEntry) -> Fact:
    """What an entry claims, in the words of ``Life.facts``."""
    if entry.what in (Happening.DELAYED, Happening.RETRYING):
        return entry.what, entry.until
    if entry.what in (Happening.REQUEUED, Happening.CANCEL_REQUESTED):
        after = entry.id.rpartition("-")[2]
        return entry.what, to_datetime(int(after)) if after.isdigit() else None
    return entry.what, entry.at


def timed(facts: set[Fact]) -> set[Fact]:
    return {(what, None if at is None else to_datetime(at)) for what, at in facts}


ACTIONS = [
    "claim", "claim", "claim", "start", "start", "report", "step", "retry", "retry", "retry at once",
    "release", "snooze", "complete", "fail", "give up", "lose", "cancel", "requeue", "requeue", "replace",
]  # fmt: skip


GIVEN_BACK_AND_CANCELLED = ["claim", "start", "cancel", "release"]
REQUEUED_IN_THE_MIDDLE = ["claim", "retry"] * 14 + ["claim", "fail", "requeue"] + ["claim", "retry"] * 14


def looked_at(actions: list[str]) -> list[tuple[str, bool]]:
    return [(action, True) for action in actions]


@settings(max_examples=150, deadline=None)
@example(delay=0.0, life=looked_at(GIVEN_BACK_AND_CANCELLED))
@example(delay=0.0, life=looked_at(REQUEUED_IN_THE_MIDDLE))
@given(
    delay=st.sampled_from([0.0, 0.0, 10.0]),
    life=st.lists(st.tuples(st.sampled_from(ACTIONS), st.booleans()), max_size=120),
)
def test_who_looks_at_random_moments_sees_everything_once(delay: float, life: list[tuple[str, bool]]) -> None:
    """Every entry is something that happened, nothing has two ids, and what a job's record has lost by its
    end was seen by whoever looked while it was there.
    """
    asyncio.run(_live(delay, life))


@pytest.mark.parametrize("seed", range(20))
def test_the_same_of_long_lives(seed: int) -> None:
    """Hypothesis likes short ones, in which few attempts are ever dropped."""
    choose = random.Random(seed)
    life = [(choose.choice(ACTIONS), choose.random() < 0.5) for _ in range(400)]
    asyncio.run(_live(0.0, life))


async def _live(delay: float, life: list[tuple[str, bool]]) -> None:
    job = Life()
    await job.begin(delay)
    always: dict[str, Fact] = {}
    sometimes: dict[str, Fact] = {}
    told: frozenset[str] = frozenset()  # what a watcher remembers: the ids it has seen and would see again
    news: list[Fact] = []
    for action, look in [("look", True), *life, ("look", True)]:
        await job.do(action)
        seen = timeline(await job.record())
        assert len({entry.id for entry in seen}) == len(seen)
        for entry in seen:
            # An id stands for one thing, whenever it is seen.
            assert always.setdefault(entry.id, fact(entry)) == fact(entry)
            if look:
                sometimes[entry.id] = fact(entry)
        if look:
            news += [fact(entry) for entry in seen if entry.id not in told]
            told = frozenset(entry.id for entry in seen)
    truth = timed(job.facts)
    assert len(set(always.values())) == len(always)
    # No record tells the due time of a snooze after a requeue, nor a start the store learns of too late.
    assert set(always.values()) <= truth
    untold = {what for what, _ in truth - set(always.values())}
    assert untold <= {Happening.DELAYED, Happening.RETRYING, Happening.STARTED}
    assert set(sometimes.values()) <= truth

    # Two requeues without an attempt in between are one to a record, and can be news twice; nothing else is.
    once = [what for what in news if what[0] is not Happening.REQUEUED]
    assert len(once) == len(set(once))
    assert set(news) == set(sometimes.values())

    last = await job.record()
    final = {fact(entry) for entry in timeline(last)}
    assert final <= set(sometimes.values())
    errors = sorted(at for what, at in truth if what is Happening.ERRORED)
    kept = errors if len(errors) <= 20 else errors[:10] + errors[-10:]
    assert {(Happening.ERRORED, at) for at in kept} <= final
    if last.finished_at is not None:
        assert (Happening(last.state), to_datetime(last.finished_at)) in final
