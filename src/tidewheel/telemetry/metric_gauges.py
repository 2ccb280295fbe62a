"""Gauges: read the figures of the queue from the store, and turn queue and worker figures into samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import JobRecord, State, Stats, TopicStats
from tidewheel.core.security_context import system_only
from tidewheel.stores.protocol import Store
from tidewheel.telemetry import samples
from tidewheel.telemetry.samples import OTHER, Sample, one

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.worker.health import WorkerHealth


class TopicFigures(Struct, frozen=True):
    """Jobs of one topic, by state. Plain data, as all here: it is sent to another process."""

    topic: str
    pending: int
    running: int
    completed: int
    failed: int
    cancelled: int


class QueueFigures(Struct, frozen=True, kw_only=True):
    """One look at the queue."""

    pending: int
    running: int
    oldest_due_seconds: float
    """How long the longest-waiting due job had been due."""
    stale_leases: int
    """Running jobs whose lease had ended, of the 100 that ran longest."""
    age_seconds: float = 0.0
    """How long ago that was."""


def of_stats(stats: Stats, longest_running: Iterable[JobRecord], now: int) -> QueueFigures:
    """What a store told at ``now``, by its clock."""
    oldest = 0.0 if stats.oldest_due_at is None else max(0.0, (now - stats.oldest_due_at) / MICROSECONDS)
    stale = sum(job.leased_until is not None and job.leased_until <= now for job in longest_running)
    return QueueFigures(
        pending=stats.pending, running=stats.running, oldest_due_seconds=round(oldest, 3), stale_leases=stale
    )


def busiest(topics: Sequence[TopicStats], most: int) -> tuple[TopicFigures, ...]:
    """Those with the most unfinished jobs, and all others as one."""
    found = sorted(topics, key=lambda topic: (-(topic.pending + topic.running), topic.topic))
    if len(found) > most:
        # One that is called so goes in there: of two series alike Prometheus would drop one.
        found.sort(key=lambda topic: topic.topic == OTHER)
    told = [TopicFigures(topic.topic, *_counts(topic)) for topic in found[:most]]
    if rest := found[most:]:
        told.append(TopicFigures(OTHER, *(sum(column) for column in zip(*map(_counts, rest), strict=True))))
    return tuple(told)


def _counts(topic: TopicStats) -> tuple[int, int, int, int, int]:
    return topic.pending, topic.running, topic.completed, topic.failed, topic.cancelled


# -- as samples ---------------------------------------------------------------------------------------------


def of_topics(topics: Iterable[TopicFigures]) -> Iterator[Sample]:
    for topic in topics:
        for state in State:
            yield one(samples.DEPTH, getattr(topic, state), topic.topic, state)


def of_queue(queue: QueueFigures) -> Iterator[Sample]:
    yield one(samples.OLDEST_DUE, queue.oldest_due_seconds)
    yield one(samples.STALE_LEASES, queue.stale_leases)
    yield one(samples.FIGURES_AGE, queue.age_seconds)


def of_worker(health: WorkerHealth) -> Iterator[Sample]:
    name = health.name
    yield one(samples.WORKER_READY, health.ready, name)
    yield one(samples.WORKER_SLOTS, health.concurrency, name)
    yield one(samples.WORKER_RUNNING, health.running, name)
    yield one(samples.WORKER_STUCK, health.stuck, name)
    yield one(samples.WORKER_LAG, health.loop_lag_seconds, name)
    yield one(samples.WORKER_FAILING, health.failing, name)
    if health.last_claim_seconds is not None:
        yield one(samples.WORKER_LAST_CLAIM, health.last_claim_seconds, name)


MOST_TOPICS: Final = 100
"""Topics a worker tells about, those with the most unfinished jobs; the others are one line, ``other``."""
LONGEST_RUNNING: Final = 100
"""Running jobs that are looked at for leases that have ended."""
_WINDOW_SECONDS: Final = 60.0  # for times, which nobody asks for here


async def look(store: Store, most_topics: int = MOST_TOPICS) -> tuple[QueueFigures, tuple[TopicFigures, ...]]:
    """At all tenants' jobs, from counters, but for the running ones."""
    stats = await store.stats(window_seconds=_WINDOW_SECONDS)
    longest = await store.longest_running(LONGEST_RUNNING)
    return of_stats(stats, longest, await store.now()), busiest(stats.topics, most_topics)


async def look_at(app: Tidewheel, most_topics: int) -> tuple[QueueFigures, tuple[TopicFigures, ...]]:
    """The same for whoever holds an app, and acts for nobody in particular."""
    system_only("metrics")
    return await look(app.store, most_topics)
