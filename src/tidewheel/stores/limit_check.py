"""What a claim may take of a topic with limits, decided the same way by every store.

The function ``choose_limited`` of the PostgreSQL schema says the same in its own words; the conformance suite
and the state machine compare them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tidewheel.core.model import ClaimRequest
from tidewheel.core.topic_limits import SHARE_UNIT, HeldBack, HeldBackBy, TopicLimits

Line = tuple[str, str]
"""A tenant and a limit key. Both empty: the topic as a whole."""
WHOLE: Line = ("", "")


class Candidate(NamedTuple):
    """A due job that a claim may grant. Sorts best first."""

    urgency: int  # priority, negative
    number: int
    tenant: str
    limit_key: str | None  # empty = none

    @property
    def line(self) -> Line | None:
        return (self.tenant, self.limit_key) if self.limit_key else None


class _Verdict(Enum):
    ROOM = 0
    LINE_FULL = 1  # others of its key need not be looked at either
    TOPIC_FULL = 2


class Rooms:
    """What of one topic has room, as jobs are taken one after another.

    ``running``: what runs, by line. ``meter`` tells the meter of a rate (0: it has none), ``heads_its_line``
    whether no job of a candidate's key comes before it.
    """

    def __init__(
        self,
        limits: TopicLimits,
        now: int,
        running: Mapping[Line, int],
        meter: Callable[[Line], int],
        heads_its_line: Callable[[Candidate], bool],
    ) -> None:
        self._limits = limits
        self._now = now
        self._running = Counter(running)
        self._tenants: Counter[str] = Counter()
        for (tenant, _), number in running.items():
            self._tenants[tenant] += number
        self._total = sum(running.values())
        self._read_meter = meter
        self._heads_its_line = heads_its_line
        self._meters: dict[Line, int] = {}
        self.full = False  # nothing more can be taken of the topic, whichever job it is
        self.due: int | None = None  # when a rate that refused a job lets the next one start

    def choose(self, candidates: Iterable[Candidate], wish: int) -> list[Candidate]:
        """At most ``wish`` of these, which come best first, in the order in which they are to be granted."""
        return self._share(candidates, wish) if self._limits.fair else self._take(candidates, wish)

    def _take(self, candidates: Iterable[Candidate], wish: int) -> list[Candidate]:
        taken: list[Candidate] = []
        for candidate in candidates:
            if len(taken) == wish:
                break
            verdict = self._look(candidate)
            if verdict is _Verdict.TOPIC_FULL:
                break
            if verdict is _Verdict.ROOM:
                self._start(candidate)
                taken.append(candidate)
        return taken

    def _share(self, candidates: Iterable[Candidate], wish: int) -> list[Candidate]:
        """Inside each priority, one after another of the tenant with the smallest share at that moment."""
        levels: dict[int, dict[str, deque[Candidate]]] = {}
        for candidate in candidates:
            levels.setdefault(candidate.urgency, {}).setdefault(candidate.tenant, deque()).append(candidate)
        taken: list[Candidate] = []
        for lines in levels.values():
            while lines and len(taken) < wish:
                tenant = min(lines, key=lambda name: (self._share_of(name), lines[name][0].number))
                candidate = lines[tenant].popleft()
                if not lines[tenant]:
                    del lines[tenant]
                verdict = self._look(candidate)
                if verdict is _Verdict.TOPIC_FULL:
                    return taken
                if verdict is _Verdict.ROOM:
                    self._start(candidate)
                    taken.append(candidate)
        return taken

    def _share_of(self, tenant: str) -> int:
        return self._tenants[tenant] * SHARE_UNIT // self._limits.weight_of(tenant)

    def _look(self, candidate: Candidate) -> _Verdict:
        verdict = self._verdict(candidate)
        self.full = verdict is _Verdict.TOPIC_FULL
        return verdict

    def _verdict(self, candidate: Candidate) -> _Verdict:
        limits = self._limits
        if limits.concurrency is not None and self._total >= limits.concurrency:
            return _Verdict.TOPIC_FULL
        if limits.rate is not None and self._too_early(limits.rate.allowed_at(self._meter(WHOLE))):
            return _Verdict.TOPIC_FULL
        if (line := candidate.line) is None:
            return _Verdict.ROOM
        if (most := limits.in_each_key) is not None and self._running[line] >= most:
            return _Verdict.LINE_FULL
        if limits.ordered and not self._heads_its_line(candidate):
            return _Verdict.LINE_FULL
        if limits.key_rate is not None and self._too_early(limits.key_rate.allowed_at(self._meter(line))):
            return _Verdict.LINE_FULL
        return _Verdict.ROOM

    def _too_early(self, moment: int) -> bool:
        if moment <= self._now:
            return False
        self.due = moment if self.due is None else min(self.due, moment)
        return True

    def _meter(self, line: Line) -> int:
        if line not in self._meters:
            self._meters[line] = self._read_meter(line)
        return self._meters[line]

    def _start(self, candidate: Candidate) -> None:
        self._total += 1
        self._tenants[candidate.tenant] += 1
        line = candidate.line
        for moved, meter in meters_after(self._limits, line, self._meter, self._now):
            self._meters[moved] = meter
        if line is not None:
            self._running[line] += 1


def held_back(
    topic: str,
    limits: TopicLimits,
    now: int,
    first: Candidate,
    due_since: int,
    running: tuple[int, int],
    meter: Callable[[Line], int],
) -> HeldBack:
    """Why nothing of a topic can be taken: what its first due job waits for.

    ``running``: how many of the topic run, and how many of that job's key.
    """
    of_topic, of_key = running
    if limits.concurrency is not None and of_topic >= limits.concurrency:
        return HeldBack(topic, limits, HeldBackBy.CONCURRENCY, of_topic, due_since)
    if limits.rate is not None and (at := limits.rate.allowed_at(meter(WHOLE))) > now:
        return HeldBack(topic, limits, HeldBackBy.RATE, of_topic, due_since, at)
    line = first.line or WHOLE
    if limits.in_each_key is not None and of_key >= limits.in_each_key:
        by = HeldBackBy.ORDERED if limits.ordered else HeldBackBy.KEY_CONCURRENCY
        return HeldBack(topic, limits, by, of_key, due_since, None, *line)
    if limits.key_rate is not None and (at := limits.key_rate.allowed_at(meter(line))) > now:
        return HeldBack(topic, limits, HeldBackBy.KEY_RATE, of_topic, due_since, at, *line)
    return HeldBack(topic, limits, HeldBackBy.ORDERED, of_key, due_since, None, *line)


def meters_after(
    limits: TopicLimits, line: Line | None, meter: Callable[[Line], int], now: int
) -> list[tuple[Line, int]]:
    """The meters that the start of a job of this line moves, and to where."""
    moved = []
    if limits.rate is not None:
        moved.append((WHOLE, limits.rate.after_start(meter(WHOLE), now)))
    if limits.key_rate is not None and line is not None:
        moved.append((line, limits.key_rate.after_start(meter(line), now)))
    return moved


class Offer(NamedTuple):
    """What one topic with limits has for a claim."""

    limits: TopicLimits
    taken: Sequence[Candidate] = ()
    room_at: int | None = None  # when a rate that refused something lets the next job start


class Choice(NamedTuple):
    """What a claim that has to do with limits comes to."""

    numbers: list[int]  # of jobs, best first
    room_at: int | None
    kept_back: bool


def wish_of(request: ClaimRequest, topic: str, limits: TopicLimits) -> int:
    """How many jobs of a limited topic a claim wants at most; -1: none, however many slots are free."""
    wish = min(request.limit, request.topic_limits.get(topic, request.limit))
    if wish <= 0:
        return -1
    return min(wish, request.free) if limits.strict and request.free is not None else wish


def merge(request: ClaimRequest, plain: Iterable[tuple[int, int]], offers: Sequence[Offer]) -> Choice:
    """The best of several choices, each in its own order, as many as were asked for.

    As if again and again the first job of that choice was taken whose first is the best. ``plain``: urgency
    and number of jobs of topics without limits. There is an offer of each topic that has due jobs.
    """
    placed: list[tuple[int, int, int, int, bool]] = []
    choices = [(list(plain), False)]
    choices += [([one[:2] for one in offer.taken], offer.limits.strict) for offer in offers]
    for choice, strict in choices:
        place = (-(2**63), 0)
        for position, best in enumerate(choice):
            # A job is taken no earlier than those of its choice that come before it.
            place = max(place, best)
            placed.append((*place, position, best[1], strict))
    free = left = request.limit if request.free is None else request.free
    numbers: list[int] = []
    for *_, number, strict in sorted(placed):
        if len(numbers) == request.limit:
            break
        if strict:
            if left == 0:
                continue
            left -= 1
        numbers.append(number)
    moments = [offer.room_at for offer in offers if offer.room_at is not None]
    waiting = any(offer.limits.strict for offer in offers)
    return Choice(numbers, min(moments, default=None), waiting and left == 0 and free < request.limit)
