"""Gauges: read the figures of the queue from the store, and turn queue and worker figures into samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import JobRecord, State
from tidewheel.core.reports import Stats, TopicStats
from tidewheel.core.security_context import require_system_context
from tidewheel.stores.protocol import Store
from tidewheel.telemetry import samples
from tidewheel.telemetry.samples import OTHER, Sample, make_sample

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.worker.health import WorkerHealth


class TopicCounts(Struct, frozen=True):
    """Jobs of one topic, by state. Plain data, as all here: it is sent to another process."""

    topic: str
    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int


class QueueSnapshot(Struct, frozen=True, kw_only=True):
    """One look at the queue."""

    pending: int
    running: int
    oldest_due_seconds: float
    """How long the longest-waiting due job had been due."""
    stale_leases: int
    """Running jobs whose lease had ended, of the 100 that ran longest."""
    age_seconds: float = 0.0
    """How long ago that was."""


def make_snapshot(stats: Stats, longest_running: Iterable[JobRecord], now: int) -> QueueSnapshot:
    """What a store told at ``now``, by its clock."""
    oldest = 0.0 if stats.oldest_due_at is None else max(0.0, (now - stats.oldest_due_at) / MICROSECONDS)
    stale = sum(job.leased_until is not None and job.leased_until <= now for job in longest_running)
    return QueueSnapshot(
        pending=stats.pending, running=stats.running, oldest_due_seconds=round(oldest, 3), stale_leases=stale
    )


def busiest_topics(topics: Sequence[TopicStats], most: int) -> tuple[TopicCounts, ...]:
    """Those with the most unfinished jobs, and all others as one."""
    found = sorted(topics, key=lambda topic: (-(topic.pending + topic.running), topic.topic))
    if len(found) > most:
        # One that is called so goes in there: of two series alike Prometheus would drop one.
        found.sort(key=lambda topic: topic.topic == OTHER)
    told = [TopicCounts(topic.topic, *_counts(topic)) for topic in found[:most]]
    if rest := found[most:]:
        told.append(TopicCounts(OTHER, *(sum(column) for column in zip(*map(_counts, rest), strict=True))))
    return tuple(told)


def _counts(topic: TopicStats) -> tuple[int, int, int, int, int]:
    return topic.pending, topic.running, topic.completed, topic.failed, topic.cancelled


# -- as samples ---------------------------------------------------------------------------------------------


def topic_samples(topics: Iterable[TopicCounts]) -> Iterator[Sample]:
    for topic in topics:
        for state in State:
            yield make_sample(samples.DEPTH, getattr(topic, state), topic.topic, state)


def queue_samples(queue: QueueSnapshot) -> Iterator[Sample]:
    yield make_sample(samples.OLDEST_DUE, queue.oldest_due_seconds)
    yield make_sample(samples.STALE_LEASES, queue.stale_leases)
    yield make_sample(samples.FIGURES_AGE, queue.age_seconds)


def worker_samples(health: WorkerHealth) -> Iterator[Sample]:
    name = health.name
    yield make_sample(samples.WORKER_READY, health.ready, name)
    yield make_sample(samples.WORKER_SLOTS, health.concurrency, name)
    yield make_sample(samples.WORKER_RUNNING, health.running, name)
    yield make_sample(samples.WORKER_STUCK, health.stuck, name)
    yield make_sample(samples.WORKER_LAG, health.loop_lag_seconds, name)
    yield make_sample(samples.WORKER_FAILING, health.failing, name)
    if health.last_claim_seconds is not None:
        yield make_sample(samples.WORKER_LAST_CLAIM, health.last_claim_seconds, name)


MAX_TOPICS: Final = 100
"""Topics a worker tells about, those with the most unfinished jobs; the others are one line, ``other``."""
MAX_RUNNING_CHECKED: Final = 100
"""Running jobs that are looked at for leases that have ended."""
_WINDOW_SECONDS: Final = 60.0  # for times, which nobody asks for here


async def sample_queue(
    store: Store, most_topics: int = MAX_TOPICS
) -> tuple[QueueSnapshot, tuple[TopicCounts, ...]]:
    """At all tenants' jobs, from counters, but for the running ones."""
    stats = await store.stats(window_seconds=_WINDOW_SECONDS)
    longest = await store.longest_running(MAX_RUNNING_CHECKED)
    return make_snapshot(stats, longest, await store.now()), busiest_topics(stats.topics, most_topics)


async def sample_app_queue(app: Tidewheel, most_topics: int) -> tuple[QueueSnapshot, tuple[TopicCounts, ...]]:
    """The same for whoever holds an app, and acts for nobody in particular."""
    require_system_context("metrics")
    return await sample_queue(app.store, most_topics)
