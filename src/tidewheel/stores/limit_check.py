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
from tidewheel.core.topic_limits import SHARE_UNIT, BlockedTopic, BlockingLimit, TopicLimits
from tidewheel.errors import LimitExceeded
from tidewheel.stores.bounds import MAX_LIMITED_TOPICS

LimitKey = tuple[str, str]
"""A tenant and a limit key. Both empty: the topic as a whole."""
WHOLE_TOPIC: LimitKey = ("", "")


class Candidate(NamedTuple):
    """A due job that a claim may grant. Sorts best first."""

    urgency: int  # priority, negative
    number: int
    tenant: str
    limit_key: str | None  # empty = none

    @property
    def key(self) -> LimitKey | None:
        return (self.tenant, self.limit_key) if self.limit_key else None


class _CheckResult(Enum):
    ALLOWED = 0
    KEY_FULL = 1  # others of its key need not be looked at either
    TOPIC_FULL = 2


class LimitCheck:
    """What of one topic has room, as jobs are taken one after another.

    ``running``: what runs, by line. ``meter`` tells the meter of a rate (0: it has none), ``heads_its_line``
    whether no job of a candidate's key comes before it.
    """

    def __init__(
        self,
        limits: TopicLimits,
        now: int,
        running: Mapping[LimitKey, int],
        read_meter: Callable[[LimitKey], int],
        is_first_of_key: Callable[[Candidate], bool],
    ) -> None:
        self._limits = limits
        self._now = now
        self._running = Counter(running)
        self._tenants: Counter[str] = Counter()
        for (tenant, _), number in running.items():
            self._tenants[tenant] += number
        self._total = sum(running.values())
        self._read_meter = read_meter
        self._is_first_of_key = is_first_of_key
        self._meters: dict[LimitKey, int] = {}
        self.topic_full = False  # nothing more can be taken of the topic, whichever job it is
        self.next_start_at: int | None = None  # when a rate that refused a job lets the next one start

    def choose(self, candidates: Iterable[Candidate], max_jobs: int) -> list[Candidate]:
        """At most ``wish`` of these, which come best first, in the order in which they are to be granted."""
        return (
            self._choose_fairly(candidates, max_jobs)
            if self._limits.fair
            else self._choose_in_order(candidates, max_jobs)
        )

    def _choose_in_order(self, candidates: Iterable[Candidate], wish: int) -> list[Candidate]:
        taken: list[Candidate] = []
        for candidate in candidates:
            if len(taken) == wish:
                break
            verdict = self._check(candidate)
            if verdict is _CheckResult.TOPIC_FULL:
                break
            if verdict is _CheckResult.ALLOWED:
                self._start(candidate)
                taken.append(candidate)
        return taken

    def _choose_fairly(self, candidates: Iterable[Candidate], wish: int) -> list[Candidate]:
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
                verdict = self._check(candidate)
                if verdict is _CheckResult.TOPIC_FULL:
                    return taken
                if verdict is _CheckResult.ALLOWED:
                    self._start(candidate)
                    taken.append(candidate)
        return taken

    def _share_of(self, tenant: str) -> int:
        return self._tenants[tenant] * SHARE_UNIT // self._limits.weight_of(tenant)

    def _check(self, candidate: Candidate) -> _CheckResult:
        verdict = self._verdict(candidate)
        self.topic_full = verdict is _CheckResult.TOPIC_FULL
        return verdict

    def _verdict(self, candidate: Candidate) -> _CheckResult:
        limits = self._limits
        if limits.concurrency is not None and self._total >= limits.concurrency:
            return _CheckResult.TOPIC_FULL
        if limits.rate is not None and self._too_early(limits.rate.next_start_at(self._meter(WHOLE_TOPIC))):
            return _CheckResult.TOPIC_FULL
        if (line := candidate.key) is None:
            return _CheckResult.ALLOWED
        if (most := limits.running_per_key) is not None and self._running[line] >= most:
            return _CheckResult.KEY_FULL
        if limits.ordered and not self._is_first_of_key(candidate):
            return _CheckResult.KEY_FULL
        if limits.key_rate is not None and self._too_early(limits.key_rate.next_start_at(self._meter(line))):
            return _CheckResult.KEY_FULL
        return _CheckResult.ALLOWED

    def _too_early(self, moment: int) -> bool:
        if moment <= self._now:
            return False
        self.next_start_at = moment if self.next_start_at is None else min(self.next_start_at, moment)
        return True

    def _meter(self, line: LimitKey) -> int:
        if line not in self._meters:
            self._meters[line] = self._read_meter(line)
        return self._meters[line]

    def _start(self, candidate: Candidate) -> None:
        self._total += 1
        self._tenants[candidate.tenant] += 1
        line = candidate.key
        for moved, meter in advance_meters(self._limits, line, self._meter, self._now):
            self._meters[moved] = meter
        if line is not None:
            self._running[line] += 1


