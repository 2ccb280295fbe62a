"""Around enqueue and run: middleware, and context variables that travel with jobs."""

from __future__ import annotations

import asyncio
import functools
import sqlite3
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import run
from tidewheel import (
    BY_PAYLOAD,
    BatchContext,
    CallNext,
    ConfigurationError,
    Context,
    HandlerNotFound,
    InvalidInput,
    InvalidPayload,
    Job,
    JobDraft,
    Middleware,
    NotPermitted,
    Retry,
    SecurityContext,
    Tidewheel,
    acting_as,
)
from tidewheel.core.model import BodyFormat
from tidewheel.testing import enqueued

request_id: ContextVar[str] = ContextVar("request_id", default="none")


@pytest.fixture
async def memory() -> Any:
    async with Tidewheel("memory://", poll_interval=0.05) as app:
        yield app


# -- run --------------------------------------------------------------------------------------------------


async def test_middleware_is_nested_in_the_order_it_was_registered(app: Tidewheel) -> None:
    """The first is the outermost; what each returns is what the next one out sees."""
    order: list[str] = []

    def note(name: str) -> Any:
        async def middleware(ctx: Context | BatchContext, call_next: CallNext) -> Any:
            assert isinstance(ctx, Context)
            order.append(f"{name} before {ctx.job.task}")
            answer = await call_next()
            order.append(f"{name} after {answer}")
            return f"{name}({answer})"

        return middleware

    app.middleware(note("first"))
    app.middleware(note("second"))

    @app.task
    async def work() -> str:
        order.append("work")
        return "done"

    job = await run(app, await work.enqueue())
    assert order == [
        "first before work",
        "second before work",
        "work",
        "second after done",
        "first after second(done)",
    ]
    assert await job.result(timeout=PATIENCE) == "first(second(done))"


