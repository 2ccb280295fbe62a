"""Tasks written as steps: what has finished is not done again, whatever ended the run."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import run, take_away, until, working
from tests.worker.outages import Switch, working_on
from tidewheel import Context, InvalidInput, Job, LeaseLost, Retry, Snooze, Tidewheel
from tidewheel.core.model import Report

AT_ONCE = Retry.fixed(0)


@dataclass
class Order:
    number: int
    placed: datetime


async def test_a_job_resumes_at_its_first_unfinished_step(app: Tidewheel) -> None:
    """Each step is done once, however often the job is run; what follows sees the same outputs."""
    done: Counter[str] = Counter()

    async def fetch(url: str) -> list[int]:
        done["fetch"] += 1
        return [len(url), done["fetch"]]

    def total(rows: list[int], *, more: int) -> int:
        done["total"] += 1
        return sum(rows) + more

    @app.task(max_attempts=5, retry=AT_ONCE)
    async def report(ctx: Context, url: str) -> int:
        rows = await ctx.step("fetch", fetch, url)
        if ctx.attempt == 1:
            raise ConnectionError("between the steps")
        answer = await ctx.step("total", total, rows, more=10)
        if ctx.attempt == 2:
            raise ConnectionError("after the last one")
        return answer

    job = await run(app, await report.enqueue(url="abc"))
    assert (job.state, job.attempt) == ("completed", 3)
    assert await job.result() == 14
    assert done == {"fetch": 1, "total": 1}
    assert [(step.name, step.output, step.attempt) for step in job.steps] == [
        ("fetch", [3, 1], 1),
        ("total", 14, 2),
    ]
    assert all(step.started_at <= step.finished_at and step.seconds >= 0 for step in job.steps)
    assert job.steps[0].finished_at <= job.steps[1].finished_at


async def test_a_step_that_raises_is_not_recorded(app: Tidewheel) -> None:
    """Its exception is the handler's; the next attempt runs it again, and so may the handler itself."""
    tries: list[int] = []

    async def flaky(n: int) -> int:
        tries.append(n)
        if n < 3:
            raise LookupError(n)
        return n

    @app.task(max_attempts=2, retry=AT_ONCE)
    async def work(ctx: Context) -> int:
        if ctx.attempt == 1:
            return await ctx.step("flaky", flaky, 1)
        with pytest.raises(LookupError):
            await ctx.step("flaky", flaky, 2)
        return await ctx.step("flaky", flaky, 3)

    job = await run(app, await work.enqueue())
    assert (job.state, tries) == ("completed", [1, 2, 3])
    assert [attempt.error.message for attempt in job.attempts] == ["LookupError: 1"]
    assert [(step.output, step.attempt) for step in job.steps] == [(3, 2)]


async def test_a_requeued_job_goes_on_where_it_failed(app: Tidewheel) -> None:
    """A dead letter that failed at its second step does not charge the card of the first one again."""
    charged: list[int] = []
    broken = True

    async def charge(cents: int) -> str:
        charged.append(cents)
        return f"receipt {cents}"

    async def ship(receipt: str) -> str:
        if broken:
            raise ConnectionError("no carrier")
        return f"shipped for {receipt}"

    @app.task(max_attempts=1)
    async def order(ctx: Context, cents: int) -> str:
        receipt = await ctx.step("charge", charge, cents)
        await ctx.checkpoint({"seen": receipt})
        return await ctx.step("ship", ship, receipt)

    job = await run(app, await order.enqueue(cents=500))
    assert (job.state, [step.name for step in job.steps]) == ("failed", ["charge"])
    broken = False
    await job.requeue()
    assert (job.state, job.attempt, job.checkpoint) == ("pending", 0, {"seen": "receipt 500"})
    job = await run(app, job)
    assert await job.result() == "shipped for receipt 500"
    assert charged == [500]


