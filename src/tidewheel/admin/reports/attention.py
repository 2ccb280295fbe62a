"""What needs attention: from a look at the queue to findings, each with what to do about it.

**A failing task.** An attempt errored when it was retried or its job failed; a completed job is an attempt
that did not. A task is told of when at least two attempts errored and, by Wilson's lower bound, it is 95 %
sure that more than ``MIN_ERROR_SHARE`` of its attempts do. So one failure in five (bound 4 %) or 25 in 100
(18 %) are silence, two of two (34 %), 30 in 100 (22 %) and 230 in 1,000 (20.5 %) are not: the fewer attempts,
the worse they have to be. From ``HIGH_ERROR_SHARE`` on it is critical: four of four. The last
``RECENT_SECONDS`` decide where there were enough attempts, so that neither an old success hides a new trouble
nor an old trouble stays; the hour does for tasks that run rarely, and for all but the busiest lanes, whose
minutes are told. A job that fails after three attempts counts three: a task that runs once an hour and always
fails is found.

**A backlog.** The due jobs of a lane, divided by what ended there lately, is how long they take at the
present pace; what came in lately tells whether they become more.
"""

from __future__ import annotations

import math
import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from tidewheel.admin.filters.syntax import field_term, lane_filter
from tidewheel.admin.reports.answers import Finding, FindingKind, Severity, StuckKind, StuckThing
from tidewheel.admin.reports.findings import describe_health_finding, find_worker_findings, list_names
from tidewheel.admin.reports.stuck_jobs import QueueView, find_stuck, lane_name
from tidewheel.admin.worker_info import MISSING_SECONDS
from tidewheel.core.clock import HOUR, MICROSECONDS, seconds_to_microseconds, to_datetime
from tidewheel.core.model import FOREVER, WorkerRecord
from tidewheel.core.names import shorten
from tidewheel.core.reports import HealthFinding, HealthFindingKind, TaskStats
from tidewheel.core.text_format import format_duration, list_some, plural
from tidewheel.core.topic_limits import BlockedTopic, BlockingLimit
from tidewheel.tasks.registry import Registry

RECENT_SECONDS: Final = 900.0
MIN_RECENT_ATTEMPTS: Final = 10
"""So many recent attempts are enough to forget the others of the hour."""
MIN_ERRORS: Final = 2
MIN_ERROR_SHARE: Final = 0.2
HIGH_ERROR_SHARE: Final = 0.5
CONFIDENCE_Z: Final = 1.96
"""Standard deviations: 95 %."""
MIN_BACKLOG: Final = 100
"""Fewer due jobs are no backlog."""
LONG_DRAIN_SECONDS: Final = 900.0
VERY_LONG_DRAIN_SECONDS: Final = HOUR
MIN_LIMIT_WAIT_SECONDS: Final = 5.0
"""To wait so long for a limit is what it is for."""
MAX_MISSING_AGE_SECONDS: Final = HOUR
"""A worker that vanished longer ago is no news."""
MAX_FINDINGS_PER_KIND: Final = 10
"""Findings of one kind that are told one by one, the worst of them."""
MAX_SINGLE_WORKER_FINDINGS: Final = 3
"""Of more that are missing there is one finding: they went with their machine, or were killed together."""

_RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}


def collect_findings(
    look: QueueView, registry: Registry, ailments: Sequence[HealthFinding], others: Sequence[Finding] = ()
) -> list[Finding]:
    """Everything, and what was found elsewhere, the worst first."""
    stuck = find_stuck(look, registry)
    found = [
        *_no_worker_findings(look, stuck),
        *(_stuck_finding(thing, look.now) for thing in stuck if not _is_grouped(thing, look)),
        *_missing_worker_findings(look, stuck),
        *_paused_topic_findings(look, stuck),
        *_failing_task_findings(look),
        *_limited_topic_findings(look, stuck),
        *_backlog_findings(look, stuck),
        *find_worker_findings(_live_workers(look)),
        *map(health_finding, ailments),
        *others,
    ]
    found.sort(key=lambda finding: (_RANK[finding.severity], -finding.jobs, finding.kind))
    return _cap_per_kind(found)