@pytest.mark.parametrize("plain", [False, True])
async def test_middleware_sees_errors_and_may_replace_them(memory: Tidewheel, plain: bool) -> None:
    """Of async handlers and of plain functions on threads alike."""
    seen: list[str] = []

    @memory.middleware
    async def forgive(ctx: Context | BatchContext, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except KeyError as error:
            seen.append(repr(error))
            return "forgiven"

    if plain:

        @memory.task(name="work", max_attempts=1)
        def work(key: str) -> str:
            raise {"key": KeyError, "value": ValueError}[key]("bad")

    else:

        @memory.task(name="work", max_attempts=1)
        async def work(key: str) -> str:
            raise {"key": KeyError, "value": ValueError}[key]("bad")

    forgiven, failed = await work.enqueue(key="key"), await work.enqueue(key="value")
    await run(memory, failed)
    assert await forgiven.result(timeout=PATIENCE) == "forgiven"
    assert seen == ["KeyError('bad')"]
    assert (failed.state, failed.error and failed.error.message) == ("failed", "ValueError: bad")


async def test_an_error_of_middleware_is_the_jobs(memory: Tidewheel) -> None:
    """Before the handler, which does not run then, or after it; retried by the task's policy."""
    ran: list[int] = []

    @memory.middleware
    async def refuse(ctx: Context | BatchContext, call_next: CallNext) -> Any:
        assert isinstance(ctx, Context)
        if ctx.attempt == 1:
            raise NotPermitted("not now")
        return await call_next()

    @memory.task(retry=Retry.fixed(0))
    async def work() -> str:
        ran.append(1)
        return "done"

    job = await run(memory, await work.enqueue())
    assert await job.result(timeout=PATIENCE) == "done"
    assert ran == [1]
    assert [attempt.error.message for attempt in job.attempts] == ["tidewheel.errors.NotPermitted: not now"]


@pytest.mark.parametrize("plain", [False, True])
async def test_handlers_see_what_middleware_sets(memory: Tidewheel, plain: bool) -> None:
    """In context variables; the next job does not."""
    values: list[str] = []

    @memory.middleware
    async def set_it(ctx: Context | BatchContext, call_next: CallNext) -> Any:
        assert isinstance(ctx, Context)
        values.append(request_id.get())
        request_id.set(str(ctx.job.id))
        return await call_next()

    def work() -> str:
        return request_id.get()

    async def work_async() -> str:
        await asyncio.sleep(0)
        return request_id.get()

    task = memory.task(name="work")(work if plain else work_async)
    first, second = await task.enqueue(), await task.enqueue()
    await memory.run_until_idle(concurrency=1)
    assert await first.result(timeout=PATIENCE) == str(first.id)
    assert await second.result(timeout=PATIENCE) == str(second.id)
    assert values == ["none", "none"]


async def test_the_rest_of_a_run_is_called_once(memory: Tidewheel) -> None:
    """A second call is an error: retries are the task's."""

    @memory.middleware
    async def twice(ctx: Context | BatchContext, call_next: CallNext) -> Any:
        await call_next()
        return await call_next()

    @memory.task(max_attempts=1)
    async def work() -> None: ...

    job = await run(memory, await work.enqueue())
    assert job.error is not None
    assert "called twice" in job.error.message


async def test_a_timeout_counts_middleware_and_reaches_it(memory: Tidewheel) -> None:
    """It is cancelled like a handler, and may clean up."""
    cleaned: list[str] = []

    @memory.middleware
    async def hang(ctx: Context | BatchContext, call_next: CallNext) -> Any:
        try:
            return await call_next()
        finally:
            cleaned.append("cleaned")

    @memory.task(timeout=0.02, max_attempts=1)
    async def work() -> None:
        await asyncio.Event().wait()

    job = await run(memory, await work.enqueue())
    assert job.error is not None
    assert (job.error.code, cleaned) == ("job_timeout", ["cleaned"])


async def test_a_batch_is_one_run(memory: Tidewheel) -> None:
    """Middleware gets its context and the list it answers."""
    seen: list[tuple[int, Any]] = []

    @memory.middleware
    async def note(ctx: Context | BatchContext, call_next: CallNext) -> Any:
        assert isinstance(ctx, BatchContext)
        answer = await call_next()
        seen.append((len(ctx), answer))
        return answer

    @memory.task(batch=10)
    async def work(numbers: list[int]) -> list[int]:
        return [-number for number in numbers]

    jobs = await work.enqueue_many([{"numbers": 1}, {"numbers": 2}])
    await memory.run_until_idle()
    assert seen == [(2, [-1, -2])]
    assert [await job.result(timeout=PATIENCE) for job in jobs] == [-1, -2]


async def test_a_transaction_of_the_handler_goes_on_inside_middleware(app: Tidewheel) -> None:
    """What a handler enqueues in it comes to be with its completion, or not at all."""
    app.middleware(Through())

    @app.task
    async def child() -> None: ...

    @app.task(max_attempts=1)
    async def parent(ctx: Context, fail: bool) -> None:
        await ctx.transaction.fetchval("SELECT 1")
        await child.enqueue()
        if fail:
            raise ValueError("no")

    if app.url.startswith("memory"):
        return  # no SQL there
    await parent.enqueue(fail=True)
    await app.run_until_idle()
    assert (await app.count(task="child")).total == 0
    await parent.enqueue(fail=False)
    await app.run_until_idle()
    assert (await app.count(task="child")).total == 1


class Through(Middleware):
    """Does nothing, around everything."""

    def enqueue(self, job: JobDraft) -> None:
        assert job.topic

    async def run(self, ctx: Context | BatchContext, call_next: CallNext) -> Any:
        assert ctx.worker
        return await call_next()


# -- enqueue ----------------------------------------------------------------------------------------------


async def test_every_way_in_passes_through(app: Tidewheel, tmp_path: Path) -> None:
    """Enqueue by call, name and number, together, as a copy, by put, with a connection of the caller's."""
    seen: list[str] = []

    @app.middleware
    def note(job: JobDraft) -> None:
        seen.append(f"{job.task or '-'} on {job.topic}: {job.payload}")

    @app.task
    async def work(x: int = 0) -> None: ...

    job = await work.enqueue(1)
    await work.options(priority=3).enqueue(2)
    await app.enqueue("work", {"x": 3})
    await app.enqueue_many("work", [{"x": 4}, {"x": 5}])
    await app.enqueue_together([(work, {"x": 6}, {}), ("elsewhere", {"y": 7}, {})])
    await app.enqueue_copy(job.id, patch={"x": 8})
    await app.queue.put("pulled", b"nine")
    wire = app.queue.on_wire()
    await wire.put_batched(
        wire.template("pulled", 60, {}).job(b"by wire", BodyFormat.BYTES), calls_again=False
    )
    if app.url.startswith("sqlite"):
        with sqlite3.connect(tmp_path / "jobs.db") as connection:
            work.using(connection).enqueue(10)
        connection.close()
    else:
        seen.append("work on work: {'x': 10}")
    assert seen == [
        *(f"work on work: {{'x': {number}}}" for number in range(1, 7)),
        "- on elsewhere: {'y': 7}",
        "work on work: {'x': 8}",
        "- on pulled: b'nine'",
        "- on pulled: b'by wire'",
        "work on work: {'x': 10}",
    ]


async def test_middleware_may_change_a_job(app: Tidewheel) -> None:
    """Task, payload, options and headers, each as the one before left it; everything is checked."""

    @app.task
    async def work(x: int) -> int:
        return x

    @app.task(priority=5)
    async def other(x: int, y: str = "") -> list[Any]:
        return [x, y]

    @app.middleware
    def first(job: JobDraft) -> None:
        if job.task == "work":
            job.change(task="other", payload={**job.payload, "y": "why"}, priority=job.priority + 1)

    @app.middleware
    def second(job: JobDraft) -> None:
        job.change(headers={"seen": job.task}, max_attempts=7, timeout=9, correlation_id="c", key="k")
        assert (job.key, job.max_attempts, job.timeout, job.correlation_id) == ("k", 7, 9.0, "c")
        assert (job.delay, job.run_at, job.tenant, job.user_id, job.service_id) == (
            0,
            None,
            "root",
            None,
            None,
        )

    job: Job[Any] = await (await work.enqueue(3)).refresh()
    assert (job.task, job.topic, job.payload) == ("other", "other", {"x": 3, "y": "why"})
    assert (job.priority, job.max_attempts, job.timeout, job.key) == (1, 7, 9.0, "k")
    assert job.record.headers == '{"seen":"other"}'
    await app.run_until_idle()
    assert await job.result(timeout=PATIENCE) == [3, "why"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"payload": {"x": "one"}}, InvalidPayload),
        ({"task": "nowhere"}, HandlerNotFound),
        ({"task": "passing"}, InvalidInput),
        ({"priority": "high"}, InvalidInput),
        ({"delay": 1, "run_at": 2}, InvalidInput),
        ({"headers": {"a": "x" * 5000}}, InvalidInput),
        ({"nonsense": 1}, InvalidInput),
    ],
)
async def test_a_change_that_cannot_be_is_refused_and_nothing_is_written(
    memory: Tidewheel, change: dict[str, Any], why: type[Exception]
) -> None:
    """The caller is told, and the draft is as it was."""

    @memory.task
    async def work(x: int) -> None: ...

    @memory.task(durable=False)
    async def passing(x: int) -> None: ...

    @memory.middleware
    def change_it(job: JobDraft) -> None:
        before = job.job
        try:
            job.change(**change)
        finally:
            assert job.job is before

    with pytest.raises(why):
        await work.enqueue(1)
    assert (await memory.count()).total == 0


