"""An outcome that the store will not take, although it is there: nobody but its own job suffers for it."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

import pytest

from tests.patience import PATIENCE
from tests.worker.helpers import state_is, until
from tests.worker.outages import Switch, working_on
from tidewheel import Tidewheel
from tidewheel.testing.clock import FrozenClock


async def test_an_outcome_that_is_refused_holds_up_no_other(
    app: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """What finished with it and after it is settled; it is tried again, and written once that works."""

    @app.task
    async def work(n: int) -> int:
        return n

    caplog.set_level(logging.WARNING, "tidewheel")
    switch = Switch()
    poisoned, *others = await work.enqueue_many([{"n": n} for n in range(5)])
    switch.poison = {poisoned.id}
    async with working_on(app, switch, lease=60) as running:
        assert [await job.result(timeout=PATIENCE) for job in others] == [1, 2, 3, 4]
        assert await (await work.enqueue(n=5)).result(timeout=PATIENCE) == 5
        await until(lambda: switch.refused["poison"] >= 4)
        assert caplog.text.count("an outcome was refused") == 1
        assert await state_is(poisoned, "running")
        switch.poison = set()
        assert await poisoned.result(timeout=PATIENCE) == 0
    assert (running.tally.completed, running.tally.lost) == (6, 0)


async def test_an_outcome_that_is_refused_for_a_lease_is_given_up(
    app: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease ends like that of a worker that died. The first loss only makes it a suspect."""
    clock = FrozenClock()
    runs: Counter[int] = Counter()
    with app.on_store("memory://", clock=clock):
        async with app:

            @app.task(max_attempts=2)
            async def work() -> None:
                runs[0] += 1

            switch = Switch()
            job = await work.enqueue()
            switch.poison = {job.id}
            async with working_on(app, switch, lease=10, concurrency=1) as running:

                async def refuse_for_a_lease() -> None:
                    before = running.tally.lost
                    switch.refused.clear()
                    await until(lambda: switch.refused["poison"] > 0)
                    clock.advance(11)
                    await until(lambda: running.tally.lost > before)

                for _ in range(3):
                    await refuse_for_a_lease()
                await until(lambda: state_is(job, "failed"))
    assert runs[0] == 3
    assert caplog.text.count("was refused for a whole lease") == 3


async def test_a_settler_that_is_cancelled_among_refusals_forgets_nothing(app: Tidewheel) -> None:
    """An event loop that ends cancels everything at once; the outcomes are written all the same."""

    @app.task
    async def work(n: int) -> int:
        return n

    switch = Switch()
    jobs = await work.enqueue_many([{"n": n} for n in range(5)])
    switch.poison = {job.id for job in jobs}
    async with working_on(app, switch, lease=60) as running:
        await until(lambda: switch.refused["poison"] > 5)
        switch.poison = set()
        switch.silent = {"settle"}
        await until(lambda: switch.unheard["settle"] > 0)  # one by one
        assert running._run_state is not None
        settling = running._run_state.settler_task
        assert settling is not None
        settling.cancel()
        await asyncio.wait((settling,))
        switch.silent = set()
    assert (running.tally.completed, running.tally.lost) == (5, 0)
    for job in jobs:
        assert await state_is(job, "completed")


async def test_a_worker_that_stops_tells_what_is_refused(
    app: Tidewheel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not wait for the end of a lease, and its last words count that outcome."""
    monkeypatch.setattr("tidewheel.worker.worker.SETTLE_GRACE_SECONDS", 0.1)

    @app.task
    async def work() -> None:
        pass

    switch = Switch()
    job = await work.enqueue()
    switch.poison = {job.id}
    async with working_on(app, switch, lease=3600):
        await until(lambda: switch.refused["poison"] > 1)
    assert "1 outcomes could not be written before the worker ended" in caplog.text