def _cap_per_kind(found: Sequence[Finding]) -> list[Finding]:
    """A thousand lanes with one trouble must not hide others: beyond some of a kind one tells of the rest."""
    told: list[Finding] = []
    of_kind: defaultdict[FindingKind, list[Finding]] = defaultdict(list)
    for finding in found:
        of_kind[finding.kind].append(finding)
        if len(of_kind[finding.kind]) <= MAX_FINDINGS_PER_KIND:
            told.append(finding)
    for kind, all_of_it in of_kind.items():
        rest = all_of_it[MAX_FINDINGS_PER_KIND:]
        if rest:
            last = max(place for place, finding in enumerate(told) if finding.kind is kind)
            told.insert(last + 1, _summarize_rest(rest))
    return told


def _summarize_rest(rest: Sequence[Finding]) -> Finding:
    names = [lane_name(one.topic or "", one.task or "") or one.worker or one.title for one in rest]
    jobs = sum(finding.jobs for finding in rest)
    about = f", {plural(jobs, 'job')} together" if jobs else ""
    return Finding(
        kind=rest[0].kind,
        severity=rest[0].severity,
        title=f"The same of {len(rest):,} more",
        explanation=f"The same is so of {list_some(names)}{about}.",
        remedy="See those above; where one thing helps them, it helps these, too",
        jobs=jobs,
        details={"findings": len(rest)},
    )


# -- what is stuck ------------------------------------------------------------------------------------------


def _live_workers(look: QueueView) -> list[WorkerRecord]:
    oldest = look.now - seconds_to_microseconds(MISSING_SECONDS)
    return [worker for worker in look.workers or () if worker.seen_at >= oldest]


def _is_grouped(thing: StuckThing, look: QueueView) -> bool:
    """Where no worker lives at all, that is one finding and not one for each lane; nor for each worker."""
    return thing.kind is StuckKind.WORKER_MISSING or (
        thing.kind is StuckKind.NO_WORKER and not _live_workers(look)
    )


def _no_worker_findings(look: QueueView, stuck: Sequence[StuckThing]) -> Iterator[Finding]:
    lanes = [thing for thing in stuck if thing.kind is StuckKind.NO_WORKER and _is_grouped(thing, look)]
    if lanes:
        jobs = sum(thing.jobs for thing in lanes)
        yield Finding(
            kind=FindingKind.NO_WORKER,
            severity=Severity.CRITICAL,
            title="No worker is running",
            explanation=f"{plural(jobs, 'job is', 'jobs are')} due in {_list_lanes(lanes)}, and no worker is "
            f"alive to run {'it' if jobs == 1 else 'them'}.",
            remedy="Start one: tidewheel worker MODULE:APP",
            jobs=jobs,
            where="state:pending",
        )


def _list_lanes(lanes: Sequence[StuckThing]) -> str:
    name = lane_name(lanes[0].topic or "", lanes[0].task or "")
    return f"{len(lanes):,} lanes, the most in {name}" if len(lanes) > 1 else name


def _missing_worker_findings(look: QueueView, stuck: Sequence[StuckThing]) -> Iterator[Finding]:
    for news in (True, False):
        gone = [
            thing
            for thing in stuck
            if thing.kind is StuckKind.WORKER_MISSING and _is_recent(thing, look.now) == news
        ]
        if len(gone) <= MAX_SINGLE_WORKER_FINDINGS:
            yield from (_stuck_finding(thing, look.now) for thing in gone)
            continue
        first, last = (pick(thing.since for thing in gone if thing.since) for pick in (min, max))
        names = sorted(thing.worker or "" for thing in gone)
        silent = format_duration((to_datetime(look.now) - last).total_seconds())
        yield Finding(
            kind=FindingKind.WORKER_MISSING,
            severity=Severity.WARNING if news else Severity.INFO,
            title=f"{len(gone):,} workers are missing",
            explanation=f"{_sentence(list_names(names))[:-1]} have not been heard of for {silent} or longer.",
            remedy="See why they ended: their logs, their machines, the memory they were given. Their jobs "
            "come back when their leases end, and they leave the list after a day",
            since=first,
        )