async def test_outputs_have_the_type_their_function_promises(app: Tidewheel) -> None:
    """The first run sees what a later one would: what was read back from JSON."""
    placed = datetime(2026, 1, 2, tzinfo=UTC)
    seen: list[list[Any]] = []

    async def typed() -> Order:
        return Order(1, placed)

    def plain() -> Any:
        return Order(2, placed)

    def pair() -> tuple[int, str]:
        return 1, "a"

    def nothing() -> None: ...

    async def other() -> int:
        return "not a number"  # type: ignore[return-value] # as untyped code does

    def promises() -> Awaitable[Order]:
        return typed()

    def unknown(_: Missing | None = None) -> Order:  # type: ignore[name-defined] # noqa: F821 - what is tested
        return Order(5, placed)

    @app.task(max_attempts=2, retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        seen.append(
            [
                await ctx.step("typed", typed),
                await ctx.step("plain", plain),
                await ctx.step("pair", pair),
                await ctx.step("nothing", nothing),
                await ctx.step("other", other),
                await ctx.step("partial", functools.partial(Order, number=3), placed=placed),
                await ctx.step("class", Order, 4, placed),
                await ctx.step("lambda", lambda: typed()),  # noqa: PLW0108 - what is tested
                await ctx.step("promise", promises),
                await ctx.step("unknown", unknown),
            ]
        )
        if ctx.attempt == 1:
            raise ConnectionError

    job = await run(app, await work.enqueue())
    assert job.state == "completed"
    first, second = seen
    text = "2026-01-02T00:00:00Z"
    unread = {"number": 1, "placed": text}
    order = Order(1, placed)
    assert first == second == [
        order, {"number": 2, "placed": text}, (1, "a"), None, "not a number",
        Order(3, placed), Order(4, placed), unread, order, Order(5, placed),
    ]  # fmt: skip


async def test_steps_may_run_at_once_and_each_is_kept_by_itself(app: Tidewheel) -> None:
    """One of them failing takes nothing from the others."""
    runs: Counter[int] = Counter()
    others_done = asyncio.Event()

    async def page(n: int) -> int:
        runs[n] += 1
        if n == 3 and runs[3] == 1:
            await others_done.wait()
            raise ConnectionError
        return n * n

    @app.task(max_attempts=2, retry=AT_ONCE)
    async def crawl(ctx: Context) -> list[int]:
        async def one(n: int) -> int:
            try:
                return await ctx.step(f"page-{n}", page, n)
            finally:
                if runs.total() == 6 and n != 3:
                    others_done.set()

        return await asyncio.gather(*(one(n) for n in range(6)))

    job = await run(app, await crawl.enqueue())
    assert await job.result() == [0, 1, 4, 9, 16, 25]
    assert runs[3] == 2
    finished = {step.name for step in job.steps if step.attempt == 1}
    assert all(runs[n] == 1 for n in range(6) if f"page-{n}" in finished)
    assert len(job.steps) == 6


async def test_a_plain_function_does_not_hold_up_the_event_loop(app: Tidewheel) -> None:
    """It runs on a thread, with the handler's context variables."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    asked, answered = threading.Event(), threading.Event()

    def waits() -> list[str]:
        asked.set()
        assert answered.wait(PATIENCE), "the event loop should go on meanwhile"
        return [variable.get(), threading.current_thread().name]

    @app.task
    async def work(ctx: Context) -> list[str]:
        variable.set("the handler's")

        async def answer() -> None:
            await until(asked.is_set)
            answered.set()

        said, _ = await asyncio.gather(ctx.step("waits", waits), answer())
        return said

    job = await run(app, await work.enqueue())
    value, thread = await job.result()
    assert value == "the handler's"
    assert thread.startswith("tidewheel-handler-")


async def test_plain_handlers_have_steps_too(app: Tidewheel) -> None:
    """On their own thread; an async function cannot be run there, and says so."""
    done: Counter[str] = Counter()
    complaints: list[str] = []

    def fetch(n: int) -> Order:
        done[threading.current_thread().name] += 1
        return Order(n, datetime(2026, 1, 2, tzinfo=UTC))

    async def wrong() -> None: ...

    def hidden() -> Any:
        return wrong()

    @app.task(max_attempts=2, retry=AT_ONCE)
    def work(ctx: Context) -> int:
        order = ctx.sync.step("fetch", fetch, 7)
        for fn in (wrong, hidden):
            with pytest.raises(InvalidInput, match=r"ctx\.sync\.step calls plain functions only") as caught:
                ctx.sync.step("wrong", fn)
            complaints.append(str(caught.value))
        if ctx.attempt == 1:
            raise ConnectionError
        return order.number

    job = await run(app, await work.enqueue())
    assert (await job.result(), job.attempt, done.total()) == (7, 2, 1)
    assert [step.name for step in job.steps] == ["fetch"]
    assert len(complaints) == 4


async def test_steps_may_be_nested(app: Tidewheel) -> None:
    """Inner ones are steps of the job like others: an outer one that is run again finds them done."""
    runs: Counter[str] = Counter()

    @app.task(max_attempts=2, retry=AT_ONCE)
    async def work(ctx: Context) -> int:
        async def inner() -> int:
            runs["inner"] += 1
            return 20

        def deepest() -> int:
            runs["deepest"] += 1
            return 1

        def threaded() -> int:
            return ctx.sync.step("deepest", deepest)

        async def outer() -> int:
            runs["outer"] += 1
            value = await ctx.step("inner", inner) + await ctx.step("threaded", threaded)
            if ctx.attempt == 1:
                raise ConnectionError
            return value

        return await ctx.step("outer", outer)

    job = await run(app, await work.enqueue())
    assert await job.result() == 21
    assert runs == {"outer": 2, "inner": 1, "deepest": 1}
    assert [step.name for step in job.steps] == ["inner", "deepest", "threaded", "outer"]


async def test_a_name_is_used_once_in_a_run(app: Tidewheel) -> None:
    """Finished, found finished or still at work: the second is told, and not run."""
    ran: list[str] = []

    async def touch(what: str) -> None:
        ran.append(what)
        await asyncio.sleep(0)

    @app.task(max_attempts=2, retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        await ctx.step("one", touch, "first")
        with pytest.raises(InvalidInput, match=r"step 'one' was used before in this run; .* in a loop"):
            await ctx.step("one", touch, "second")
        answers = await asyncio.gather(
            ctx.step("both", touch, "this"), ctx.step("both", touch, "that"), return_exceptions=True
        )
        assert [type(answer) for answer in answers] == [type(None), InvalidInput]
        if ctx.attempt == 1:
            raise ConnectionError

    job = await run(app, await work.enqueue())
    assert (job.state, ran) == ("completed", ["first", "this"])


async def test_a_run_that_lost_its_job_cannot_finish_a_step(app: Tidewheel) -> None:
    """What it has done is not taken for something a later run could rely on, and it begins no other."""
    started, rescued, refused = asyncio.Event(), asyncio.Event(), asyncio.Event()
    errors: list[str] = []

    async def slow() -> str:
        started.set()
        await rescued.wait()
        return "too late"

    @app.task
    async def work(ctx: Context) -> None:
        try:
            await ctx.step("slow", slow)
        except LeaseLost as error:
            errors.append(str(error))
            refused.set()
            raise

    job = await work.enqueue()
    async with working(app, topics=["work"]):
        await started.wait()
        await take_away(app, job)
        rescued.set()
        await refused.wait()
    await job.refresh()
    assert (job.state, job.steps) == ("pending", ())
    assert "no longer held by this run" in errors[0]


async def test_a_function_on_a_thread_begins_no_step_after_its_time(app: Tidewheel) -> None:
    """Its job may be running elsewhere by then, and doing this very step."""
    began: list[UUID] = []
    errors: list[str] = []
    go_on = threading.Event()

    @app.task(timeout=0.2, max_attempts=1)
    def work(ctx: Context) -> None:
        ctx.sync.step("one", lambda: 1)
        began.append(ctx.job.id)
        go_on.wait(PATIENCE)
        try:
            ctx.sync.step("two", pytest.fail)
        except LeaseLost:
            errors.append("lost")
            raise

    async with working(app):
        while not began:  # on a busy machine its time is over before the first step
            job = await work.enqueue()
            await until(lambda job=job: _is_failed(job))  # type: ignore[misc]
        go_on.set()
        await until(lambda: len(errors) == len(began))
    for job_id in began:
        assert [step.name for step in (await app.get(job_id)).steps] == ["one"]


async def _is_failed(job: Job[Any]) -> bool:
    return (await job.refresh()).state == "failed"


async def test_a_plain_function_that_does_not_end_keeps_the_slot_of_its_handler(
    app: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """As a handler on a thread does: threads that nobody can stop must not pile up."""
    go_on = threading.Event()
    ends: list[str] = []

    def stuck(name: str) -> None:
        go_on.wait(PATIENCE)
        ends.append(name)

    @app.task(timeout=0.2, max_attempts=1)
    async def work(ctx: Context) -> None:
        await asyncio.gather(ctx.step("one", stuck, "one"), ctx.step("two", stuck, "two"))

    @app.task
    async def other() -> list[str]:
        return ends

    job = await work.enqueue()
    async with working(app, concurrency=1):
        await until(lambda: _is_failed(job))
        await until(lambda: "still runs on a thread and keeps its slot" in caplog.text)
        next_one = await other.enqueue()
        go_on.set()
        assert sorted(await next_one.result(timeout=PATIENCE)) == ["one", "two"]
    assert (await job.refresh()).steps == ()


async def test_steps_survive_a_release(app: Tidewheel) -> None:
    """A run that is given back uncounted has finished what it has finished."""
    runs: Counter[str] = Counter()

    def once() -> int:
        runs["once"] += 1
        return runs["once"]

    @app.task
    async def work(ctx: Context) -> int:
        value = await ctx.step("once", once)
        runs["work"] += 1
        if runs["work"] < 3:
            raise Snooze(0)
        return value

    job = await run(app, await work.enqueue())
    assert (await job.result(), job.attempt, runs) == (1, 1, {"once": 1, "work": 3})


async def test_a_step_waits_for_the_store(app: Tidewheel) -> None:
    """Its output is kept while the database is away, and so is the question what earlier runs have done."""
    switch = Switch()
    runs: list[int] = []

    async def once() -> str:
        runs.append(1)
        switch.down = True
        return "kept"

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> str:
        switch.only, switch.down = {"report", "finished_steps"}, True
        return await ctx.step("once", once)

    async with working_on(app, switch, lease=60):
        job = await work.enqueue()
        await until(lambda: switch.refused["finished_steps"] > 1)
        assert runs == []
        switch.down = False
        await until(lambda: switch.refused["report"] > 1)
        switch.down = False
        assert await job.result(timeout=PATIENCE) == "kept"
    assert (runs, [step.name for step in (await job.refresh()).steps]) == ([1], ["once"])


async def test_an_answer_that_was_lost_does_not_cost_a_step(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written, the worker could not know, and writes it again: the first stands, the run goes on."""
    from tidewheel import StoreUnavailable

    store: Any = app.store
    report, tries = store.report, []

    async def forgetful(reports: list[Report]) -> list[bool]:
        answer: list[bool] = await report(reports)
        tries.append(answer)
        if len(tries) == 1:
            raise StoreUnavailable("the answer was lost")
        return answer

    @app.task(max_attempts=1)
    async def work(ctx: Context) -> int:
        return await ctx.step("one", lambda: 1)

    job = await work.enqueue()
    monkeypatch.setattr(store, "report", forgetful)
    job = await run(app, job)
    assert (await job.result(), tries, len(job.steps)) == (1, [[True], [True]], 1)


async def test_tasks_without_steps_never_ask_for_them(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs that have none pay nothing for those that do."""
    store: Any = app.store
    monkeypatch.setattr(store, "finished_steps", pytest.fail)

    @app.task
    async def work(ctx: Context) -> int:
        await ctx.progress(50)
        return 1

    assert (await run(app, await work.enqueue())).state == "completed"