async def test_middleware_may_refuse(app: Tidewheel) -> None:
    """Whatever it raises is the caller's, and of several jobs none is written."""

    @app.middleware
    def refuse(job: JobDraft) -> None:
        if job.payload["x"] > 1:
            raise NotPermitted("too many")

    @app.task
    async def work(x: int) -> None: ...

    await work.enqueue(1)
    with pytest.raises(NotPermitted, match="too many"):
        await work.enqueue_many([{"x": 0}, {"x": 1}, {"x": 2}])
    assert (await app.count()).total == 1


async def test_a_key_made_of_the_payload_follows_it(memory: Tidewheel) -> None:
    """Two calls that middleware makes the same are the same job."""

    @memory.middleware
    def fold(job: JobDraft) -> None:
        job.change(payload={"word": job.payload["word"].lower()})

    @memory.task(key=BY_PAYLOAD)
    async def work(word: str) -> None: ...

    first, second = await work.enqueue("Rope"), await work.enqueue("ROPE")
    assert second.duplicate
    assert second.id == first.id


async def test_middleware_acts_for_the_tenant_of_its_caller(memory: Tidewheel) -> None:
    """It cannot hand a job to another one."""

    @memory.middleware
    def move(job: JobDraft) -> None:
        job.change(tenant="other")

    @memory.task
    async def work() -> None: ...

    with acting_as(SecurityContext("acme")), pytest.raises(InvalidInput, match="acts as tenant"):
        await work.enqueue()