@dataclass(frozen=True, slots=True)
class _StuckText:
    """What is said of a stuck thing; ``name`` stands for its lane."""

    severity: Severity
    title: str
    remedy: str
    state: str = ""  # of the jobs it is about


_STUCK_TEXTS: Final = {
    StuckKind.LEASE_ENDED: _StuckText(
        Severity.WARNING,
        "Jobs of {name} lost their worker",
        "Any live worker brings them back within seconds: start one, tidewheel worker MODULE:APP",
        "running",
    ),
    StuckKind.HOLDER_LOST: _StuckText(
        Severity.WARNING,
        "Jobs of {name} are held by {worker}, which is gone",
        "Free them now: tidewheel jobs take-back --lost; otherwise they come back when their leases end",
        "running",
    ),
    StuckKind.TIMED_OUT: _StuckText(
        Severity.WARNING,
        "{name} runs beyond its timeout",
        "Its handler does not stop when told to. Restart its worker, and give the task "
        'isolation="process", where a handler can be killed',
        "running",
    ),
    StuckKind.SLOW: _StuckText(
        Severity.INFO,
        "{name} runs much longer than usual",
        "See what it waits for, or ask it to stop: tidewheel jobs cancel {job_id}; a timeout would by itself",
        "running",
    ),
    StuckKind.NO_WORKER: _StuckText(
        Severity.CRITICAL,
        "No worker takes {name}",
        "Start a worker of the app that has this task, tidewheel worker MODULE:APP, or see which topics the "
        "workers leave out",
        "pending",
    ),
    StuckKind.UNKNOWN_TASK: _StuckText(
        Severity.WARNING,
        "Nobody knows the task of {name}",
        "Deploy code that registers it, or an alias for its old name; or delete these jobs",
        "pending",
    ),
    StuckKind.PAUSED: _StuckText(
        Severity.WARNING, "{topic} is paused, and jobs wait", "tidewheel topics resume {argument}", "pending"
    ),
    StuckKind.WORKER_MISSING: _StuckText(
        Severity.WARNING,
        "Worker {worker} is missing",
        "See why it ended: its log, its machine, the memory it was given. Its jobs come back when their "
        "leases end, and it leaves the list after a day",
    ),
    StuckKind.WORKER_STUCK: _StuckText(
        Severity.WARNING,
        "Worker {worker} has stuck slots",
        "Some handlers ignore that they were told to stop. Restart the worker, and give such tasks "
        'isolation="process"',
    ),
}


def _stuck_finding(thing: StuckThing, now: int) -> Finding:
    words = _STUCK_TEXTS[thing.kind]
    named = {
        "name": lane_name(thing.topic or "", thing.task or ""),
        "topic": thing.topic,
        "argument": shlex.quote(
            thing.topic or ""
        ),  # over the beanstalkd wire a topic may be called $(reboot)
        "worker": thing.worker,
        "job_id": thing.job_id,
    }
    where = None
    if thing.topic is not None:
        where = lane_filter(thing.topic, thing.task, words.state)
        if thing.kind is StuckKind.HOLDER_LOST:  # others may hold jobs of the lane, and are alive
            where = f"{where} {field_term('worker', thing.worker or '')}"
    elif thing.worker is not None:
        where = f"state:running {field_term('worker', thing.worker)}"
    old = thing.kind is StuckKind.WORKER_MISSING and not _is_recent(thing, now)
    return Finding(
        kind=FindingKind(thing.kind),
        severity=Severity.INFO if old else words.severity,
        title=words.title.format(**named),
        explanation=_sentence(thing.explanation),
        remedy=words.remedy.format(**named),
        since=thing.since,
        jobs=thing.jobs,
        topic=thing.topic,
        task=thing.task,
        job_id=thing.job_id,
        worker=thing.worker,
        where=where,
    )


