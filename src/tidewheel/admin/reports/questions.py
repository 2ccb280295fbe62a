"""The six questions an operator asks, each answered in a sentence with the figures behind it (Q29).

``await app.questions.stuck()`` and its five siblings; ``attention`` sums up what is wrong and what to do.
What they cost does not depend on how many jobs there are: they look at counters, at the running jobs, and at
the newest 10,000 of those a question is about. Under a ``SecurityContext`` they cover the tenant's own jobs
and leave out workers, which serve all tenants.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Unpack

from tidewheel.admin.filters import JobFilters, check_filter
from tidewheel.admin.filters.syntax import lane_filter
from tidewheel.admin.reports.answers import (
    Attention,
    DuplicateGroup,
    Duplicates,
    FailedGroup,
    FailedJobs,
    Finding,
    JobDurations,
    LaneHour,
    LastHour,
    Outstanding,
    OutstandingLane,
    Severity,
    StuckJobs,
    StuckKind,
    StuckThing,
    TaskDurations,
)
from tidewheel.admin.reports.attention import collect_findings
from tidewheel.admin.reports.findings import find_schedule_problems
from tidewheel.admin.reports.stuck_jobs import (
    IDLE_LANE_SECONDS,
    MAX_STUCK_THINGS,
    QueueView,
    could_be_slow,
    find_stuck,
    lane_name,
    may_be_pulled,
)
from tidewheel.client import visibility
from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds, to_datetime
from tidewheel.core.conditions import Compare, Comparison, Field, InState
from tidewheel.core.filter_pushdown import push_down
from tidewheel.core.model import Count, JobFilter, State, WorkerRecord
from tidewheel.core.reports import (
    Distribution,
    DuplicateJobGroup,
    FailureGroup,
    HealthFinding,
    HealthFindingKind,
    TaskActivity,
    TaskStats,
    TopicStats,
)
from tidewheel.core.security_context import current_context, effective_tenant
from tidewheel.core.text_format import format_duration, plural
from tidewheel.core.topic_limits import BlockedTopic
from tidewheel.core.validation import check_integer, check_seconds
from tidewheel.errors import InvalidInput, NotPermitted, StoreError, StoreUnavailable
from tidewheel.stores.bounds import MAX_GROUPS

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

from tidewheel.core.clock import HOUR

_log = logging.getLogger("tidewheel.questions")

QUESTION_TEXTS: Final = {
    "outstanding": "What is outstanding?",
    "failed": "What failed, and why?",
    "stuck": "What is stuck?",
    "durations": "How long do jobs take?",
    "duplicates": "Are there duplicates?",
    "last_hour": "What ran in the last hour?",
}
"""The six, by the names of their methods, as people ask them."""
THROUGHPUT_WINDOW_SECONDS: Final = 600.0
"""Over so long it is measured how fast a lane gets done."""
MAX_LANES_SHOWN: Final = 100
"""Lanes that an answer lists."""
MAX_FINDINGS: Final = 100
"""Things that need attention, the worst."""
HEALTH_TIMEOUT_SECONDS: Final = 3.0
"""How long a store may take to tell what ails it; longer than each of its parts may."""
MAX_PULL_TOPICS_CHECKED: Final = 20
"""Topics of jobs without a task of which one job is looked at, to tell whether they are pulled."""
MAX_RUNNING_CHECKED: Final = 1000
"""Running jobs that are looked at, those claimed longest ago."""


class Questions:
    """``app.questions``."""

    __slots__ = ("_app",)

    def __init__(self, app: Tidewheel) -> None:
        self._app = app

    async def outstanding(self, *, tenant: str | None = None) -> Outstanding:
        """What is outstanding: jobs that are due, delayed or running, by task and topic."""
        tenant = self._tenant(tenant)
        store = self._app.store
        stats = await visibility.visible_stats(store, THROUGHPUT_WINDOW_SECONDS, tenant)
        lanes = await visibility.visible_lanes(store, THROUGHPUT_WINDOW_SECONDS, tenant)
        paused = _paused_topics(stats.topics)
        unfinished = sorted(
            (lane for lane in lanes if lane.pending or lane.running),
            key=lambda lane: (-(lane.pending + lane.running), lane.topic, lane.task),
        )
        due = stats.pending - stats.delayed
        return Outstanding(
            answer=_outstanding(
                due, stats.delayed, stats.running, stats.oldest_due_at, await store.now(), unfinished
            ),
            pending=stats.pending,
            due=due,
            delayed=stats.delayed,
            running=stats.running,
            oldest_due_at=None if stats.oldest_due_at is None else to_datetime(stats.oldest_due_at),
            lanes=tuple(
                OutstandingLane(
                    topic=lane.topic,
                    task=lane.task,
                    pending=lane.pending,
                    due=lane.due,
                    running=lane.running,
                    paused=lane.topic in paused,
                    completed_per_minute=_completed_per_minute(lane.activity),
                )
                for lane in unfinished[:MAX_LANES_SHOWN]
            ),
        )

    async def failed(
        self, *, window: float | timedelta = HOUR, limit: int = 50, **filters: Unpack[JobFilters]
    ) -> FailedJobs:
        """What failed and why: failed jobs that match, grouped by task and error, the largest groups first.

        The newest 10,000 are looked at; the trend of each group is that of the last ``window`` seconds.
        """
        seconds = check_seconds("window", window, 1)
        check_integer("limit", limit, 1, MAX_GROUPS)
        where = check_filter(filters, now=self._app.clock.now(), uuids=self._app.settings.tenant_uuids)
        if where.state not in (None, State.FAILED):
            raise InvalidInput(f"state is {where.state}; this question is about failed jobs, leave state out")
        found = await self._app.store.failures(where, window_seconds=seconds, limit=limit)
        return FailedJobs(
            answer=_failed(found.jobs, found.found, found.groups, complete=found.complete),
            jobs=found.jobs,
            complete=found.complete,
            errors=found.found,
            window_seconds=seconds,
            groups=tuple(_failed_group(group) for group in found.groups),
        )

    async def stuck(self, *, tenant: str | None = None) -> StuckJobs:
        """What is stuck: running jobs that should have ended, due jobs nobody takes, workers in trouble."""
        look, complete = await self._queue_view(self._tenant(tenant), IDLE_LANE_SECONDS)
        things = find_stuck(look, self._app.registry)
        jobs = sum(thing.jobs for thing in things)
        return StuckJobs(
            answer=_stuck(jobs, things),
            jobs=jobs,
            complete=complete and len(things) <= MAX_STUCK_THINGS,
            things=tuple(things[:MAX_STUCK_THINGS]),
        )

    async def attention(self, *, tenant: str | None = None) -> Attention:
        """What needs attention, the worst first, each with what to do about it.

        What is stuck, tasks that fail, lanes that fall behind, workers in trouble, and what ails the store.
        Under a security context it is about the tenant's own jobs, as far as counters tell: workers and the
        store are everybody's, and minutes are kept of all tenants together.
        """
        tenant = self._tenant(tenant)
        look, _ = await self._queue_view(tenant, HOUR)
        of_all = current_context() is None and tenant is None
        ailments = await self._health_findings() if current_context() is None else []
        others = await self._schedule_findings() if of_all else []
        found = collect_findings(look, self._app.registry, ailments, others)
        by_severity = Counter(finding.severity for finding in found)
        return Attention(
            answer=_attention(found, by_severity),
            critical=by_severity[Severity.CRITICAL],
            warnings=by_severity[Severity.WARNING],
            infos=by_severity[Severity.INFO],
            findings=tuple(found[:MAX_FINDINGS]),
            more=max(0, len(found) - MAX_FINDINGS),
        )

    async def _health_findings(self) -> list[HealthFinding]:
        """What the store says of itself, if it does so soon."""
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
                return await self._app.store.health()
        except TimeoutError:
            reason = f"no answer within {HEALTH_TIMEOUT_SECONDS:g} s"
        except StoreError as error:
            reason = str(error)
        return [HealthFinding(HealthFindingKind.UNSEEN, {"part": "the store", "reason": reason})]

    async def _schedule_findings(self) -> list[Finding]:
        """What ails schedules, where this program may see them."""
        try:
            return list(find_schedule_problems(await self._app.schedules.all()))
        except StoreError as error:  # a role of the database that is for callers: they have no documents
            _log.debug("schedules were not looked at: %s", error)
            return []

    async def _queue_view(self, tenant: str | None, window_seconds: float) -> tuple[QueueView, bool]:
        """What runs, waits and works; False when more jobs run than are looked at."""
        store = self._app.store
        seen = visibility.visible_filter(tenant)
        if seen is None:
            running = await store.longest_running(MAX_RUNNING_CHECKED + 1, tenant=tenant)
        else:
            where = push_down(seen, InState(State.RUNNING))
            running = list((await store.list_jobs(where, limit=MAX_RUNNING_CHECKED + 1)).items)
        now = await store.now()
        # What is usual is only asked where some job could be slower: that looks at 10,000 finished ones.
        may_be_slow = seen is None and any(could_be_slow(job, now) for job in running)
        lanes = await visibility.visible_lanes(store, window_seconds, tenant)
        look = QueueView(
            now=now,
            running=running[:MAX_RUNNING_CHECKED],
            lanes=lanes,
            topics=await visibility.visible_topics(store, tenant),
            usual_durations=await store.durations(tenant=tenant) if may_be_slow else [],
            workers=await self._workers(tenant),
            blocked_topics=await self._blocked_topics(),
            pulled_topics=await self._pulled_topics(lanes, tenant),
        )
        return look, len(running) <= MAX_RUNNING_CHECKED

    async def _pulled_topics(self, lanes: Sequence[TaskStats], tenant: str | None) -> set[str]:
        """The topics of due jobs without a task whose newest one was put for a program that pulls."""
        store, registry = self._app.store, self._app.registry
        topics = [lane.topic for lane in lanes if lane.due]
        pulled = set()
        for lane in [lane for lane in lanes if lane.due and may_be_pulled(lane, registry, topics)][
            :MAX_PULL_TOPICS_CHECKED
        ]:
            where = JobFilter(topic=lane.topic, task="", state=State.PENDING, tenant=tenant)
            for record in (await store.list_jobs(where, limit=1)).items:
                whole = await store.get(record.id, tenant=tenant)
                if whole is not None and whole.lease_seconds is not None:  # which only a put gives
                    pulled.add(lane.topic)
        return pulled

    async def _blocked_topics(self) -> list[BlockedTopic]:
        """Limits are of all tenants together, and keys are others', too: not for who acts for one."""
        if current_context() is not None:
            return []
        try:
            return await self._app.store.blocked_by_limits()
        except StoreUnavailable:
            raise
        except StoreError as error:  # a role of the database that is for callers
            _log.debug("limits were not looked at: %s", error)
            return []

    async def _workers(self, tenant: str | None) -> list[WorkerRecord] | None:
        """An operator who asks about a tenant is told that nobody takes its jobs; the tenant is not."""
        if current_context() is not None:
            return None
        try:
            return await self._app.store.workers()
        except StoreUnavailable:
            raise
        except StoreError:
            if tenant is None:
                raise
            return None  # a role that is shown one tenant at a time may not see workers

    async def durations(self, *, tenant: str | None = None) -> JobDurations:
        """How long jobs take: their handlers, and how long they had waited before, by task and topic.

        Of the newest 10,000 completed jobs; of all together, of what ran in the last hour.
        """
        tenant = self._tenant(tenant)
        _refuse_partly("durations", tenant)
        store = self._app.store
        lanes = await store.durations(tenant=tenant)
        lanes.sort(key=lambda lane: (-(lane.run_time.p95 or 0.0), lane.topic, lane.task))
        stats = await store.stats(window_seconds=HOUR, tenant=tenant)
        tasks = tuple(
            TaskDurations(topic=lane.topic, task=lane.task, run_time=lane.run_time, wait_time=lane.wait_time)
            for lane in lanes[:MAX_LANES_SHOWN]
        )
        return JobDurations(
            answer=_durations(stats.run_time, tasks),
            run_time=stats.run_time,
            wait_time=stats.wait_time,
            tasks=tasks,
        )

    async def duplicates(self, *, limit: int = 50, tenant: str | None = None) -> Duplicates:
        """Whether there are duplicates: jobs that share a key, and pending ones that share a payload.

        The newest 10,000 of each are looked at, and payloads of up to 1,000 bytes.
        """
        check_integer("limit", limit, 1, MAX_GROUPS)
        tenant = self._tenant(tenant)
        _refuse_partly("duplicates", tenant)
        found = await self._app.store.duplicate_jobs(limit=limit, tenant=tenant)
        same_key = tuple(map(_duplicate_group, found.by_key))
        same_payload = tuple(map(_duplicate_group, found.by_payload))
        return Duplicates(
            answer=_duplicates(same_key, same_payload),
            same_key=same_key,
            same_payload=same_payload,
            complete=found.keys_complete and found.payloads_complete,
        )

    async def last_hour(self, *, tenant: str | None = None) -> LastHour:
        """What ran in the last hour: how many jobs came in and ended, minute by minute, and by lane.

        Of a tenant no minutes are kept: its jobs that were enqueued in the last hour are counted.
        """
        tenant = self._tenant(tenant)
        store = self._app.store
        if tenant is not None:
            return await self._last_hour_of(tenant)
        stats = await store.stats(window_seconds=HOUR)
        lanes = await store.lanes(window_seconds=HOUR)
        told = sorted(
            ((lane, lane.activity) for lane in lanes if lane.activity is not None and lane.activity.events),
            key=lambda pair: (-pair[1].events, pair[0].topic, pair[0].task),
        )
        names = ("enqueued", "completed", "failed", "cancelled", "retried")
        totals = {name: sum(getattr(minute, name) for minute in stats.series) for name in names}
        return LastHour(
            answer=_last_hour(totals),
            **totals,
            exact=True,
            series=stats.series,
            lanes=tuple(_lane_hour(*pair) for pair in told[:MAX_LANES_SHOWN]),
        )

    async def _last_hour_of(self, tenant: str) -> LastHour:
        store = self._app.store
        since = await store.now() - seconds_to_microseconds(HOUR)
        seen = visibility.visible_filter(tenant) or JobFilter(tenant=tenant)
        recent = push_down(seen, Compare(Field.CREATED_AT, Comparison.AT_LEAST, since))
        counts: dict[State | None, Count] = {None: await store.count(recent)}
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED):
            counts[state] = await store.count(push_down(recent, InState(state)))
        totals = {
            "enqueued": counts[None].total,
            "completed": counts[State.COMPLETED].total,
            "failed": counts[State.FAILED].total,
            "cancelled": counts[State.CANCELLED].total,
            "retried": 0,
        }
        return LastHour(
            answer=_last_hour(totals),
            **totals,
            exact=all(count.exact for count in counts.values()),
            series=(),
            lanes=(),
        )

    def _tenant(self, given: str | None) -> str | None:
        return effective_tenant(given, uuids=self._app.settings.tenant_uuids)


