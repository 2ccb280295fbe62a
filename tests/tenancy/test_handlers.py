"""A tenant's handler acts for its tenant; a system job's handler acts for the system."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.stores.all_stores.urls import STORES
from tidewheel import (
    InvalidInput,
    JobFailed,
    JobNotFound,
    NotPermitted,
    SecurityContext,
    Tidewheel,
    acting_as,
)
from tidewheel.testing import in_memory, inline

ACME = SecurityContext("acme", user_id="ada", service_id="web", correlation_id="request-1")


@pytest.fixture(params=STORES)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    async with Tidewheel(STORES[request.param](tmp_path), poll_interval=0.05) as app:
        yield app


async def _run(app: Tidewheel, **options: Any) -> None:
    await app.run_until_idle(handle_signals=False, **options)


async def test_the_context_is_the_jobs_owner(app: Tidewheel) -> None:
    """Tenant, user, service and correlation, as they were when it was enqueued; on the event loop and on
    threads. Nothing of it is left for the next job in the slot.
    """
    seen: list[tuple[str, SecurityContext | None]] = []

    @app.task
    async def on_the_loop(name: str) -> None:
        await asyncio.sleep(0)
        seen.append((name, SecurityContext.current()))

    @app.task
    def on_a_thread(name: str) -> None:
        seen.append((name, SecurityContext.current()))

    for task in (on_the_loop, on_a_thread):
        for number in range(3):
            await task.enqueue(name=f"system {number}")
            with acting_as(ACME):
                await task.enqueue(name=f"acme {number}")
            await task.options(tenant="globex").enqueue(name=f"globex {number}")
    await _run(app, concurrency=1)
    assert len(seen) == 18
    owners = {"system": None, "acme": ACME, "globex": SecurityContext("globex")}
    assert [context for _, context in seen] == [owners[name.split()[0]] for name, _ in seen]
    assert SecurityContext.current() is None


async def test_what_a_handler_enqueues_is_its_tenants(app: Tidewheel) -> None:
    """With the same correlation, user and service, unless it says otherwise; from threads, too."""
    made: list[Any] = []

    @app.task
    async def parent() -> None:
        made.append(await child.enqueue())
        made.append(await app.enqueue("elsewhere", correlation_id="another"))
        made.extend(await asyncio.create_task(child.enqueue_many([{}])))

    @app.task
    def plain_parent() -> None:
        made.append(child.sync.enqueue())

    @app.task
    async def child() -> None: ...

    with acting_as(ACME):
        await parent.enqueue()
        await plain_parent.enqueue()
    try:
        await _run(app)
    finally:
        await asyncio.to_thread(app.sync.close)
    assert len(made) == 4
    assert {job.tenant for job in made} == {"acme"}
    assert {(job.user_id, job.service_id) for job in made} == {("ada", "web")}
    assert sorted(job.correlation_id or "" for job in made) == ["another", *["request-1"] * 3]


async def test_what_a_system_job_enqueues_is_the_systems(app: Tidewheel) -> None:
    """Jobs of the root tenant run in the system context: they may enqueue for anybody."""
    made = []

    @app.task
    async def nightly() -> None:
        made.append(await app.enqueue("mail"))
        made.append(await app.enqueue("mail", tenant="globex"))
        await app.pause("mail", 60)

    await nightly.enqueue()
    await _run(app)
    assert [job.tenant for job in made] == ["root", "globex"]


async def test_a_handler_sees_its_own_tenant_only(app: Tidewheel) -> None:
    """Everything it asks is narrowed, and what is about all tenants is refused; ``acting_as(None)`` is the
    way out, where it is meant.
    """
    foreign = await app.enqueue("mail", tenant="globex")
    told: dict[str, Any] = {}

    @app.task
    async def curious() -> None:
        told["count"] = (await app.count()).total
        with pytest.raises(JobNotFound):
            await foreign.refresh()
        with pytest.raises(InvalidInput):
            await app.enqueue("mail", tenant="globex")
        with pytest.raises(NotPermitted):
            await app.pause("mail")
        with pytest.raises(NotPermitted):
            await app.run_until_idle()
        with acting_as(None):
            told["all"] = (await app.count()).total
        told["again"] = (await app.count()).total

    with acting_as(ACME):
        job = await curious.enqueue()
    await _run(app)
    await job.result(timeout=0)
    assert told == {"count": 1, "all": 2, "again": 1}


async def test_what_a_handler_does_to_its_context_ends_with_it(app: Tidewheel) -> None:
    """One that enters another context and never leaves it, or dies in it, does nobody harm."""
    seen = []

    @app.task(max_attempts=1)
    async def careless(fail: bool) -> None:
        acting_as(SecurityContext("globex")).__enter__()
        if fail:
            raise RuntimeError

    @app.task(max_attempts=1)
    def careless_on_a_thread() -> None:
        acting_as(SecurityContext("globex")).__enter__()

    @app.task
    async def next_one() -> None:
        seen.append(SecurityContext.current())

    @app.task
    def next_on_a_thread() -> None:
        seen.append(SecurityContext.current())

    for fail in (False, True):
        await careless.enqueue(fail=fail)
        await next_one.enqueue()
        await careless_on_a_thread.enqueue()
        await next_on_a_thread.enqueue()
    await _run(app, concurrency=1)
    assert seen == [None] * 4


async def test_whatever_a_handler_is_awaited_as_it_acts_for_its_tenant() -> None:
    """Compiled coroutines are none of Python's own; their code runs in the handler's context all the same."""
    app = Tidewheel("memory://")
    seen = []

    class Compiled:
        def __await__(self) -> Generator[Any, None, None]:
            yield from asyncio.sleep(0).__await__()
            seen.append(SecurityContext.current())

    async def handler() -> None: ...

    task = app.task(handler)
    task.invoke = lambda *_: Compiled()  # type: ignore[method-assign]
    async with app:
        await task.options(tenant="acme").enqueue()
        await task.enqueue()
        await _run(app)
    assert seen == [SecurityContext("acme"), None]


async def test_jobs_of_many_tenants_at_once_do_not_mix() -> None:
    """Handlers of different tenants take turns on one event loop and on threads, each in its own context."""
    app = Tidewheel("memory://")
    started = asyncio.Barrier(10)

    @app.task
    async def waits(tenant: str) -> None:
        await started.wait()
        for _ in range(20):
            assert SecurityContext.current() == SecurityContext(tenant)
            job = await app.enqueue("made", {"for": tenant})
            assert job.tenant == tenant

    async with app:
        for number in range(10):
            with acting_as(SecurityContext(f"tenant-{number}")):
                await waits.enqueue(tenant=f"tenant-{number}")
        await _run(app, concurrency=10)
        made = [job async for job in _all(app, topic="made")]
        assert len(made) == 200
        for job in made:
            await job.refresh()
            assert job.payload == {"for": job.tenant}
        assert (await app.count(state="completed")).total == 10


async def _all(app: Tidewheel, **filters: Any) -> AsyncIterator[Any]:
    cursor = None
    while True:
        page = await app.jobs(limit=200, cursor=cursor, **filters)
        for job in page:
            yield job
        cursor = page.cursor
        if cursor is None:
            return


@pytest.mark.parametrize("start", ["run", "run_until_idle"])
async def test_a_worker_does_not_run_for_one_tenant(start: str) -> None:
    """It serves all of them; what is in force where it runs would be in force for every handler."""
    app = Tidewheel("memory://")
    app.task(name="t")(lambda: None)
    async with app:
        worker = app.worker(handle_signals=False)
        with acting_as(ACME), pytest.raises(NotPermitted, match=r"a worker is about all tenants.*acting_as"):
            await getattr(worker, start)()
        calls: list[Callable[[], Any]] = [app.worker, app.worker_thread]
        for call in calls:
            with acting_as(ACME), pytest.raises(NotPermitted):
                call()


async def test_inline_mode_works_under_a_context() -> None:
    """Tests of a service run its tasks at once, whoever enqueues; handlers act for their owners."""
    app = Tidewheel("memory://")
    seen = []

    @app.task(max_attempts=1)
    async def step(then: int) -> None:
        seen.append(SecurityContext.current())
        if then < 0:
            raise RuntimeError
        if then:
            await step.enqueue(then=then - 1)

    async with in_memory(app):
        with inline(app), acting_as(ACME):
            await step.enqueue(then=2)
            assert SecurityContext.current() == ACME
            with pytest.raises(JobFailed):
                await step.enqueue(then=-1)
    assert seen == [ACME] * 4


async def test_handlers_without_a_tenant_pay_nothing() -> None:
    """For system jobs no context variable is set, not even to None."""
    app = Tidewheel("memory://")
    names = []

    @app.task
    async def look() -> None:
        names.append([variable.name for variable in contextvars.copy_context()])

    @app.task
    def look_on_a_thread() -> None:
        names.append([variable.name for variable in contextvars.copy_context()])

    async with app:
        await look.enqueue()
        await look_on_a_thread.enqueue()
        await _run(app)
    assert len(names) == 2
    assert not [name for found in names for name in found if name == "tidewheel_security_context"]