async def test_jobs_that_are_not_durable_pass_through_too(memory: Tidewheel) -> None:
    """Their objects stay hidden, and what does not touch them may be changed."""
    marks: list[tuple[bool, Any]] = []

    @memory.middleware
    def note(job: JobDraft) -> None:
        marks.append((job.durable, job.payload))
        job.change(correlation_id="c")
        with pytest.raises(InvalidInput, match="not durable"):
            job.change(payload={})

    memory.carry(request_id)

    @memory.task(durable=False)
    async def work(what: set[int]) -> str:
        return f"{what} {request_id.get()}"

    token = request_id.set("r-9")
    job = await work.enqueue({1, 2})
    request_id.reset(token)
    assert await job.result(timeout=PATIENCE) == "{1, 2} r-9"
    assert (marks, job.correlation_id) == ([(False, None)], "c")


def test_what_is_no_middleware_is_refused() -> None:
    """With what it is called with."""
    app = Tidewheel("memory://")
    register: Any = app.middleware

    class AsyncEnqueue(Middleware):
        async def enqueue(self, job: JobDraft) -> None: ...  # type: ignore[override]

    class PlainRun:
        def run(self, ctx: Any, call_next: Any) -> None: ...

    async def no_arguments() -> None: ...

    for wrong, why in (
        (7, "is no middleware"),
        (AsyncEnqueue, "must be a plain function"),
        (PlainRun(), "must be an async function"),
        (no_arguments, r"called with \(ctx, call_next\)"),
        (lambda: None, r"called with \(job\)"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            register(wrong)

    class HalfRight:
        def enqueue(self, job: JobDraft) -> None: ...

        async def run(self) -> None: ...

    with pytest.raises(ConfigurationError, match="ctx, call_next"):
        register(HalfRight())
    assert not app.registry.middleware.has_enqueue_hooks, (
        "of what was refused not even the right half is there"
    )
    assert not app.registry.middleware.has_run_hooks
    assert register(Through) is Through
    assert app.registry.middleware.wraps_runs


async def test_a_partial_of_an_async_function_is_around_runs(memory: Tidewheel) -> None:
    """What is called counts: it is as async as the function."""
    seen: list[str] = []

    async def around(said: str, ctx: Context | BatchContext, call_next: CallNext) -> Any:
        seen.append(said)
        return await call_next()

    memory.middleware(functools.partial(around, "hello"))

    @memory.task
    async def work() -> None: ...

    await work.enqueue()
    await memory.run_until_idle()
    assert seen == ["hello"]


# -- carried variables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
async def test_variables_travel_with_the_job(app: Tidewheel, plain: bool) -> None:
    """From enqueue to the handler and its callbacks, through retries; who had none leaves the default."""
    app.carry(request_id)
    told: list[str] = []

    def note(ctx: Context, result: Any) -> None:
        told.append(request_id.get())

    def work(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise ValueError("again")
        assert ctx.headers.get("request_id", "none") == request_id.get()
        return request_id.get()

    async def work_async(ctx: Context) -> str:
        return work(ctx)

    options: Any = {"name": "work", "retry": Retry.fixed(0), "on_success": note}
    task: Any = app.task(**options)(work if plain else work_async)
    token = request_id.set("r-1")
    carried = await task.enqueue()
    request_id.reset(token)
    bare = await task.enqueue()
    await app.run_until_idle()
    assert await carried.result(timeout=PATIENCE) == "r-1"
    assert await bare.result(timeout=PATIENCE) == "none"
    assert sorted(told) == ["none", "r-1"]


async def test_jobs_of_jobs_carry_on(memory: Tidewheel) -> None:
    """A handler's own enqueues have what it was given."""
    memory.carry(request_id)

    @memory.task
    async def child() -> str:
        return request_id.get()

    @memory.task
    async def parent() -> str:
        return str((await child.enqueue()).id)

    token = request_id.set("r-2")
    job = await parent.enqueue()
    request_id.reset(token)
    await memory.run_until_idle()
    assert await memory.result(await job.result(timeout=PATIENCE), timeout=PATIENCE) == "r-2"


async def test_a_copy_keeps_what_the_first_job_carried(app: Tidewheel) -> None:
    """And so does a job that is requeued."""
    app.carry(request_id)

    @app.task(max_attempts=1)
    async def work() -> str:
        if request_id.get() != "r-3":
            raise ValueError("lost")
        return "kept"

    token = request_id.set("r-3")
    job = await work.enqueue()
    request_id.set("operator")
    copy = await app.enqueue_copy(job.id)
    request_id.reset(token)
    await app.cancel(job.id)
    await app.requeue(job.id)
    await app.run_until_idle()
    assert [await one.result(timeout=PATIENCE) for one in (job, copy)] == ["kept", "kept"]


async def test_a_batch_has_the_variables_its_jobs_agree_on(memory: Tidewheel) -> None:
    """Each job's own are in its context."""
    locale: ContextVar[str] = ContextVar("locale", default="-")
    memory.carry(request_id, locale)
    seen: list[Any] = []

    @memory.task(batch=10)
    async def work(ctx: BatchContext, numbers: list[int]) -> None:
        seen.append((request_id.get(), locale.get(), [one.headers["locale"] for one in ctx]))

    first = request_id.set("r-4")
    for word in ("de", "fr"):
        second = locale.set(word)
        await work.enqueue(1)
        locale.reset(second)
    request_id.reset(first)
    await memory.run_until_idle()
    assert seen == [("r-4", "-", ["de", "fr"])]


async def test_values_are_texts_or_made_into_texts(memory: Tidewheel) -> None:
    """With a clear error for others, and for too much of them; nothing is written then."""
    depth: ContextVar[Any] = ContextVar("depth")
    level: ContextVar[int] = ContextVar("level", default=0)
    memory.carry(level, dump=str, load=int)
    memory.carry(depth)

    @memory.task
    async def work() -> int:
        return level.get() + 1

    tokens = [level.set(3)]
    with enqueued(memory) as jobs:
        await work.enqueue()
    await memory.run_until_idle()
    assert await jobs[0].result(timeout=PATIENCE) == 4
    level.reset(tokens[0])
    for value, why in ((b"pass", "give app.carry|Give app.carry"), ("x" * 5000, "the limit is 4,096")):
        token = depth.set(value)
        with pytest.raises(InvalidInput, match=why) as refused:
            await work.enqueue()
        assert str(value) not in str(refused.value), "it may be a secret"
        depth.reset(token)
    assert (await memory.count()).total == 1


def test_what_cannot_be_carried_is_refused() -> None:
    """Two variables of one name, names of a trace, what is no variable."""
    app = Tidewheel("memory://")
    carry: Any = app.carry
    app.carry(request_id)
    app.carry(request_id)  # the same again changes nothing
    for arguments, options, why in (
        ((ContextVar("request_id"),), {}, "two context variables"),
        ((ContextVar("traceparent"),), {}, "belong to traces"),
        ((ContextVar("schedule"),), {}, "and schedules"),
        (("name",), {}, "is no contextvars.ContextVar"),
        ((ContextVar("a"),), {"dump": str}, "belong together"),
        ((ContextVar("a"), "name"), {}, "is no contextvars.ContextVar"),
        ((ContextVar("a"), ContextVar("b")), {"dump": str, "load": str}, "belong together"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            carry(*arguments, **options)
    carry(ContextVar("a"))  # nothing of what was refused is there