def _is_recent(thing: StuckThing, now: int) -> bool:
    return thing.since is None or (to_datetime(now) - thing.since).total_seconds() < MAX_MISSING_AGE_SECONDS


def _paused_topic_findings(look: QueueView, stuck: Sequence[StuckThing]) -> Iterator[Finding]:
    """Paused topics in which nothing is due yet; somebody may have forgotten them."""
    told = {thing.topic for thing in stuck if thing.kind is StuckKind.PAUSED}
    for topic in look.topics:
        if topic.paused_until is None or topic.topic in told:
            continue
        left = format_duration((topic.paused_until - look.now) / MICROSECONDS)
        until = "until somebody resumes it" if topic.paused_until == FOREVER else f"for another {left}"
        yield Finding(
            kind=FindingKind.PAUSED,
            severity=Severity.INFO,
            title=f"{topic.topic} is paused",
            explanation=f"No worker takes jobs of {topic.topic} {until}; nothing is due there now.",
            remedy=f"tidewheel topics resume {shlex.quote(topic.topic)}",
            topic=topic.topic,
            where=lane_filter(topic.topic, None),
        )


# -- tasks that fail, lanes that fall behind ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _RecentActivity:
    """What happened in a lane in the last ``seconds``."""

    seconds: float
    enqueued: int
    completed: int
    failed: int
    retried: int
    cancelled: int
    since: int | None = None
    """when the first error of that time was, to the minute"""
    busy_seconds: float = HOUR
    """since the first minute of that time in which anything happened"""

    @property
    def span(self) -> str:
        return "hour" if self.seconds == HOUR else f"{self.seconds / 60:.0f} minutes"

    @property
    def errored(self) -> int:
        return self.failed + self.retried

    @property
    def attempts(self) -> int:
        return self.completed + self.errored

    @property
    def ended(self) -> int:
        return self.completed + self.failed + self.cancelled


def _recent_activity(lane: TaskStats, now: int) -> tuple[_RecentActivity, _RecentActivity] | None:
    """The last minutes, as far as they are told of this lane, and the hour; None when nothing is."""
    activity = lane.activity
    if activity is None:
        return None
    errors = [minute.minute for minute in activity.series if minute.failed or minute.retried]
    hour = _RecentActivity(
        HOUR,
        activity.enqueued,
        activity.completed,
        activity.failed,
        activity.retried,
        activity.cancelled,
        errors[0] if errors else None,
    )
    if not activity.series:  # one of the less busy lanes, or nothing happened
        return hour, hour
    begin = now - seconds_to_microseconds(RECENT_SECONDS)
    recent = [minute for minute in activity.series if minute.minute >= begin]
    lately = _RecentActivity(
        RECENT_SECONDS,
        sum(minute.enqueued for minute in recent),
        sum(minute.completed for minute in recent),
        sum(minute.failed for minute in recent),
        sum(minute.retried for minute in recent),
        sum(minute.cancelled for minute in recent),
        next((at for at in errors if at >= begin), None),
        max((now - recent[0].minute) / MICROSECONDS, 60.0) if recent else RECENT_SECONDS,
    )
    return lately, hour


def wilson_lower_bound(part: int, whole: int) -> float:
    """Wilson's lower bound of a share: with 95 % certainty it is no smaller."""
    if not whole:
        return 0.0
    share, square = part / whole, CONFIDENCE_Z**2
    spread = CONFIDENCE_Z * math.sqrt((share * (1 - share) + square / (4 * whole)) / whole)
    return (share + square / (2 * whole) - spread) / (1 + square / whole)


