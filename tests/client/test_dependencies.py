"""``after`` and ``after_any``, as programs say them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest

from tests.app.conftest import URLS, Finish
from tidewheel import (
    Context,
    InvalidInput,
    Job,
    JobCancelled,
    LimitExceeded,
    ParentNotFound,
    SecurityContext,
    Tidewheel,
    WrongState,
    acting_as,
)
from tidewheel.core.conditions import Compare, Comparison, Field
from tidewheel.core.model import Count, Failed, JobError, Relative, State
from tidewheel.core.timeline import Happening


@pytest.fixture
async def parent(app: Tidewheel) -> Job[Any]:
    return await app.enqueue("parents")


async def test_jobs_are_named_as_handles_ids_and_texts(app: Tidewheel, parent: Job[Any]) -> None:
    """One or several; each counts once."""
    ways: list[Any] = [parent, parent.id, str(parent.id), [parent, parent.id, str(parent.id)], (parent.sync,)]
    for named in ways:
        child = await app.enqueue("children", after=named)
        assert child.after == (Relative(parent.id, None, waits=True),)
        await child.refresh()
        assert child.after == (Relative(parent.id, State.PENDING, waits=True),)
        assert (child.shown_state, child.after_any) == ("blocked", False)
    assert (await app.enqueue("children", after=None)).after == ()
    assert (await parent.dependents()).total == Count(5)
    assert len((await parent.dependents(2)).jobs) == 2


async def test_a_child_runs_when_its_parent_has_completed(
    app: Tidewheel, parent: Job[Any], finish: Finish
) -> None:
    """And whoever waits for its result gets it."""

    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    child = await add.options(after=parent).enqueue(1, 2)
    [entry] = [one for one in (await child.refresh()).timeline if one.what is Happening.BLOCKED]
    assert entry.at == child.created_at
    await app.run_until_idle()
    assert (await child.refresh()).state == "pending"
    await finish(app, parent)
    await app.run_until_idle()
    assert await child.result() == 3
    assert Happening.BLOCKED not in [one.what for one in (await child.refresh()).timeline]


async def test_whoever_waits_for_a_child_learns_that_its_parent_failed(
    app: Tidewheel, parent: Job[Any], finish: Finish
) -> None:
    """By the code, and the job that is to blame."""
    child = await app.enqueue("children", after=[parent])
    await finish(app, parent, Failed(JobError("boom", "it broke")))
    with pytest.raises(JobCancelled, match=str(parent.id)):
        await child.result(5)
    assert (await child.refresh()).error == JobError(
        "parent_failed", f"job {parent.id}, which it waited for, failed", retryable=False
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"after": "soon"}, "no job"),
        ({"after": [3]}, "no job"),
        ({"after": 3}, "no job"),
        ({"after_any": "yes"}, "True or False"),
    ],
)
async def test_what_is_no_job_is_refused(app: Tidewheel, options: Any, says: str) -> None:
    """With the value; nothing is written."""
    with pytest.raises(InvalidInput, match=says):
        await app.enqueue("children", **options)
    assert await app.count() == Count(0)


async def test_too_many_jobs_and_missing_ones_are_refused(app: Tidewheel) -> None:
    """By number, and by name."""
    with pytest.raises(LimitExceeded, match="after names 1,001 jobs"):
        await app.enqueue("children", after=[uuid4() for _ in range(1001)])
    missing = uuid4()
    with pytest.raises(ParentNotFound, match=str(missing)):
        await app.enqueue("children", after=missing)
    assert await app.count() == Count(0)


async def test_a_task_that_is_not_durable_cannot_wait(app: Tidewheel, parent: Job[Any]) -> None:
    """Its jobs are in no store; and nothing in a store can wait for one."""

    @app.task(durable=False)
    async def fleeting() -> None: ...

    with pytest.raises(InvalidInput, match="not durable"):
        await fleeting.options(after=parent).enqueue()
    job = await fleeting.enqueue()
    with pytest.raises(ParentNotFound):
        await app.enqueue("children", after=job)


@pytest.mark.parametrize("said_of", ["job", "task"])
async def test_who_replaces_the_payload_of_a_waiting_job_cannot_wait(
    app: Tidewheel, parent: Job[Any], said_of: str
) -> None:
    """The waiting job would run with the new payload before the jobs it was to run after."""
    options: dict[str, Any] = {"on_duplicate": "replace"}

    async def debounced() -> None: ...

    task = app.task(**(options if said_of == "task" else {}))(debounced)

    said = {"after": parent, "key": "k", **(options if said_of == "job" else {})}
    with pytest.raises(InvalidInput, match="leave out one of the two"):
        await task.options(**said).enqueue()
    assert await app.count() == Count(1)


async def test_tasks_do_not_say_what_their_jobs_run_after(app: Tidewheel) -> None:
    """That is said of a job."""
    with pytest.raises(Exception, match="'after' is no option"):

        @app.task(after=[uuid4()])  # type: ignore[call-overload, untyped-decorator]
        async def later() -> None: ...


async def test_many_and_together_and_put(app: Tidewheel, parent: Job[Any]) -> None:
    """Every way to enqueue."""

    @app.task
    async def each(number: int) -> None: ...

    jobs = await each.options(after=parent).enqueue_many([{"number": n} for n in range(3)])
    jobs += await app.enqueue_together([("children", {}, {"after": [jobs[0]]}), ("children", {}, {})])
    jobs.append(await app.queue.put("children", b"x", after=jobs))
    assert [(await job.refresh()).record.blocked for job in jobs] == [1, 1, 1, 1, 0, 5]
    with pytest.raises(WrongState):
        await app.queue.reserve_job(jobs[-1].id)


@pytest.mark.parametrize("url", [name for name in URLS if name != "memory"], indirect=True)
async def test_a_handler_enqueues_what_follows_in_its_own_transaction(app: Tidewheel) -> None:
    """A job that it enqueued there can be named, and the job itself, which is about to complete."""
    made: list[Job[Any]] = []

    @app.task
    async def first(ctx: Context) -> None:
        await ctx.transaction.execute("SELECT 1")
        made.append(await app.enqueue("second", after=ctx.job.id))
        made.append(await app.enqueue("third", after=made[0]))
        with pytest.raises(ParentNotFound):
            await app.enqueue("fourth", after=uuid4())

    await first.enqueue()
    await app.run_until_idle()
    second, third = made
    assert (await second.refresh()).shown_state == "pending"
    assert (await third.refresh()).shown_state == "blocked"
    assert await app.store.check() == []


async def test_a_row_filter_hides_relatives(app: Tidewheel, parent: Job[Any]) -> None:
    """Who sees only some jobs is not told of others by those it sees."""
    context = replace(
        SecurityContext("root", allow_root=True), only=Compare(Field.TOPIC, Comparison.EQUAL, "children")
    )
    child = await app.enqueue("children", after=parent)
    grandchild = await app.enqueue("children", after=child)
    await app.enqueue("others", after=child)
    with acting_as(context):
        seen = await app.get(child.id)
        assert seen.after == ()
        assert [one.job_id for one in (await seen.dependents()).jobs] == [grandchild.id]
    assert (await child.dependents()).total == Count(2)


async def test_blocking_twins(app: Tidewheel, parent: Job[Any]) -> None:
    """The same on a thread without an event loop."""
    child = await app.enqueue("children", after=parent)
    found = await asyncio.to_thread(parent.sync.dependents)
    assert [one.job_id for one in found.jobs] == [child.id]
