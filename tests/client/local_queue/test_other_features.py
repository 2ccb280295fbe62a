"""The lane beside the other parts: tenants, callbacks, transactions, handlers that do not stop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidewheel import Context, JobNotFound, NotPermitted, SecurityContext, Tidewheel, WrongState, acting_as
from tidewheel.testing import in_memory, inline


@pytest.mark.parametrize("verb", ["get", "result", "cancel", "delete", "requeue"])
async def test_another_tenants_job_is_not_there(app: Tidewheel, verb: str) -> None:
    """Neither one that runs nor one that has ended, and without waiting for it."""
    gate = threading.Event()

    @app.task(durable=False)
    def work(wait: bool) -> object:
        if wait:
            gate.wait(PATIENCE)
        return gate

    with acting_as(SecurityContext("acme")):
        ended, running = await work.enqueue(False), await work.enqueue(True)
        assert await ended.result(timeout=PATIENCE) is gate
    with acting_as(SecurityContext("globex")):
        for job in (ended, running):
            with pytest.raises(JobNotFound):
                await asyncio.wait_for(getattr(app, verb)(job.id), PATIENCE)
            with pytest.raises(JobNotFound):
                await job.refresh()
        with pytest.raises(NotPermitted):
            app.lane.stats()
    gate.set()
    with acting_as(SecurityContext("acme")):
        assert await running.result(timeout=PATIENCE) is gate


async def test_keys_are_each_tenants_own(app: Tidewheel) -> None:
    """As they are for durable jobs."""

    @app.task(durable=False)
    async def work() -> None: ...

    jobs = []
    for tenant in ("acme", "globex", "acme"):
        with acting_as(SecurityContext(tenant)):
            jobs.append(await work.options(key="k").enqueue())
    assert [job.duplicate for job in jobs] == [False, False, True]


async def test_callbacks_get_the_object_itself_under_its_owner(app: Tidewheel) -> None:
    """Also while a test has put the app on another store."""
    told: list[tuple[object, Any]] = []
    called = asyncio.Event()
    loop = asyncio.get_running_loop()
    gate = threading.Event()

    async def on_success(ctx: Context, result: object) -> None:
        told.append((result, SecurityContext.current()))
        loop.call_soon_threadsafe(called.set)

    @app.task(durable=False, on_success=on_success)
    def work(thing: list[str]) -> object:
        gate.wait(PATIENCE)
        return thing

    thing = ["the very object"]
    with acting_as(SecurityContext("acme", user_id="ada")):
        await work.enqueue(thing)
    async with in_memory(app):
        gate.set()
        await asyncio.wait_for(called.wait(), PATIENCE)
    assert told == [(thing, SecurityContext("acme", user_id="ada"))]
    assert told[0][0] is thing


async def test_a_transaction_is_refused_with_the_reason(app: Tidewheel) -> None:
    """There is a database, but no durable job to end in it."""

    @app.task(durable=False, max_attempts=1)
    async def work(ctx: Context) -> str:
        with pytest.raises(WrongState, match="not durable"):
            await ctx.transaction.execute("SELECT 1")
        return "refused"

    assert await (await work.enqueue()).result(timeout=PATIENCE) == "refused"


async def test_inline_does_not_wait_for_the_transaction_it_is_called_in(app: Tidewheel) -> None:
    """A lane job from a handler with an open transaction runs after it."""
    ran: list[str] = []

    @app.task(durable=False)
    async def note() -> None:
        ran.append("note")

    @app.task(max_attempts=1)
    async def pay(ctx: Context) -> None:
        await ctx.transaction.execute("CREATE TABLE mine (name TEXT)")
        await note.enqueue()
        ran.append("pay")

    with inline(app):
        job = await pay.enqueue()
    assert (job.state, job.error) == ("completed", None)
    assert ran[0] == "pay"


async def test_a_handler_that_does_not_stop_costs_nobody_else_their_job(tmp_path: Path) -> None:
    """A fresh worker takes the lane over; what waits, and what was kept, stays."""
    app = Tidewheel(f"sqlite:///{tmp_path / 'other.db'}", lane_concurrency=2, shutdown_grace=0.2)
    release = threading.Event()

    @app.task(durable=False, timeout=0.05, max_attempts=1)
    def deaf() -> None:
        release.wait(PATIENCE)

    @app.task(durable=False)
    async def work(number: int) -> int:
        await asyncio.sleep(0.5)
        return number

    async with app:
        before = await work.enqueue(0)
        assert await before.result(timeout=PATIENCE) == 0
        await deaf.enqueue()
        jobs = [await work.enqueue(number) for number in range(1, 15)]
        assert [await job.result(timeout=PATIENCE) for job in jobs] == list(range(1, 15))
        assert await before.result(timeout=PATIENCE) == 0
        release.set()
