"""Counters of one process."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.telemetry.prometheus_text import scrape
from tidewheel import Cancel, Context, Fail, Retry, Snooze, Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.core.model import ClaimRequest, Enqueued, Lane, NewJob, RescuedJob, State
from tidewheel.settings import load_settings
from tidewheel.telemetry.metric_counters import MAX_TASK_TOPIC_PAIRS, MAX_TASKS, MetricCounters
from tidewheel.telemetry.samples import BUCKETS, DURATION, Sample, format_prometheus, make_sample, sum_samples
from tidewheel.telemetry.telemetry import Telemetry
from tidewheel.testing.clock import FrozenClock
from tidewheel.worker.observers import Observers
from tidewheel.worker.store_maintenance import Pruner


def told(app: Tidewheel) -> dict[tuple[str, ...], float]:
    return scrape(app.telemetry.prometheus())


def new_jobs(*topics: str) -> tuple[list[NewJob], list[Enqueued]]:
    """Of these topics, and how they were taken."""
    jobs = [NewJob(id=new_id(), topic=topic) for topic in topics]
    return jobs, [Enqueued(job.id, 1, 0, 0) for job in jobs]


async def test_what_becomes_of_jobs_is_counted_by_task() -> None:
    """Enqueued, ended by each state, tried again; how long handlers ran and jobs waited."""
    async with Tidewheel("memory://", metrics=True) as app:

        @app.task(topic="mail", max_attempts=2, retry=Retry.fixed(0))
        async def send(ctx: Context, how: str) -> None:
            match how:
                case "fail":
                    raise Fail("no")
                case "cancel":
                    raise Cancel("no")
                case "retry" if ctx.attempt == 1:
                    raise ValueError
                case "snooze" if not ctx.checkpoint:
                    await ctx.checkpoint({})
                    raise Snooze(0)

        await send.enqueue_many([{"how": how} for how in ("", "", "fail", "cancel", "retry", "snooze")])
        await send.options(key="k").enqueue(how="")
        await send.options(key="k").enqueue(how="")
        await app.run_until_idle()
        found = told(app)
    assert found["tidewheel_jobs_submitted_total", "send", "mail"] == 7, "the last one found its key taken"
    assert found["tidewheel_jobs_completed_total", "send", "completed"] == 5
    assert found["tidewheel_jobs_completed_total", "send", "failed"] == 1
    assert found["tidewheel_jobs_completed_total", "send", "cancelled"] == 1
    assert found["tidewheel_job_retries_total", "send"] == 1
    assert found["tidewheel_job_duration_seconds_count", "send"] == 9, "each run, the snoozed one included"
    assert found["tidewheel_job_wait_seconds_count", "send"] == 9
    assert found["tidewheel_job_wait_seconds_bucket", "send", "60"] == 9
    assert found["tidewheel_leases_lost_total",] == 0


async def test_a_job_waits_from_when_it_is_due() -> None:
    """Not from when it was enqueued: a delay is no wait."""
    clock = FrozenClock()
    async with Tidewheel("memory://", metrics=True, clock=clock) as app:

        @app.task
        async def work() -> None: ...

        await work.options(delay=100).enqueue()
        clock.advance(120)
        await app.run_until_idle()
        found = told(app)
    assert found["tidewheel_job_wait_seconds_sum", "work"] == 20
    assert found["tidewheel_job_wait_seconds_bucket", "work", "10"] == 0
    assert found["tidewheel_job_wait_seconds_bucket", "work", "30"] == 1


async def test_leases_that_are_lost_and_jobs_that_end_with_them_are_counted() -> None:
    """By whoever brings the job back: a worker that was killed can count nothing any more."""
    clock = FrozenClock()
    async with Tidewheel("memory://", metrics=True, clock=clock) as app:

        @app.task(max_attempts=1)
        async def work() -> None: ...

        @app.task
        async def late() -> None: ...

        await work.enqueue()
        await late.options(expires=5).enqueue()
        lane = (Lane("work", "work"),)
        claim = await app.store.claim(ClaimRequest("dead", lane, limit=1, lease_seconds=2))
        await app.store.mark_started([claim.jobs[0].lease])
        clock.advance(10)
        await app.store.rescue()
        found = told(app)
    assert found["tidewheel_leases_lost_total",] == 1
    assert found["tidewheel_jobs_completed_total", "work", "failed"] == 1
    assert found["tidewheel_jobs_completed_total", "late", "cancelled"] == 1


async def test_pruned_jobs_are_counted_by_state() -> None:
    """As the pruner of a worker removes them."""
    clock, metrics = FrozenClock(), MetricCounters()
    async with Tidewheel("memory://", clock=clock, retention=60) as app:

        @app.task(max_attempts=1)
        async def work(number: int) -> None:
            assert number < 2

        await work.enqueue_many([{"number": number} for number in range(3)])
        await app.run_until_idle()
        clock.advance(61)
        await Pruner(app.store, clock, Observers(None, metrics, clock)).prune_backlog()
    found = scrape(format_prometheus(metrics.samples()))
    assert found["tidewheel_jobs_pruned_total", "completed"] == 2
    assert found["tidewheel_jobs_pruned_total", "failed"] == 1
    assert found["tidewheel_jobs_pruned_total", "cancelled"] == 0


def test_too_many_names_are_counted_together() -> None:
    """A name per customer must not become a series per customer."""
    metrics = MetricCounters()
    metrics.count_submitted(*new_jobs(*(f"t{index}" for index in range(MAX_TASK_TOPIC_PAIRS + 50))))
    rescued = [
        RescuedJob(new_id(), "t", f"t{index}", "root", None, 1, "ada", State.FAILED, "worker_lost")
        for index in range(MAX_TASKS + 50)
    ]
    metrics.count_rescued(rescued)
    found = scrape(format_prometheus(metrics.samples()))
    assert found["tidewheel_jobs_submitted_total", "other", "other"] == 50
    assert found["tidewheel_jobs_completed_total", "other", "failed"] == 50
    assert (
        len([key for key in found if key[0] == "tidewheel_jobs_submitted_total"]) == MAX_TASK_TOPIC_PAIRS + 1
    )
    assert sum(value for key, value in found.items() if key[0] == "tidewheel_jobs_completed_total") == (
        MAX_TASKS + 50
    )


def test_threads_lose_no_count() -> None:
    """Enqueued from eight threads at once."""
    metrics = MetricCounters()
    jobs, answers = new_jobs("t")

    def enqueue() -> None:
        for _ in range(2000):
            metrics.count_submitted(jobs, answers)

    threads = [threading.Thread(target=enqueue) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert one_value(metrics.samples(), "tidewheel_jobs_submitted_total") == 16_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_begins_with_nothing() -> None:
    """Its parent tells what the parent has counted, also when a lock was held at the fork."""
    metrics = MetricCounters()
    metrics.count_submitted(*new_jobs("t"))
    with metrics._lock:
        child = os.fork()
        if child == 0:
            os._exit(len([one for one in metrics.samples() if one.name == "tidewheel_jobs_submitted_total"]))
    assert os.waitpid(child, 0)[1] == 0
    assert one_value(metrics.samples(), "tidewheel_jobs_submitted_total") == 1


def one_value(samples: list[Sample], name: str) -> float:
    (value,) = [sample.values[0] for sample in samples if sample.name == name]
    return value


@pytest.mark.parametrize(
    ("setting", "served", "counts"),
    [(None, False, False), (None, True, True), (True, False, True), (False, True, False)],
)
def test_it_is_counted_where_somebody_can_ask(setting: bool | None, served: bool, counts: bool) -> None:
    """The setting has the last word; without it whoever serves the metrics switches them on."""
    telemetry = Telemetry(load_settings({"metrics": setting}, environment={}))
    if served:
        telemetry.count_if_allowed()
    assert (telemetry.metrics is not None) is counts
    assert telemetry.off is not counts


async def test_nothing_is_made_for_those_who_do_not_ask() -> None:
    """No observers in the worker, no look at the queue, no detour for what is enqueued."""
    async with Tidewheel("memory://") as app:

        @app.task
        async def work() -> None: ...

        worker = app.worker(handle_signals=False)
        assert worker._observers is None
        assert app.telemetry.off
        await work.enqueue()
        await worker.run_until_idle()
        assert worker.queue_snapshot is None
        assert app.telemetry.counter_samples() == []


# -- text ---------------------------------------------------------------------------------------------------


def test_labels_are_escaped() -> None:
    """A quote, a backslash or a line feed in a name ends neither the label nor the line."""
    written = format_prometheus([Sample("tidewheel_worker_slots", ('a"b\\c\nd',), (3.0,))])
    assert written.splitlines()[-1] == r'tidewheel_worker_slots{worker="a\"b\\c\nd"} 3'


def test_a_histogram_is_cumulative_and_ends_with_all() -> None:
    """``le`` is inclusive; the last bucket has no end."""
    values = (1.0, *(0.0,) * (len(BUCKETS) - 1), 2.0, 7300.5)
    found = scrape(format_prometheus([Sample(DURATION.name, ("work",), values)]))
    assert found["tidewheel_job_duration_seconds_bucket", "work", "0.001"] == 1
    assert found["tidewheel_job_duration_seconds_bucket", "work", "3600"] == 1
    assert found["tidewheel_job_duration_seconds_bucket", "work", "+Inf"] == 3
    assert found["tidewheel_job_duration_seconds_sum", "work"] == 7300.5
    assert found["tidewheel_job_duration_seconds_count", "work"] == 3


def test_series_of_several_processes_are_added_up() -> None:
    """Bucket by bucket."""
    from tidewheel.telemetry.samples import LEASES_LOST

    histogram: Any = (DURATION.name, ("work",), (1.0, 2.0, 0.5))
    assert sum_samples(
        [make_sample(LEASES_LOST, 1), Sample(*histogram), make_sample(LEASES_LOST, 2), Sample(*histogram)]
    ) == [
        make_sample(LEASES_LOST, 3),
        Sample(DURATION.name, ("work",), (2.0, 4.0, 1.0)),
    ]


async def test_a_worker_is_told_of_while_it_runs_and_the_lane_is_not_the_queue() -> None:
    """One that has ended is no worker; jobs of the lane are counted, and its depth is nobody's."""
    async with Tidewheel("memory://", metrics=True) as app:

        @app.task(durable=False)
        async def quick() -> None: ...

        @app.task
        async def work() -> None:
            assert ("tidewheel_worker_ready", "ada") in told(app)

        job = await quick.enqueue()
        await job.result(timeout=PATIENCE)
        await work.enqueue()
        await app.run_until_idle(name="ada")
        found = told(app)
    assert found["tidewheel_jobs_completed_total", "quick", "completed"] == 1
    assert found["tidewheel_jobs_completed_total", "work", "completed"] == 1
    assert ("tidewheel_worker_ready", "ada") not in found
    assert not any(key[0] == "tidewheel_queue_depth" for key in found)
