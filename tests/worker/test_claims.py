"""Claims that are not answered: a worker neither waits for them for long, nor loses what they grant."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import cast

import pytest

from tests.patience import PATIENCE
from tests.servers.shared import empty_url
from tests.stores.postgres.proxy import Proxy
from tests.worker.helpers import until, working
from tests.worker.outages import Switch, SwitchedStore, working_on
from tidewheel import Context, Tidewheel
from tidewheel.core.model import Claim, ClaimRequest
from tidewheel.stores.postgres import database
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker import Worker, worker
from tidewheel.worker.lease_keeper import LeaseKeeper


async def test_a_claim_that_is_never_answered_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection that has gone silent does not stop a worker."""
    monkeypatch.setattr(worker, "CLAIM_TIMEOUT_SECONDS", 0.1)
    async with Tidewheel("memory://", poll_interval=0.05) as app:

        @app.task
        async def work() -> str:
            return "done"

        switch = Switch()
        switch.silent = {"claim"}
        job = await work.enqueue()
        async with working_on(app, switch):
            await until(lambda: switch.unheard["claim"] > 1)
            switch.silent = set()
            assert await job.result(timeout=PATIENCE) == "done"


@pytest.mark.parametrize("cancel", [False, True], ids=["stopped", "cancelled"])
async def test_a_worker_that_is_to_stop_does_not_wait_for_its_claim(
    monkeypatch: pytest.MonkeyPatch, *, cancel: bool
) -> None:
    """It gives the claim a moment, however it is told to stop."""
    monkeypatch.setattr(worker, "STOP_CLAIM_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(worker, "CLAIM_TIMEOUT_SECONDS", 10 * PATIENCE)
    async with Tidewheel("memory://") as app:

        @app.task
        async def work() -> None:
            pass

        switch = Switch()
        switch.silent = {"claim"}
        running = Worker(
            cast("Store", SwitchedStore(app.store, switch)), app.registry, app.settings, handle_signals=False
        )
        run = asyncio.create_task(running.run())
        await until(lambda: switch.unheard["claim"] > 0)
        if cancel:
            run.cancel()
        else:
            running.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait((run,))
        assert run.cancelled() == cancel


async def test_what_a_lost_reply_granted_is_run_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claim is given up, and what it granted given back by the next one: no lease has to end first."""
    monkeypatch.setattr(worker, "CLAIM_TIMEOUT_SECONDS", 0.2)
    async with Proxy(empty_url()) as proxy, Tidewheel(proxy.url, lease=600, poll_interval=0.05) as app:

        @app.task
        async def work() -> str:
            return "done"

        silent = proxy.lose_reply(".claim(", cut=False)
        job = await work.enqueue()
        async with working(app):
            await silent.wait()
            assert await job.result(timeout=PATIENCE) == "done"
        await job.refresh()
        assert job.attempt == 1


async def test_a_worker_stops_though_its_server_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after the time that a statement may take: ``working`` waits for the end, and not for that long."""
    monkeypatch.setattr(worker, "STOP_CLAIM_TIMEOUT_SECONDS", 0.1)
    monkeypatch.setattr(database, "STATEMENT_SECONDS", 10 * PATIENCE)
    async with Proxy(empty_url()) as proxy, Tidewheel(proxy.url, poll_interval=0.05) as app:

        @app.task
        async def work() -> None:
            pass

        async with working(app):
            await (await work.enqueue()).result(timeout=PATIENCE)
            silent = proxy.lose_reply(".claim(", cut=False)
            await silent.wait()


async def test_a_claim_given_up_while_a_file_is_busy_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes goes on when nobody waits; what it grants then is given back at once."""
    monkeypatch.setattr(worker, "CLAIM_TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr(worker, "STOP_CLAIM_TIMEOUT_SECONDS", 0.05)
    path = tmp_path / "jobs.db"
    async with Tidewheel(f"sqlite:///{path}", lease=600, poll_interval=0.05) as app:

        @app.task
        async def work() -> str:
            return "done"

        outsider = sqlite3.connect(path, isolation_level=None)
        async with working(app) as running:
            await (await work.enqueue()).result(timeout=PATIENCE)
            job = await work.options(delay=0.1).enqueue()
            outsider.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(0.25)  # longer than any claim may take elsewhere
            outsider.execute("ROLLBACK")
            outsider.close()
            assert await job.result(timeout=PATIENCE) == "done"
        await job.refresh()
        assert (job.attempt, running.tally.completed) == (1, 2)


class _LateStore(SwitchedStore):
    """The first answer to a claim takes as long as a lease, or as this part of one."""

    def __init__(self, inner: Store, clock: FrozenClock, leases: float = 1.0) -> None:
        super().__init__(inner, Switch())
        self._clock = clock
        self._leases = leases
        self._claims = 0

    async def claim(self, request: ClaimRequest) -> Claim:
        claim = await self._inner.claim(request)
        self._claims += 1
        if self._claims == 1:
            self._clock.advance(request.lease_seconds * self._leases)
        return claim


async def test_a_job_whose_lease_ended_on_its_way_is_not_started() -> None:
    """Its worker knows when it asked; somebody else may run the job by now."""
    clock = FrozenClock()
    async with Tidewheel("memory://", clock=clock, poll_interval=0.02) as app:
        fences: list[int] = []

        @app.task
        async def work(ctx: Context) -> None:
            fences.append(ctx.fence)

        job = await work.enqueue()
        store = cast("Store", _LateStore(app.store, clock))
        running = Worker(store, app.registry, app.settings, clock=clock, handle_signals=False)
        run = asyncio.create_task(running.run())
        await job.result(timeout=PATIENCE)
        running.stop()
        await run
        assert fences == [2]
        assert running.tally.lost == 1


@pytest.mark.parametrize(("leases", "expected"), [(0.9, 1), (0.2, 0)], ids=["late", "in time"])
async def test_leases_that_arrive_late_are_extended_at_once(
    monkeypatch: pytest.MonkeyPatch, leases: float, expected: int
) -> None:
    """What is left of them may be less than the time to the keeper's next look."""
    looks: list[str] = []
    monkeypatch.setattr(LeaseKeeper, "check_now", lambda _: looks.append("now"))
    monkeypatch.setattr(LeaseKeeper, "stop", lambda self: setattr(self, "_stopped", True))
    clock = FrozenClock()
    async with Tidewheel("memory://", clock=clock, poll_interval=0.02) as app:

        @app.task
        async def work() -> None:
            pass

        job = await work.enqueue()
        store = cast("Store", _LateStore(app.store, clock, leases))
        running = Worker(store, app.registry, app.settings, clock=clock, handle_signals=False)
        run = asyncio.create_task(running.run())
        await job.result(timeout=PATIENCE)
        running.stop()
        await run
        assert len(looks) == expected
