"""``/metrics`` of a worker's health port: one process, several, and what they are told by their children."""

from __future__ import annotations

import http.client
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from tests.cli.processes import Process, Project, wait_until
from tests.patience import PATIENCE
from tests.telemetry.prometheus_text import scrape
from tidewheel import Tidewheel
from tidewheel.cli.health_reports import FULL_REPORT_ROUNDS, CountsReport, CountsReporter, MemberCounts
from tidewheel.core.ids import new_id
from tidewheel.core.model import RescuedJob, State
from tidewheel.settings import load_settings
from tidewheel.telemetry.metric_counters import MAX_TASKS, MetricCounters
from tidewheel.telemetry.metric_gauges import TopicCounts
from tidewheel.telemetry.samples import LEASES_LOST, Sample, format_prometheus, make_sample
from tidewheel.telemetry.telemetry import Telemetry

needs_signals = pytest.mark.skipif(os.name == "nt", reason="Windows delivers no SIGKILL")

APP = """
from tidewheel import Tidewheel

app = Tidewheel(lease=10)


@app.task
async def send(number: int) -> None: ...
"""


@pytest.fixture
def counting(project: Project) -> Project:
    project.write("counting.py", APP)
    return project


@contextmanager
def worker(
    project: Project, *arguments: str, **environment: str
) -> Iterator[tuple[Process, tuple[str, int]]]:
    environment = {"TIDEWHEEL_URL": project.url, **environment}
    arguments = ("worker", "counting:app", "--name", "ada", "--health-listen", "0", *arguments)
    with project.start(*arguments, **environment) as process:
        told = process.wait_for(r"health is told at http://(\S+):(\d+)/healthz and /readyz")
        yield process, (told[1], int(told[2]))


def enqueue(project: Project, number: int) -> None:
    app = Tidewheel(project.url)
    app.sync.enqueue_many("send", [{"number": each} for each in range(number)])
    app.portal.close()


def pids(project: Project) -> list[int]:
    app = Tidewheel(project.url)
    try:
        return [one.pid for one in app.sync.workers()]
    finally:
        app.portal.close()


def metrics(where: tuple[str, int]) -> dict[tuple[str, ...], float]:
    connection = http.client.HTTPConnection(*where, timeout=PATIENCE)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return scrape(answer.read().decode())
    finally:
        connection.close()


def completed(where: tuple[str, int]) -> float:
    return metrics(where).get(("tidewheel_jobs_completed_total", "send", "completed"), 0)


def test_a_worker_tells_what_it_did_and_how_the_queue_is(counting: Project) -> None:
    """Counters, slots, and the queue as it was seen a moment ago; health has the same in short."""
    enqueue(counting, 1)
    with worker(counting) as (_, where):
        wait_until(lambda: completed(where) == 1)
        wait_until(lambda: ("tidewheel_queue_figures_age_seconds",) in metrics(where))
        found = metrics(where)
        assert found["tidewheel_job_duration_seconds_count", "send"] == 1
        assert found["tidewheel_worker_slots", "ada"] == 10
        assert found["tidewheel_worker_ready", "ada"] == 1
        assert found["tidewheel_worker_claims_failing", "ada"] == 0
        assert found["tidewheel_stale_leases",] == 0
        assert found["tidewheel_queue_figures_age_seconds",] < PATIENCE


def test_a_worker_that_is_told_not_to_count_tells_only_how_it_is(counting: Project) -> None:
    """The setting has the last word."""
    with worker(counting, TIDEWHEEL_METRICS="false") as (_, where):
        wait_until(lambda: ("tidewheel_worker_slots", "ada") in metrics(where))
        assert {key[0] for key in metrics(where)} <= {
            "tidewheel_worker_slots",
            "tidewheel_worker_running",
            "tidewheel_worker_stuck",
            "tidewheel_worker_ready",
            "tidewheel_worker_claims_failing",
            "tidewheel_worker_last_claim_seconds",
            "tidewheel_worker_loop_lag_seconds",
        }


@needs_signals
def test_several_processes_are_added_up_and_a_crash_takes_nothing_back(counting: Project) -> None:
    """One answer for all; a counter never goes down."""
    with worker(counting, "--processes", "2") as (process, where):
        wait_until(lambda: metrics(where).get(("tidewheel_worker_ready", "ada-2")) == 1)
        enqueue(counting, 20)
        wait_until(lambda: completed(where) == 20)
        wait_until(lambda: len(pids(counting)) == 2)
        for child in pids(counting):
            os.kill(child, signal.SIGKILL)
        process.wait_for("starts again")
        assert completed(where) == 20
        enqueue(counting, 1)
        wait_until(lambda: completed(where) == 21)


# -- what is told, without processes ------------------------------------------------------------------------


def lost(number: int) -> tuple[Sample, ...]:
    return (make_sample(LEASES_LOST, number),)


def told(counts: MemberCounts) -> dict[tuple[str, ...], float]:
    return scrape(format_prometheus(counts.samples()))


def test_the_last_word_of_each_life_counts() -> None:
    """Figures are told whole: the same again changes nothing, an earlier life stays counted."""
    counts = MemberCounts()
    counts.apply(CountsReport(1, 100, lost(2)))
    counts.apply(CountsReport(1, 100, lost(3)))
    counts.apply(CountsReport(2, 200, lost(4)))
    assert told(counts)["tidewheel_leases_lost_total",] == 7
    counts.apply(CountsReport(1, 101, lost(1)))
    assert told(counts)["tidewheel_leases_lost_total",] == 8
    counts.apply(CountsReport(1, 101, lost(2)))
    assert told(counts)["tidewheel_leases_lost_total",] == 9
    counts.apply(CountsReport(1, 101, topics=(TopicCounts("gone", 1, 2, 3, 4, 5),), replaces_topics=True))
    counts.apply(CountsReport(1, 101, topics=(TopicCounts("mail", 1, 2, 3, 4, 5),), replaces_topics=True))
    assert told(counts)["tidewheel_queue_depth", "mail", "failed"] == 4
    assert ("tidewheel_queue_depth", "gone", "failed") not in told(counts)


def test_only_what_changed_is_told_and_now_and_then_all() -> None:
    """A datagram may be lost; so may the one after it."""
    telemetry = Telemetry(load_settings({"metrics": True}, environment={}))
    recount = CountsReporter(1)
    whole = {sample for part in recount.next_reports(telemetry) for sample in part.samples}
    assert len(whole) == 4
    assert list(recount.next_reports(telemetry)) == []
    assert telemetry.metrics is not None
    telemetry.metrics.count_pruned({})
    for _ in range(FULL_REPORT_ROUNDS - 2):
        assert list(recount.next_reports(telemetry)) == []
    assert {sample for part in recount.next_reports(telemetry) for sample in part.samples} == whole


def test_many_figures_go_in_pieces_that_fit_into_a_datagram() -> None:
    """The longest names, the largest numbers; a system may refuse more than 9 KiB."""
    names = [f"{number:0255}" for number in range(MAX_TASKS)]
    telemetry = Telemetry(load_settings({"metrics": True}, environment={}))
    telemetry.metrics = counted = MetricCounters()
    counted.count_rescued(
        RescuedJob(new_id(), "t", name, "root", None, 1, "ada", State.FAILED, "worker_lost") for name in names
    )
    parts = list(CountsReporter(1000).next_reports(telemetry))
    assert max(len(msgspec.json.encode(part)) for part in parts) < 8192 - 40
    counts = MemberCounts()
    for part in parts:
        counts.apply(msgspec.json.decode(msgspec.json.encode(part), type=CountsReport))
    assert set(counts.samples()) == set(counted.samples())