def _refuse_partly(question: str, tenant: str | None) -> None:
    """Refuse what is told of all jobs of a tenant to somebody who sees some of them only."""
    if visibility.visible_filter(tenant) is not None:
        raise NotPermitted(
            f"{question} are told of all jobs of a tenant, and this code sees only some (`only` of its "
            "SecurityContext); ask without that condition, or about single jobs"
        )


def _paused_topics(topics: Iterable[TopicStats]) -> set[str]:
    return {topic.topic for topic in topics if topic.paused_until is not None}


def _completed_per_minute(activity: TaskActivity | None) -> float | None:
    return None if activity is None else activity.completed * 60 / THROUGHPUT_WINDOW_SECONDS


def _failed_group(group: FailureGroup) -> FailedGroup:
    return FailedGroup(
        fingerprint=group.fingerprint,
        topic=group.topic,
        task=group.task,
        error=group.pattern,
        sample=group.sample,
        jobs=group.count,
        first_failed_at=to_datetime(group.first_failed_at),
        last_failed_at=to_datetime(group.last_failed_at),
        newest=group.newest,
        trend=group.trend,
        where=_group_filter(group),
    )


def _group_filter(group: FailureGroup) -> str:
    """Return a filter for exactly the jobs of a group. Its lane is found through an index."""
    return f"{lane_filter(group.topic, group.task, 'failed')} fingerprint:{group.fingerprint}"