def _failing_task_findings(look: QueueView) -> Iterator[Finding]:
    for lane in look.lanes:
        if (happened := _recent_activity(lane, look.now)) is None:
            continue
        recent, hour = happened
        lately = recent if recent.attempts >= MIN_RECENT_ATTEMPTS else hour
        bound = wilson_lower_bound(lately.errored, lately.attempts)
        if lately.errored < MIN_ERRORS or bound < MIN_ERROR_SHARE:
            continue
        name = lane_name(lane.topic, lane.task)
        where = lane_filter(lane.topic, lane.task, "failed" if lately.failed else "retrying")
        always = not lately.completed
        share = f"{lately.errored / lately.attempts:.0%}"
        yield Finding(
            kind=FindingKind.FAILING_TASK,
            severity=Severity.CRITICAL if bound >= HIGH_ERROR_SHARE else Severity.WARNING,
            title=f"{name} always fails" if always else f"{name} fails in {share} of its attempts",
            explanation=f"Of {plural(lately.attempts, 'attempt')} of {name} in the last "
            f"{lately.span} {lately.errored:,} ended in an error{_describe_outcomes(lately)}.",
            remedy=f"See what the errors have in common: tidewheel jobs list --where {shlex.quote(where)}; "
            f"put it right{', and requeue the failed jobs' if lately.failed else ''}. Pausing the topic "
            "saves the attempts of those that wait",
            since=None if lately.since is None else to_datetime(lately.since),
            jobs=lately.failed,
            topic=lane.topic,
            task=lane.task,
            where=where,
            details={
                "attempts": lately.attempts,
                "errored": lately.errored,
                "failed": lately.failed,
                "retried": lately.retried,
                "window_seconds": lately.seconds,
            },
        )


def _describe_outcomes(lately: _RecentActivity) -> str:
    """What became of the jobs whose attempts errored."""
    failed = plural(lately.failed, "job failed for good", "jobs failed for good")
    if not lately.retried:
        return f"; {failed}"
    if not lately.failed:
        return "; no job has failed for good yet, each has attempts left"
    return f"; {failed}, the other attempts had one after them"


def _backlog_findings(look: QueueView, stuck: Sequence[StuckThing]) -> Iterator[Finding]:
    """Lanes that are worked on, and take long; why others are not has been said."""
    told = {(thing.topic, thing.task) for thing in stuck if thing.kind in _UNCLAIMED_KINDS}
    limited = {held.topic for held in look.blocked_topics}  # more workers would not help
    for lane in look.lanes:
        if lane.due < MIN_BACKLOG or lane.topic in limited or (lane.topic, lane.task) in told:
            continue
        if (happened := _recent_activity(lane, look.now)) is None:
            continue
        lately = happened[0]
        pace, income = lately.ended / lately.busy_seconds, lately.enqueued / lately.busy_seconds
        grows = lately.enqueued > lately.ended
        seconds = lane.due / pace if pace else None
        if seconds is not None and seconds < (LONG_DRAIN_SECONDS if grows else VERY_LONG_DRAIN_SECONDS):
            continue
        name = lane_name(lane.topic, lane.task)
        if seconds is None:
            speed = f"none has ended in the last {lately.span}"
        else:
            speed = f"at the present pace of {pace * 60:,.1f} a minute they take {format_duration(seconds)}"
        coming = f", and {income * 60:,.1f} a minute come in" if grows else ""
        yield Finding(
            kind=FindingKind.BACKLOG,
            severity=Severity.WARNING if grows or seconds is None else Severity.INFO,
            title=f"{name} falls behind" if grows else f"{name} has a long backlog",
            explanation=f"{plural(lane.due, 'job')} of {name} are due; {speed}{coming}.",
            remedy="Run more workers or handlers (tidewheel worker --concurrency, --processes), make the "
            "handler faster, or let less come in",
            jobs=lane.due,
            topic=lane.topic,
            task=lane.task,
            where=lane_filter(lane.topic, lane.task, "pending"),
            details={
                "due": lane.due,
                "drain_seconds": seconds,
                "ended_per_minute": pace * 60,
                "enqueued_per_minute": income * 60,
            },
        )


