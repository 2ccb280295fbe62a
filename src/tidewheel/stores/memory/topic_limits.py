"""Limits of topics in a ``Book``: setting them, and choosing what has room."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping

from tidewheel.core.model import ClaimRequest
from tidewheel.core.topic_limits import HeldBack, LimitsOrigin, TopicLimits
from tidewheel.stores.enqueue import check_limited_topics
from tidewheel.stores.limit_check import (
    WHOLE,
    Candidate,
    Line,
    Offer,
    Rooms,
    held_back,
    merge,
    meters_after,
    wish_of,
)
from tidewheel.stores.memory.job_rows import Job, JobHeap
from tidewheel.stores.memory.job_table import Book
from tidewheel.stores.protocol import MAX_HELD_BACK

Lanes = Mapping[tuple[str, str], JobHeap]
"""Due jobs by topic and task."""


def set_limits(book: Book, topic: str, limits: TopicLimits | None, now: int) -> bool:
    before = book.limits.get(topic)
    if limits is None:
        book.limits.pop(topic, None)
    elif limits.origin is LimitsOrigin.CODE and before is not None and before.origin is LimitsOrigin.OPERATOR:
        return False
    else:
        check_limited_topics(len(book.limits.keys() | {topic}))
        book.limits[topic] = limits
        for name, meter in book.meters.items():
            rate = limits.rate if name[1:] == WHOLE else limits.key_rate
            if name[0] == topic and rate is not None:
                book.meters[name] = min(meter, rate.furthest(now))
    book.ready_topics.add(topic)
    return True


def choose(book: Book, request: ClaimRequest, lanes: Lanes, now: int) -> tuple[list[Job], int | None, bool]:
    """The best jobs of topics without limits and of what has room in the others, best first.

    And when a rate that refused something lets the next job start, and whether more ``free`` might mean more
    jobs. All due jobs are looked at here, however many.
    """
    topics = {topic for topic, _ in lanes if not book.paused_until(topic, now)}
    plain = _plain(
        request, {lane: ready for lane, ready in lanes.items() if lane[0] in topics - book.limits.keys()}
    )
    offers: list[Offer] = []
    jobs = {job.number: job for job in plain}
    for topic in sorted(topics & book.limits.keys()):
        limits = book.limits[topic]
        wish = wish_of(request, topic, limits)
        due = {job.number: job for (of, _), ready in lanes.items() if of == topic for job in ready}
        if wish < 0 or not due:
            continue
        meters, heads = _Meters(book, topic), _Heads(book, topic)
        rooms = Rooms(limits, now, _running(book, topic), meters.read, heads.heads)
        taken = rooms.choose(sorted(map(_candidate, due.values())), wish)
        offers.append(Offer(limits, taken, rooms.due))
        jobs |= due
    numbers, room_at, kept_back = merge(request, [(-job.priority, job.number) for job in plain], offers)
    return [jobs[number] for number in numbers], room_at, kept_back


def find_held_back(book: Book, now: int) -> list[HeldBack]:
    found: list[HeldBack] = []
    looked = 0
    for topic, limits in sorted(book.limits.items()):
        due = [job for ready in book.ready.get(topic, {}).values() for job in ready]
        if not due or book.paused_until(topic, now):
            continue
        looked += 1
        if looked > MAX_HELD_BACK:
            break
        meters, running = _Meters(book, topic), _running(book, topic)
        rooms = Rooms(limits, now, running, meters.read, _Heads(book, topic).heads)
        if rooms.choose(sorted(map(_candidate, due)), 1):
            continue
        first = min(due, key=_candidate)
        candidate = _candidate(first)
        of_key = running[candidate.line] if candidate.line is not None else 0
        numbers = (running.total(), of_key)
        found.append(held_back(topic, limits, now, candidate, first.run_at, numbers, meters.read))
    return found


def _plain(request: ClaimRequest, lanes: Lanes) -> list[Job]:
    """The best jobs of lanes without limits, left where they are."""
    room = dict(request.topic_limits)
    best: list[Job] = []
    for job in sorted((job for ready in lanes.values() for job in ready), key=_candidate):
        if len(best) == request.limit:
            break
        if room.get(job.topic, 1) > 0:
            best.append(job)
            if job.topic in room:
                room[job.topic] -= 1
    return best


def start(book: Book, job: Job, now: int) -> None:
    """A job was granted by a claim: let the meters of its topic know."""
    if (limits := book.limits.get(job.topic)) is not None:
        meters = _Meters(book, job.topic)
        for line, meter in meters_after(limits, _candidate(job).line, meters.read, now):
            book.meters[job.topic, *line] = meter


def forget_meters(book: Book, limit: int, now: int) -> None:
    """Those that are back at zero mean nothing any more, nor do pauses that have ended."""
    for topic in [topic for topic, until in book.pauses.items() if until <= now]:
        del book.pauses[topic]
    over = [name for name, meter in book.meters.items() if meter <= now][:limit]
    for name in over:
        del book.meters[name]


def _candidate(job: Job) -> Candidate:
    return Candidate(-job.priority, job.number, job.tenant, job.limit_key)


def _running(book: Book, topic: str) -> Counter[Line]:
    return Counter((job.tenant, job.limit_key or "") for job in book.leases if job.topic == topic)


class _Meters:
    """The meters of one topic."""

    def __init__(self, book: Book, topic: str) -> None:
        self._book = book
        self._topic = topic

    def read(self, line: Line = WHOLE) -> int:
        return self._book.meters.get((self._topic, *line), 0)


class _Heads:
    """Who is first in each line of one topic."""

    def __init__(self, book: Book, topic: str) -> None:
        self._book = book
        self._topic = topic
        self._firsts: dict[Line, int] | None = None

    def heads(self, candidate: Candidate) -> bool:
        if self._firsts is None:
            self._firsts = {}
            book = self._book
            due = book.ready.get(self._topic, {}).values()
            # A delayed job that was never granted joins the line when it is due.
            again = (job for job in itertools.chain(book.waiting, book.blocked) if job.reserves)
            for job in itertools.chain(*due, again, book.leases):
                line = _candidate(job).line
                if job.topic == self._topic and line is not None:
                    self._firsts[line] = min(job.number, self._firsts.get(line, job.number))
        line = candidate.line
        return line is None or self._firsts[line] == candidate.number