def _duplicate_group(group: DuplicateJobGroup) -> DuplicateGroup:
    return DuplicateGroup(
        tenant=group.tenant,
        topic=group.topic,
        task=group.task,
        key=group.key,
        jobs=group.count,
        newest=group.newest,
        oldest=group.oldest,
    )


def _lane_hour(lane: TaskStats, activity: TaskActivity) -> LaneHour:
    return LaneHour(
        topic=lane.topic,
        task=lane.task,
        enqueued=activity.enqueued,
        completed=activity.completed,
        failed=activity.failed,
        cancelled=activity.cancelled,
        retried=activity.retried,
        average_run_seconds=activity.average_run_seconds,
        series=activity.series,
    )


# -- sentences ----------------------------------------------------------------------------------------------


def _outstanding(
    due: int, delayed: int, running: int, oldest: int | None, now: int, lanes: Sequence[TaskStats]
) -> str:
    if not due + delayed + running:
        return "Nothing is outstanding."
    parts = [f"{due:,} due", f"{running:,} running", f"{delayed:,} delayed"]
    waiting = "" if oldest is None else f", the oldest for {format_duration((now - oldest) / MICROSECONDS)}"
    most = f"; the most in {lane_name(lanes[0].topic, lanes[0].task)}" if len(lanes) > 1 else ""
    return f"{plural(due + delayed + running, 'job')} outstanding: {', '.join(parts)}{waiting}{most}."