def _limited_topic_findings(look: QueueView, stuck: Sequence[StuckThing]) -> Iterator[Finding]:
    """Topics whose limits let no due job start. Where nobody takes a lane, that comes first."""
    told = {(thing.topic, thing.task) for thing in stuck if thing.kind in _UNCLAIMED_KINDS}
    for held in look.blocked_topics:
        lanes = [lane for lane in look.lanes if lane.topic == held.topic and lane.due]
        due = sum(lane.due for lane in lanes if (lane.topic, lane.task) not in told)
        if not due:
            continue
        waited = (look.now - held.due_since) / MICROSECONDS
        if waited < MIN_LIMIT_WAIT_SECONDS:
            continue
        topic = shlex.quote(held.topic)
        yield Finding(
            kind=FindingKind.LIMITED,
            severity=Severity.WARNING if waited >= HOUR else Severity.INFO,
            title=f"{held.topic} waits for its limit",
            explanation=f"{plural(due, 'job')} of {held.topic} {'is' if due == 1 else 'are'} due and "
            f"{'waits' if due == 1 else 'wait'} for {_describe_limit(held, look.now)}; the first has waited "
            "for "
            f"{format_duration(waited)}.",
            remedy=f"Unless it is meant so, give it more room with tidewheel limits set {topic}, or take it "
            f"away with tidewheel limits remove {topic}; tidewheel limits shows what is set, and by whom",
            since=to_datetime(held.due_since),
            jobs=due,
            topic=held.topic,
            where=lane_filter(held.topic, None, "pending"),
            details={
                "by": str(held.blocking_limit),
                "limits": str(held.limits),
                "running": held.running,
                "tenant": held.tenant,
                "limit_key": held.limit_key,
                "next_start_seconds": None
                if held.next_start_at is None
                else max(0.0, (held.next_start_at - look.now) / MICROSECONDS),
            },
        )


def _describe_limit(held: BlockedTopic, now: int) -> str:
    """Which one, and of which key, as the end of a sentence."""
    limits = held.limits
    key = f"key {shorten(held.limit_key)} of tenant {held.tenant}"
    start = (
        ""
        if held.next_start_at is None
        else format_duration(max(0.0, (held.next_start_at - now) / MICROSECONDS))
    )
    match held.blocking_limit:
        case BlockingLimit.CONCURRENCY:
            return f"its limit of {limits.concurrency:,} at once ({held.running:,} run)"
        case BlockingLimit.RATE:
            return f"its rate of {limits.rate}, which lets the next start in {start}"
        case BlockingLimit.KEY_CONCURRENCY:
            running = f"{held.running:,} of {key} run"
            return f"its limit of {limits.key_concurrency:,} at once of each key ({running})"
        case BlockingLimit.KEY_RATE:
            return f"its rate of {limits.key_rate} of each key, which lets the next of {key} start in {start}"
        case BlockingLimit.ORDERED:
            return f"the strict order of {key}, in which an earlier one has not ended"
        case _:
            assert_never(held.blocking_limit)


_UNCLAIMED_KINDS: Final = (StuckKind.PAUSED, StuckKind.NO_WORKER, StuckKind.UNKNOWN_TASK)


# -- the store ----------------------------------------------------------------------------------------------


def health_finding(finding: HealthFinding) -> Finding:
    """What a store says of what it stands on, as something that needs attention."""
    words = describe_health_finding(finding)
    # What begins with the name of a setting is left as the database spells it.
    named = finding.kind is HealthFindingKind.UNSAFE_COMMITS
    return Finding(
        kind=FindingKind(finding.kind),
        severity=words.severity,
        title=words.title,
        explanation=f"{words.explanation}." if named else _sentence(words.explanation),
        remedy=f"{words.remedy[0].upper()}{words.remedy[1:]}",
        since=None if finding.since is None else to_datetime(finding.since),
        details=finding.figures,
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
