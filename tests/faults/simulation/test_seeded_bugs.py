"""What is broken on purpose is found, and named: by the checker in a store, by the simulation in a worker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.faults.simulation import process, world
from tests.faults.simulation.broken_stores import BUGS, Broken, RefusesExtensions
from tests.faults.simulation.world import Outcome, simulate
from tidewheel.worker.active_jobs import ActiveJob
from tidewheel.worker.lease_keeper import LeaseKeeper

MOST_SEEDS = 150
"""A bug that hides for longer than that would need better faults."""


@pytest.mark.parametrize(("bug", "rule"), BUGS.items(), ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_store_is_found_by_the_rule_it_breaks(bug: type[Broken], rule: str) -> None:
    """Within a few seeds; with the store as it is, nothing is wrong with the same seed."""
    seed = _first(lambda outcome: any(one.rule == rule for one in outcome.report.violations), bug)
    assert simulate(seed).good


class _OnTheWorkersLoop(process.SimulatedThread):
    """A keeper that handlers can starve."""

    def start(self) -> None:
        self._process.main.create_task(self._run())


def test_a_keeper_on_the_workers_own_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that blocks the event loop costs the worker its jobs."""
    monkeypatch.setattr(world, "SimulatedThread", _OnTheWorkersLoop)
    _first(lambda outcome: _breaks(outcome, "lost for no reason"))


def test_a_keeper_that_does_not_watch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers run on long after their leases; with the watchdog none does in the same schedule."""
    with monkeypatch.context() as patch:
        patch.setattr(LeaseKeeper, "_stop_expired", lambda _: None)
        seed = _first(lambda outcome: _breaks(outcome, "stopped late"), RefusesExtensions)
    assert not _breaks(simulate(seed, RefusesExtensions), "stopped late")


def test_a_worker_that_counts_leases_from_their_arrival_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store began to count when it granted them: on a slow network they end before the worker thinks."""
    since = ActiveJob.from_claim.__func__  # type: ignore[attr-defined]

    def from_now(job_class: type[ActiveJob], sent: float, job: object, task: object) -> ActiveJob:
        del sent
        return since(job_class, process.here().clock.monotonic(), job, task)  # type: ignore[no-any-return]

    monkeypatch.setattr(ActiveJob, "from_claim", classmethod(from_now))
    _first(lambda outcome: _breaks(outcome, "started late"))


def _breaks(outcome: Outcome, promise: str) -> bool:
    return any(problem.startswith(promise) for problem in outcome.problems)


def _first(found: Callable[[Outcome], bool], make_store: type[Broken] | None = None) -> int:
    """The first seed with such an outcome."""
    for seed in range(MOST_SEEDS):
        if found(simulate(seed, make_store)):
            return seed
    pytest.fail(f"not found in {MOST_SEEDS} schedules", pytrace=False)