def _failed(jobs: int, errors: int, groups: Sequence[FailureGroup], *, complete: bool) -> str:
    if not jobs:
        return "No job has failed."
    first = groups[0]
    verb = "has" if jobs == 1 else "have"
    more = "" if complete else "at least "
    different = f"with {errors:,} different errors, mostly" if errors > 1 else "with"
    return (
        f"{more.capitalize()}{plural(jobs, 'job')} {verb} failed, {different} "
        f"“{first.pattern}” in {lane_name(first.topic, first.task)} ({first.count:,})."
    )


def _attention(found: Sequence[Finding], by_severity: Counter[Severity]) -> str:
    if not found:
        return "Nothing needs attention."
    parts = [
        plural(number, one, many)
        for number, one, many in (
            (by_severity[Severity.CRITICAL], "thing is critical", "things are critical"),
            (by_severity[Severity.WARNING], "warning", ""),
            (by_severity[Severity.INFO], "thing is good to know", "things are good to know"),
        )
        if number
    ]
    return f"{', '.join(parts)}; first: {found[0].title}."


_STUCK_PHRASES: Final = {
    StuckKind.LEASE_ENDED: "whose worker did not come back",
    StuckKind.HOLDER_LOST: "held by workers or pullers that are gone",
    StuckKind.TIMED_OUT: "running far beyond their timeout",
    StuckKind.SLOW: "running much longer than usual",
    StuckKind.NO_WORKER: "due that no live worker takes",
    StuckKind.UNKNOWN_TASK: "due whose task is known to no live worker and not here",
    StuckKind.PAUSED: "due in a paused topic",
}


