"""Handlers that hold the interpreter's lock for longer than a lease, as one call of ``re`` can."""

from __future__ import annotations

import os

import pytest

from tests.faults.sites import of_kind
from tests.patience import PATIENCE
from tests.worker.worker_processes import Site, stop
from tidewheel import Tidewheel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as tested here are POSIX")


# Where the handler runs and where its job is kept have nothing to do with each other; each takes leases.
@pytest.mark.parametrize(
    ("site", "task"),
    [("sqlite", "holds_on_the_loop"), ("postgres", "holds_on_a_thread")],
    indirect=["site"],
)
async def test_a_job_that_holds_the_interpreter_is_taken_away_and_settled_once(
    site: Site, app: Tidewheel, task: str
) -> None:
    """No thread of its worker runs meanwhile, so the lease is lost; the newer run's settlement counts."""
    job = await app.enqueue(task, {"seconds": 1.6 * site.lease})
    with site.workers(2) as workers:
        assert await job.result(timeout=PATIENCE) == 2
        site.wait_for("end", number=2)
        said = [stop(worker)[1] for worker in workers]
    await job.refresh()
    assert (job.state, job.attempt, await job.result(timeout=0)) == ("completed", 1, 2)
    assert sum('"lost": 1' in words for words in said) == 1
    held, newer = of_kind(site.events(), "start")
    assert held["fence"] < newer["fence"]
    assert (await app.stats()).completed == 1


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
async def test_in_a_process_of_its_own_it_keeps_its_job(site: Site, app: Tidewheel) -> None:
    """The worker's own interpreter is free to extend the lease, so nobody else gets the job."""
    job = await app.enqueue("holds_in_a_process", {"seconds": 1.3 * site.lease})
    with site.workers(2):
        assert await job.result(timeout=PATIENCE) == 1
    [start], [end] = (of_kind(site.events(), kind) for kind in ("start", "end"))
    assert end["at"] - start["at"] > site.lease
    await job.refresh()
    assert (job.state, job.attempt) == ("completed", 1)
