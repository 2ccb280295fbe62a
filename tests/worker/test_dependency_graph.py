"""A random graph of jobs that run after others, with failures, run by real workers: every rule holds."""

from __future__ import annotations

import asyncio
import random
import time
from uuid import UUID

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import until, working
from tidewheel import Context, Fail, RetryAfter, Tidewheel
from tidewheel.core.model import JobRecord, State

TOGETHER = 20
"""Jobs of one call: those of earlier calls are running, finished or waiting by then."""


async def run_graph(app: Tidewheel, number: int, seed: int) -> dict[UUID, JobRecord]:
    """As many jobs, each after up to four random others, enqueued while workers run them; how they ended."""
    chance = random.Random(seed)

    @app.task(max_attempts=3)
    async def node(ctx: Context, fate: str) -> None:
        if fate == "fails":
            raise Fail("as it was to")
        if fate == "retries" and ctx.attempt == 1:
            raise RetryAfter(0.001)

    known: list[UUID] = []
    async with working(app, concurrency=8), working(app, concurrency=8):
        while len(known) < number:
            wanted = []
            for _ in range(TOGETHER):
                parents = chance.sample(known[-200:], min(chance.choice([0, 1, 1, 2, 2, 4]), len(known)))
                fate = chance.choices(["completes", "fails", "retries"], [88, 6, 6])[0]
                options = {"after": parents, "after_any": chance.random() < 0.4}
                if chance.random() < 0.05:
                    options["delay"] = 0.01
                wanted.append((node, {"fate": fate}, options))
            jobs = await app.enqueue_together(wanted)  # type: ignore[arg-type]
            known += [job.id for job in jobs]
            if chance.random() < 0.3:  # an operator who cancels, one that may be in any state
                await app.store.cancel([chance.choice(known)])
        await until(lambda: all_ended(app, known), patience=PATIENCE)
    return {job_id: record for job_id in known if (record := await app.store.get(job_id)) is not None}


async def all_ended(app: Tidewheel, jobs: list[UUID]) -> bool:
    for start in range(0, len(jobs), 1000):
        states = await app.store.states(jobs[start : start + 1000])
        if any(state is None or not state.final for state in states):
            await asyncio.sleep(0.05)
            return False
    return True


def broken_rules(records: dict[UUID, JobRecord]) -> list[str]:
    """What is not as Q24 has it."""
    found = []
    for record in records.values():
        ran = record.claimed_at is not None
        parents = [records[parent.job_id] for parent in record.after]
        badly = [parent for parent in parents if parent.state is not State.COMPLETED]
        by_parent = (record.error_summary or "").startswith("parent_failed")
        if record.blocked or any(parent.waits for parent in record.after):
            found.append(f"{record.id} has ended and waits")
        if badly and not record.after_any and (record.state is not State.CANCELLED or ran):
            found.append(f"{record.id} ran, though {badly[0].id} was {badly[0].state}")
        if by_parent and (record.after_any or not badly):
            found.append(f"{record.id} was cancelled for a parent, and should not have been")
        if by_parent and not any(str(parent.id) in (record.error_summary or "") for parent in badly):
            found.append(f"{record.id} names a parent that did not fail")
        if ran and record.claimed_at is not None:
            late = [parent for parent in parents if (parent.finished_at or 0) > record.claimed_at]
            found += [f"{record.id} began before {parent.id} had ended" for parent in late]
    return found


async def try_graph(app: Tidewheel, number: int, seed: int) -> dict[UUID, JobRecord]:
    records = await run_graph(app, number, seed)
    assert len(records) == number
    assert broken_rules(records) == []
    assert await app.store.check() == []
    ended = {state: sum(record.state is state for record in records.values()) for state in State}
    assert ended[State.COMPLETED] > number / 4
    assert ended[State.CANCELLED] > number / 20
    return records


async def test_a_random_graph_ends_as_it_should(app: Tidewheel) -> None:
    """Whatever races with what: nobody runs too soon, nobody runs who should not, nobody is left waiting."""
    await try_graph(app, 100, seed=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_a_large_random_graph_ends_as_it_should(app: Tidewheel, seed: int) -> None:
    """Two thousand jobs."""
    began = time.perf_counter()
    records = await try_graph(app, 2000, seed)
    edges = sum(len(record.after) for record in records.values())
    print(
        f"{app.url.split(':')[0]}: {len(records)} jobs, {edges} edges in {time.perf_counter() - began:.1f} s"
    )


def test_a_broken_rule_is_seen() -> None:
    """The checker finds a child that ran after a parent that failed, and one that began too soon."""
    from tidewheel.core.ids import new_id
    from tidewheel.core.model import Relative

    def job(state: State, **more: object) -> JobRecord:
        return JobRecord(
            id=new_id(), number=1, tenant="root", topic="t", task="", state=state, priority=0, attempt=1,
            max_attempts=1, created_at=0, run_at=0, **more,  # type: ignore[arg-type]
        )  # fmt: skip

    parent = job(State.FAILED, claimed_at=1, finished_at=5)
    child = job(State.COMPLETED, claimed_at=4, finished_at=9, after=(Relative(parent.id, State.FAILED),))
    assert len(broken_rules({parent.id: parent, child.id: child})) == 2