def _stuck(jobs: int, things: Sequence[StuckThing]) -> str:
    if not things:
        return "Nothing is stuck."
    parts = []
    for kind, words in _STUCK_PHRASES.items():
        lanes = [thing for thing in things if thing.kind is kind]
        if lanes:
            further = f" and {len(lanes) - 1:,} more" if len(lanes) > 1 else ""
            parts.append(f"{sum(thing.jobs for thing in lanes):,} {words} ({_lane_of(lanes[0])}{further})")
    for kind, one, many in (
        (StuckKind.WORKER_MISSING, "worker is missing", "workers are missing"),
        (StuckKind.WORKER_STUCK, "worker has stuck slots", "workers have stuck slots"),
    ):
        if workers := sum(thing.kind is kind for thing in things):
            parts.append(plural(workers, one, many))
    if jobs:
        return f"{plural(jobs, 'job is', 'jobs are')} stuck: {'; '.join(parts)}."
    return f"No job is stuck, but {' and '.join(parts)}."


def _lane_of(thing: StuckThing) -> str:
    return lane_name(thing.topic or "", thing.task or "")


def _durations(overall: Distribution, tasks: Sequence[TaskDurations]) -> str:
    if not tasks:
        return "No job has completed yet."
    slowest = tasks[0]
    told = (
        f"the slowest is {lane_name(slowest.topic, slowest.task)}: half of its jobs run for up to "
        f"{format_duration(slowest.run_time.p50)}, 95 % for up to {format_duration(slowest.run_time.p95)}"
    )
    if not overall.count:
        return f"{told[0].upper()}{told[1:]}."
    return (
        f"In the last hour half of the runs took up to {format_duration(overall.p50)} and 99 % up to "
        f"{format_duration(overall.p99)}; {told}."
    )


def _duplicates(same_key: Sequence[DuplicateGroup], same_payload: Sequence[DuplicateGroup]) -> str:
    parts = []
    if same_payload:
        jobs = sum(group.jobs - 1 for group in same_payload)
        parts.append(
            f"{plural(jobs, 'pending job repeats', 'pending jobs repeat')} the payload of another, "
            f"mostly in {lane_name(same_payload[0].topic, same_payload[0].task)}"
        )
    if same_key:
        keys = plural(len(same_key), "key was used", "keys were used")
        parts.append(f"{keys} more than once, mostly in {lane_name(same_key[0].topic, same_key[0].task)}")
    return f"{'; '.join(parts)}." if parts else "No duplicates were found."


def _last_hour(totals: dict[str, int]) -> str:
    if not any(totals.values()):
        return "Nothing happened in the last hour."
    ended = ", ".join(f"{totals[name]:,} {name}" for name in ("completed", "failed", "cancelled"))
    retries = f", {plural(totals['retried'], 'retry', 'retries')}" if totals["retried"] else ""
    return f"In the last hour {totals['enqueued']:,} jobs came in; {ended}{retries}."
