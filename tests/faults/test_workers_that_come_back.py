"""Workers that stop for longer than their lease, or die and are replaced under the same name."""

from __future__ import annotations

import os
import signal

import pytest

from tests.faults.sites import of_kind, runs_by_job, starts_recorded
from tests.patience import PATIENCE
from tests.worker.worker_processes import Site, stop
from tidewheel import Tidewheel

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals as tested here are POSIX")

NUMBER = 5


async def test_a_worker_frozen_past_its_lease_can_write_nothing_about_its_jobs(
    site: Site, app: Tidewheel
) -> None:
    """SIGSTOP, another worker of the same name runs the jobs, SIGCONT: every late write is refused."""
    gate = site.directory / "gate"
    jobs = await app.enqueue_many("insists", [{"gate": str(gate)}] * NUMBER)
    with site.workers(1, NAME="same") as [frozen]:
        await starts_recorded(jobs)
        site.freeze(frozen)
        with site.workers(1, NAME="same") as [replacement]:
            # The job was completed by the replacement before the old run makes its first try.
            assert [await job.result(timeout=PATIENCE) for job in jobs] == [2] * NUMBER
            gate.touch()
            frozen.send_signal(signal.SIGCONT)
            insisted = site.wait_for("insisted", number=NUMBER)
            _, said_by_frozen = stop(frozen)
            _, said_by_replacement = stop(replacement)
    nothing = {"report": False, "extend": False, "settle": False}
    assert [event["accepted"] for event in insisted] == [nothing] * NUMBER
    assert f'"lost": {NUMBER}' in said_by_frozen
    assert '"lost": 0' in said_by_replacement
    for job in jobs:
        await job.refresh()
        assert (job.state, job.attempt, await job.result(timeout=0)) == ("completed", 1, 2)
        assert (job.checkpoint, job.steps) == (None, ())
        assert job.attempts == ()
    # Two runs of each, and of those one accepted settlement: the store counts what it accepted.
    assert set(runs_by_job(site.events()).values()) == {2}
    assert (await app.stats()).completed == NUMBER
    assert await app.check() == []


@pytest.mark.parametrize("site", ["postgres"], indirect=True)
async def test_a_worker_killed_between_effect_and_settlement_has_its_effect_repeated(
    site: Site, app: Tidewheel
) -> None:
    """At least once: the effect happens twice, the job completes once, whatever the next worker's name."""
    job = await app.enqueue("killed_after_effect")
    with site.workers(1, NAME="same") as [victim]:
        victim.wait(PATIENCE)
        # At once, and under the same name: it may not go on where the dead one stopped.
        with site.workers(1, NAME="same"):
            assert await job.result(timeout=PATIENCE) == 2
    events = site.events()
    first, second = of_kind(events, "effect")
    assert first["fence"] < second["fence"]
    # Not while the lease held; "within a lease and a second", with a slow machine's slack, but after it.
    assert site.lease - 0.1 < second["at"] - first["at"] < site.lease + 1.0 + 3.0
    await job.refresh()
    assert (job.state, job.attempt) == ("completed", 1)
    assert (await app.stats()).completed == 1