def explain_block(
    topic: str,
    limits: TopicLimits,
    now: int,
    first: Candidate,
    due_since: int,
    running: tuple[int, int],
    meter: Callable[[LimitKey], int],
) -> BlockedTopic:
    """Why nothing of a topic can be taken: what its first due job waits for.

    ``running``: how many of the topic run, and how many of that job's key.
    """
    of_topic, of_key = running
    if limits.concurrency is not None and of_topic >= limits.concurrency:
        return BlockedTopic(topic, limits, BlockingLimit.CONCURRENCY, of_topic, due_since)
    if limits.rate is not None and (at := limits.rate.next_start_at(meter(WHOLE_TOPIC))) > now:
        return BlockedTopic(topic, limits, BlockingLimit.RATE, of_topic, due_since, at)
    line = first.key or WHOLE_TOPIC
    if limits.running_per_key is not None and of_key >= limits.running_per_key:
        by = BlockingLimit.ORDERED if limits.ordered else BlockingLimit.KEY_CONCURRENCY
        return BlockedTopic(topic, limits, by, of_key, due_since, None, *line)
    if limits.key_rate is not None and (at := limits.key_rate.next_start_at(meter(line))) > now:
        return BlockedTopic(topic, limits, BlockingLimit.KEY_RATE, of_topic, due_since, at, *line)
    return BlockedTopic(topic, limits, BlockingLimit.ORDERED, of_key, due_since, None, *line)


def advance_meters(
    limits: TopicLimits, line: LimitKey | None, meter: Callable[[LimitKey], int], now: int
) -> list[tuple[LimitKey, int]]:
    """The meters that the start of a job of this line moves, and to where."""
    moved = []
    if limits.rate is not None:
        moved.append((WHOLE_TOPIC, limits.rate.after_start(meter(WHOLE_TOPIC), now)))
    if limits.key_rate is not None and line is not None:
        moved.append((line, limits.key_rate.after_start(meter(line), now)))
    return moved


class TopicChoice(NamedTuple):
    """What one topic with limits has for a claim."""

    limits: TopicLimits
    candidates: Sequence[Candidate] = ()
    next_start_at: int | None = None  # when a rate that refused something lets the next job start


class MergedChoice(NamedTuple):
    """What a claim that has to do with limits comes to."""

    numbers: list[int]  # of jobs, best first
    next_start_at: int | None
    needs_more_slots: bool


def max_jobs_from_topic(request: ClaimRequest, topic: str, limits: TopicLimits) -> int:
    """How many jobs of a limited topic a claim wants at most; -1: none, however many slots are free."""
    wish = min(request.limit, request.topic_limits.get(topic, request.limit))
    if wish <= 0:
        return -1
    return (
        min(wish, request.free_slots) if limits.claims_must_start and request.free_slots is not None else wish
    )


def merge_choices(
    request: ClaimRequest, unlimited: Iterable[tuple[int, int]], choices: Sequence[TopicChoice]
) -> MergedChoice:
    """The best of several choices, each in its own order, as many as were asked for.

    As if again and again the first job of that choice was taken whose first is the best. ``plain``: urgency
    and number of jobs of topics without limits. There is an offer of each topic that has due jobs.
    """
    placed: list[tuple[int, int, int, int, bool]] = []
    sources = [(list(unlimited), False)]
    sources += [([one[:2] for one in offer.candidates], offer.limits.claims_must_start) for offer in choices]
    for choice, strict in sources:
        place = (-(2**63), 0)
        for position, best in enumerate(choice):
            # A job is taken no earlier than those of its choice that come before it.
            place = max(place, best)
            placed.append((*place, position, best[1], strict))
    free = left = request.limit if request.free_slots is None else request.free_slots
    numbers: list[int] = []
    for *_, number, strict in sorted(placed):
        if len(numbers) == request.limit:
            break
        if strict:
            if left == 0:
                continue
            left -= 1
        numbers.append(number)
    moments = [offer.next_start_at for offer in choices if offer.next_start_at is not None]
    waiting = any(offer.limits.claims_must_start for offer in choices)
    return MergedChoice(numbers, min(moments, default=None), waiting and left == 0 and free < request.limit)


def check_limited_topic_count(number: int) -> None:
    """So many topics would have limits on what runs."""
    if number > MAX_LIMITED_TOPICS:
        raise LimitExceeded(
            f"{number:,} topics would have limits; the limit is {MAX_LIMITED_TOPICS:,}; "
            "remove those of others first"
        )
