"""Which jobs are stuck, and why: told from a look at what runs, what waits and who works."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel.admin.reports.answers import StuckKind, StuckThing
from tidewheel.admin.worker_info import find_lost_holders, is_missing
from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds, to_datetime
from tidewheel.core.model import FOREVER, JobRecord, WorkerRecord
from tidewheel.core.reports import LaneDurations, TaskStats, TopicStats
from tidewheel.core.text_format import format_duration, plural
from tidewheel.core.topic_limits import BlockedTopic
from tidewheel.tasks.registry import Registry

MAX_STUCK_THINGS: Final = 100
"""Reasons that are told."""
TIMEOUT_FACTOR: Final = 1.5
"""So many times its timeout a job may run: a handler that was told to stop needs time for it."""
SLOW_FACTOR: Final = 5.0
"""So many times what 99 of 100 jobs of its lane take is unusual, …"""
MIN_EXTRA_SECONDS: Final = 60.0
"""… if it is this much longer, too, …"""
MIN_KNOWN_RUNS: Final = 20
"""… and so many are known to compare it with."""
RESCUE_GRACE_SECONDS: Final = 5.0
"""A lease that ended so lately is no news: any live worker brings the job back within a second or so."""
IDLE_LANE_SECONDS: Final = 300.0
"""Where workers do not list all they take: a lane in which nothing runs or ends for so long is not taken."""


@dataclass(frozen=True, slots=True)
class QueueView:
    """What was found. ``workers`` is None where they are not to be told of."""

    now: int
    running: Sequence[JobRecord]
    lanes: Sequence[TaskStats]
    topics: Sequence[TopicStats]
    usual_durations: Sequence[LaneDurations]
    workers: Sequence[WorkerRecord] | None
    blocked_topics: Sequence[BlockedTopic] = ()
    pulled_topics: Collection[str] = ()
    """topics whose jobs were put for programs that pull; no worker for them is normal"""


def lane_name(topic: str, task: str) -> str:
    """``send in mail``; one name where both are the same, or there is no task."""
    return topic if task in ("", topic) else f"{task} in {topic}"


def find_stuck(look: QueueView, registry: Registry) -> list[StuckThing]:
    """What stops work, jobs before workers, the most jobs first; ``registry`` is what this app knows."""
    things = [*_running(look), *_waiting(look, registry)]
    things.sort(key=lambda thing: -thing.jobs)
    return [*things, *_workers(look)]


# -- running jobs -------------------------------------------------------------------------------------------


def _running(look: QueueView) -> Iterator[StuckThing]:
    usual = {
        (lane.topic, lane.task): lane.run_time.p99
        for lane in look.usual_durations
        if lane.run_time.count >= MIN_KNOWN_RUNS and lane.run_time.p99 is not None
    }
    lost = {} if look.workers is None else find_lost_holders(look.running, look.workers, look.now)
    found: defaultdict[tuple[StuckKind, str, str, str | None], list[JobRecord]] = defaultdict(list)
    for job in look.running:
        kind = _stuck_kind(job, look.now, usual.get((job.topic, job.task)), lost)
        if kind is not None:
            holder = job.worker if kind is StuckKind.HOLDER_LOST else None
            found[kind, job.topic, job.task, holder].append(job)
    for (kind, topic, task, holder), jobs in found.items():
        longest = min(jobs, key=_handler_started_at)
        so_long = format_duration((look.now - _handler_started_at(longest)) / MICROSECONDS)
        what = {
            StuckKind.LEASE_ENDED: "ended without a word from the worker",
            StuckKind.HOLDER_LOST: f"held by {_describe_silence(holder, lost, look.now)}",
            StuckKind.TIMED_OUT: f"running beyond the timeout, the longest for {so_long}",
            StuckKind.SLOW: f"running much longer than usual, the longest for {so_long}",
        }[kind]
        if kind is StuckKind.LEASE_ENDED and longest.leased_until is not None:
            since = longest.leased_until
        else:
            since = _handler_started_at(longest)
        yield StuckThing(
            kind=kind,
            explanation=f"{plural(len(jobs), 'job')} of {lane_name(topic, task)} {what}",
            jobs=len(jobs),
            topic=topic,
            task=task,
            job_id=longest.id,
            worker=None if look.workers is None else longest.worker,
            since=to_datetime(since),
        )


def _describe_silence(holder: str | None, lost: Mapping[str, int | None], now: int) -> str:
    """Name a holder that is gone, and say for how long."""
    seen_at = lost.get(holder or "")
    if seen_at is None:
        return f"{holder}, which is not on the list of workers"
    return f"{holder}, which has not been seen for {format_duration((now - seen_at) / MICROSECONDS)}"


def _stuck_kind(
    job: JobRecord, now: int, usual: float | None, lost: Mapping[str, int | None]
) -> StuckKind | None:
    if job.leased_until is not None and job.leased_until <= now:
        late = now - job.leased_until >= seconds_to_microseconds(RESCUE_GRACE_SECONDS)
        return StuckKind.LEASE_ENDED if late else None
    if job.worker in lost:
        return StuckKind.HOLDER_LOST
    seconds = (now - _handler_started_at(job)) / MICROSECONDS
    if job.timeout is not None and seconds > job.timeout * TIMEOUT_FACTOR:
        return StuckKind.TIMED_OUT
    if usual is not None and seconds > max(usual * SLOW_FACTOR, usual + MIN_EXTRA_SECONDS):
        return StuckKind.SLOW
    return None


def could_be_slow(job: JobRecord, now: int) -> bool:
    """Whether it has run so long that it matters what is usual."""
    return (now - _handler_started_at(job)) / MICROSECONDS > MIN_EXTRA_SECONDS


def _handler_started_at(job: JobRecord) -> int:
    """When its handler did, as far as that was written down."""
    return job.started_at or job.claimed_at or job.run_at


# -- jobs that are due --------------------------------------------------------------------------------------


def _waiting(look: QueueView, registry: Registry) -> Iterator[StuckThing]:
    paused = {topic.topic: topic.paused_until for topic in look.topics if topic.paused_until is not None}
    takes = None if look.workers is None else _lane_taken_check(look.workers, look.now)
    for lane in look.lanes:
        if not lane.due:
            continue
        due = plural(lane.due, "due job")
        until = paused.get(lane.topic)
        if until is not None:
            left = (
                ""
                if until == FOREVER
                else f" for another {format_duration((until - look.now) / MICROSECONDS)}"
            )
            yield StuckThing(
                kind=StuckKind.PAUSED,
                explanation=f"{due} of {lane_name(lane.topic, lane.task)}, which is paused{left}",
                jobs=lane.due,
                topic=lane.topic,
                task=lane.task,
            )
        elif takes is not None and not takes(lane) and not may_be_pulled(lane, registry, look.pulled_topics):
            unknown = len(registry) > 0 and registry.resolve(lane.topic, lane.task) is None
            who = "neither a live worker nor this app knows" if unknown else "no live worker takes"
            yield StuckThing(
                kind=StuckKind.UNKNOWN_TASK if unknown else StuckKind.NO_WORKER,
                explanation=f"{due} of {lane_name(lane.topic, lane.task)}, which {who}",
                jobs=lane.due,
                topic=lane.topic,
                task=lane.task,
            )


def may_be_pulled(lane: TaskStats, registry: Registry, pulled: Collection[str]) -> bool:
    """Whether its jobs have no task, and their topic is one of those ``pulled``."""
    return not lane.task and lane.topic in pulled and registry.resolve(lane.topic, "") is None


def _lane_taken_check(workers: Sequence[WorkerRecord], now: int) -> Callable[[TaskStats], bool]:
    """Whether a live worker takes jobs of a lane.

    One with more lanes than are listed may take any: then it is told by what happens there.
    """
    live = [worker for worker in workers if not is_missing(worker, now)]
    lanes = {(lane.topic, lane.task) for worker in live for lane in worker.lanes}
    listed = not any(worker.more_lanes for worker in live)

    def taken(lane: TaskStats) -> bool:
        if (lane.topic, lane.task) in lanes or (lane.topic, None) in lanes:
            return True
        return not listed and not _is_unclaimed(lane, now)

    return taken


def _is_unclaimed(lane: TaskStats, now: int) -> bool:
    """Whether jobs have been due for minutes, and none of them began."""
    happened = lane.activity
    if lane.running or happened is None:
        return False
    begin = now - seconds_to_microseconds(IDLE_LANE_SECONDS)
    lately = (
        [minute for minute in happened.series if minute.minute >= begin] if happened.series else [happened]
    )
    if any(part.completed or part.failed or part.retried for part in lately):
        return False
    return lane.due > sum(part.enqueued for part in lately)


# -- workers ------------------------------------------------------------------------------------------------


def _workers(look: QueueView) -> Iterator[StuckThing]:
    for worker in look.workers or ():
        since = to_datetime(worker.seen_at)
        if is_missing(worker, look.now):
            silent = format_duration((look.now - worker.seen_at) / MICROSECONDS)
            explanation = f"worker {worker.name} has not been heard of for {silent}"
            yield StuckThing(
                kind=StuckKind.WORKER_MISSING, explanation=explanation, worker=worker.name, since=since
            )
        elif worker.stuck:
            slots = f"{worker.stuck:,} of {plural(worker.concurrency, 'slot')}"
            yield StuckThing(
                kind=StuckKind.WORKER_STUCK,
                explanation=f"worker {worker.name} has {slots} held by what was told to stop and goes on",
                worker=worker.name,
                since=since,
            )
