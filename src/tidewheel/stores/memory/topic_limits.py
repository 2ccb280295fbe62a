"""Limits of topics in a ``JobTable``: setting them, and choosing what has room."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from tidewheel.core.model import ClaimRequest
from tidewheel.core.topic_limits import BlockedTopic, LimitsOrigin, TopicLimits
from tidewheel.stores.bounds import MAX_BLOCKED_TOPICS
from tidewheel.stores.limit_check import (
    WHOLE_TOPIC,
    Candidate,
    LimitCheck,
    LimitKey,
    TopicChoice,
    advance_meters,
    check_limited_topic_count,
    explain_block,
    max_jobs_from_topic,
    merge_choices,
)
from tidewheel.stores.memory.job_rows import JobHeap, JobRow
from tidewheel.stores.memory.job_table import JobTable

Lanes = Mapping[tuple[str, str], JobHeap]
"""Due jobs by topic and task."""


def set_limits(table: JobTable, topic: str, limits: TopicLimits | None, now: int) -> bool:
    before = table.limits.get(topic)
    if limits is None:
        table.limits.pop(topic, None)
    elif limits.origin is LimitsOrigin.CODE and before is not None and before.origin is LimitsOrigin.OPERATOR:
        return False
    else:
        check_limited_topic_count(len(table.limits.keys() | {topic}))
        table.limits[topic] = limits
        for name, meter in table.rate_meters.items():
            rate = limits.rate if name[1:] == WHOLE_TOPIC else limits.key_rate
            if name[0] == topic and rate is not None:
                table.rate_meters[name] = min(meter, rate.max_meter(now))
    table.ready_topics.add(topic)
    return True


def choose_jobs(
    table: JobTable, request: ClaimRequest, lanes: Lanes, now: int
) -> tuple[list[JobRow], int | None, bool]:
    """The best jobs of topics without limits and of what has room in the others, best first.

    And when a rate that refused something lets the next job start, and whether more ``free`` might mean more
    jobs. All due jobs are looked at here, however many.
    """
    topics = {topic for topic, _ in lanes if not table.paused_until(topic, now)}
    plain = _unlimited_jobs(
        request, {lane: ready for lane, ready in lanes.items() if lane[0] in topics - table.limits.keys()}
    )
    offers: list[TopicChoice] = []
    jobs = {job.number: job for job in plain}
    for topic in sorted(topics & table.limits.keys()):
        limits = table.limits[topic]
        wish = max_jobs_from_topic(request, topic, limits)
        due = {job.number: job for (of, _), ready in lanes.items() if of == topic for job in ready}
        if wish < 0 or not due:
            continue
        meters, heads = _Meters(table, topic), _KeyHeads(table, topic)
        rooms = LimitCheck(limits, now, _running(table, topic), meters.read, heads.heads)
        taken = rooms.choose(sorted(map(_candidate, due.values())), wish)
        offers.append(TopicChoice(limits, taken, rooms.next_start_at))
        jobs |= due
    numbers, room_at, kept_back = merge_choices(
        request, [(-job.priority, job.number) for job in plain], offers
    )
    return [jobs[number] for number in numbers], room_at, kept_back


def find_blocked_topics(table: JobTable, now: int) -> list[BlockedTopic]:
    found: list[BlockedTopic] = []
    looked = 0
    for topic, limits in sorted(table.limits.items()):
        due = [job for ready in table.ready.get(topic, {}).values() for job in ready]
        if not due or table.paused_until(topic, now):
            continue
        looked += 1
        if looked > MAX_BLOCKED_TOPICS:
            break
        meters, running = _Meters(table, topic), _running(table, topic)
        rooms = LimitCheck(limits, now, running, meters.read, _KeyHeads(table, topic).heads)
        if rooms.choose(sorted(map(_candidate, due)), 1):
            continue
        first = min(due, key=_candidate)
        candidate = _candidate(first)
        of_key = running[candidate.key] if candidate.key is not None else 0
        numbers = (running.total(), of_key)
        found.append(explain_block(topic, limits, now, candidate, first.run_at, numbers, meters.read))
    return found


def _unlimited_jobs(request: ClaimRequest, lanes: Lanes) -> list[JobRow]:
    """The best jobs of lanes without limits, left where they are."""
    room = dict(request.topic_limits)
    best: list[JobRow] = []
    for job in sorted((job for ready in lanes.values() for job in ready), key=_candidate):
        if len(best) == request.limit:
            break
        if room.get(job.topic, 1) > 0:
            best.append(job)
            if job.topic in room:
                room[job.topic] -= 1
    return best


def advance_job_meters(table: JobTable, job: JobRow, now: int) -> None:
    """A job was granted by a claim: let the meters of its topic know."""
    if (limits := table.limits.get(job.topic)) is not None:
        meters = _Meters(table, job.topic)
        for line, meter in advance_meters(limits, _candidate(job).key, meters.read, now):
            table.rate_meters[job.topic, *line] = meter


def remove_idle_meters(table: JobTable, limit: int, now: int) -> None:
    """Those that are back at zero mean nothing any more, nor do pauses that have ended."""
    for topic in [topic for topic, until in table.pauses.items() if until <= now]:
        del table.pauses[topic]
    over = [name for name, meter in table.rate_meters.items() if meter <= now][:limit]
    for name in over:
        del table.rate_meters[name]


def _candidate(job: JobRow) -> Candidate:
    return Candidate(-job.priority, job.number, job.tenant, job.limit_key)


def _running(table: JobTable, topic: str) -> Counter[LimitKey]:
    return Counter((job.tenant, job.limit_key or "") for job in table.leases if job.topic == topic)


class _Meters:
    """The meters of one topic."""

    def __init__(self, table: JobTable, topic: str) -> None:
        self._table = table
        self._topic = topic

    def read(self, line: LimitKey = WHOLE_TOPIC) -> int:
        return self._table.rate_meters.get((self._topic, *line), 0)


class _KeyHeads:
    """Who is first in each line of one topic."""

    def __init__(self, table: JobTable, topic: str) -> None:
        self._table = table
        self._topic = topic
        self._firsts: dict[LimitKey, int] | None = None

    def heads(self, candidate: Candidate) -> bool:
        if self._firsts is None:
            self._firsts = {}
            table = self._table
            due = table.ready.get(self._topic, {}).values()
            # A delayed job that was never granted joins the line when it is due.
            again = (job for job in itertools.chain(table.waiting, table.blocked) if job.reserves)
            for job in itertools.chain(*due, again, table.leases):
                line = _candidate(job).key
                if job.topic == self._topic and line is not None:
                    self._firsts[line] = min(job.number, self._firsts.get(line, job.number))
        line = candidate.key
        return line is None or self._firsts[line] == candidate.number
