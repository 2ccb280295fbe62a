"""How much of a topic may run at once, how fast and in which order: limits as values, and their arithmetic.

Limits belong to a topic and are kept in the store, so that every worker and every producer obeys them without
being told. Nothing is counted for a limit on concurrency: what runs is looked at. A rate has a meter, one
number: the moment up to which the starts so far have used it up (GCRA). Integers only, so that every store
comes to the same answer to the microsecond.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.names import check_tenant, shorten
from tidewheel.errors import InvalidInput

MAX_CONCURRENCY: Final = 1_000_000
"""Most jobs a limit may let run at once; more is none."""
MAX_RATE_COUNT: Final = 1_000_000
"""Most starts in one period of a rate."""
MAX_RATE_SECONDS: Final = 31 * 86_400.0
"""Longest period of a rate."""
MAX_WEIGHT: Final = 1000
"""Largest weight of a tenant."""
MAX_WEIGHTS: Final = 1000
"""Most tenants with a weight of their own."""
SHARE_UNIT: Final = 1_000_000
"""What one running job counts for, before it is divided by its tenant's weight. Whole numbers only."""

NO_KEY: Final = ""
"""In place of a limit key in stores: a job of a limited topic that has none."""


class LimitsOrigin(StrEnum):
    """Who set the limits of a topic."""

    CODE = "code"
    """declared by a task; a worker wrote them when it started"""
    OPERATOR = "operator"
    """set by a person or a program at run time; what code declares does not change them"""


@dataclass(frozen=True, slots=True)
class Rate:
    """At most ``count`` starts in ``per`` seconds, evenly; ``burst`` of them may come at once after a quiet
    time.

    In any stretch of ``s`` seconds there are at most ``burst + count * s / per`` starts. Without a ``burst``
    it is ``count``: a whole period's worth.
    """

    count: int
    per: float = 1.0
    burst: int | None = None

    def __post_init__(self) -> None:
        _check_whole("rate", self.count, 1, MAX_RATE_COUNT)
        if isinstance(self.per, bool) or not isinstance(self.per, int | float):
            raise InvalidInput(f"the period of a rate is {shorten(self.per)}; give seconds, such as per=60")
        if not 0 < self.per <= MAX_RATE_SECONDS:
            raise InvalidInput(
                f"the period of a rate is {self.per:g} s; it is between 0 and {MAX_RATE_SECONDS:,.0f} s"
            )
        if self.count > seconds_to_microseconds(self.per):
            raise InvalidInput(
                f"a rate of {self.count:,} in {self.per:g} s is more than one in a microsecond; leave it out"
            )
        if self.burst is not None:
            _check_whole("burst", self.burst, 1, MAX_RATE_COUNT)

    @property
    def start_interval_us(self) -> int:
        """Microseconds that one start uses up. Rounded up: never faster than was said."""
        return -(-seconds_to_microseconds(self.per) // self.count)

    @property
    def tolerance_us(self) -> int:
        """How far ahead of the clock a meter may be."""
        return (self.burst_size - 1) * self.start_interval_us

    @property
    def burst_size(self) -> int:
        """The burst, given or not."""
        return self.count if self.burst is None else self.burst

    def next_start_at(self, meter: int) -> int:
        """The moment from which on a start is allowed."""
        return meter - self.tolerance_us

    def after_start(self, meter: int, now: int) -> int:
        """The meter after one more start at ``now``."""
        return max(meter, now) + self.start_interval_us

    def max_meter(self, now: int) -> int:
        """Where the meter is when all of the rate is used up. None is ahead of that, unless it was kept for
        another rate.
        """
        return now + self.burst_size * self.start_interval_us

    def __str__(self) -> str:
        burst = "" if self.burst is None else f", burst {self.burst:,}"
        return f"{self.count:,} per {self.per:g} s{burst}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLimits:
    """What holds for the jobs of one topic, in the whole cluster. Keys are the jobs' ``limit_key``, per
    tenant.
    """

    concurrency: int | None = None  # running jobs of the topic
    rate: Rate | None = None  # starts of the topic
    key_concurrency: int | None = None  # running jobs of each key
    key_rate: Rate | None = None  # starts of each key
    ordered: bool = False  # strict order in each key: one at a time, in the order in which they were enqueued
    fair: bool = False  # share what runs between tenants, inside one priority
    weights: Mapping[str, int] = field(default_factory=dict)  # of tenants, when fair; 1 where none is given
    origin: LimitsOrigin = LimitsOrigin.OPERATOR

    def __post_init__(self) -> None:
        for name in ("concurrency", "key_concurrency"):
            if (value := getattr(self, name)) is not None:
                _check_whole(name, value, 1, MAX_CONCURRENCY)
        if self.ordered and self.key_concurrency not in (None, 1):
            raise InvalidInput(
                f"key_concurrency is {self.key_concurrency} and ordered is set; jobs in strict order run one "
                "at a time: leave key_concurrency out"
            )
        if self.weights and not self.fair:
            raise InvalidInput("weights of tenants mean something with fair=True only; add it")
        if len(self.weights) > MAX_WEIGHTS:
            raise InvalidInput(f"{len(self.weights):,} weights; the limit is {MAX_WEIGHTS:,} tenants")
        for tenant, weight in self.weights.items():
            check_tenant(tenant)
            _check_whole(f"weight of tenant {tenant!r}", weight, 1, MAX_WEIGHT)
        if not (self.claims_must_start or self.fair):
            raise InvalidInput("these limits limit nothing; give one, or remove the topic's limits")
        object.__setattr__(self, "weights", dict(sorted(self.weights.items())))

    def __hash__(self) -> int:
        return hash(self.to_json())

    @property
    def claims_must_start(self) -> bool:
        """Whether a job that is granted must be one that can start: jobs held ready would waste a limit."""
        return bool(self.concurrency or self.rate or self.key_concurrency or self.key_rate or self.ordered)

    @property
    def running_per_key(self) -> int | None:
        """How many jobs of one key may run."""
        return 1 if self.ordered else self.key_concurrency

    def weight_of(self, tenant: str) -> int:
        return self.weights.get(tenant, 1)

    def as_declared(self) -> TopicLimits:
        """The same, as code declares them."""
        return replace(self, origin=LimitsOrigin.CODE)

    def to_json(self) -> str:
        """As stores keep them. With the numbers of the rates' arithmetic, for those who read it in SQL."""
        told: dict[str, Any] = {"origin": self.origin.value}
        for name in ("concurrency", "key_concurrency"):
            if (number := getattr(self, name)) is not None:
                told[name] = number
        for name in ("rate", "key_rate"):
            if (rate := getattr(self, name)) is not None:
                told[name] = {
                    "count": rate.count,
                    "per": rate.per,
                    "burst": rate.burst,
                    "interval_us": rate.start_interval_us,
                    "tolerance_us": rate.tolerance_us,
                }
        told |= {name: True for name in ("ordered", "fair") if getattr(self, name)}
        if self.weights:
            told["weights"] = dict(self.weights)
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> TopicLimits:
        told = json.loads(text)
        for name in ("rate", "key_rate"):
            if name in told:
                told[name] = Rate(told[name]["count"], told[name]["per"], told[name]["burst"])
        told["origin"] = LimitsOrigin(told["origin"])
        return cls(**told)

    def __str__(self) -> str:
        """For people, in one line."""
        parts = []
        if self.concurrency is not None:
            parts.append(f"{self.concurrency:,} at once")
        if self.rate is not None:
            parts.append(str(self.rate))
        if self.key_concurrency is not None:
            parts.append(f"{self.key_concurrency:,} at once of each key")
        if self.key_rate is not None:
            parts.append(f"{self.key_rate} of each key")
        if self.ordered:
            parts.append("in order of each key")
        if self.fair:
            weights = "".join(f", {tenant} {weight}" for tenant, weight in list(self.weights.items())[:3])
            more = ", …" if len(self.weights) > 3 else ""
            parts.append(f"fair between tenants{' (weights' + weights[1:] + more + ')' if weights else ''}")
        return "; ".join(parts)


class BlockingLimit(StrEnum):
    """Which limit of a topic lets none of its due jobs start."""

    CONCURRENCY = "concurrency"
    RATE = "rate"
    KEY_CONCURRENCY = "key_concurrency"
    KEY_RATE = "key_rate"
    ORDERED = "ordered"


@dataclass(frozen=True, slots=True)
class BlockedTopic:
    """A topic of which jobs are due, and limits let none start: what the first of them waits for."""

    topic: str
    limits: TopicLimits
    blocking_limit: BlockingLimit
    running: int  # of the topic; of the key where that is full
    due_since: int  # when the first of them was
    next_start_at: int | None = None  # when a rate lets the next one start
    tenant: str | None = None  # of the first one, where it is about its key
    limit_key: str | None = None


def _check_whole(name: str, value: object, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(f"{name} is {shorten(value)}; it is a whole number between {least:,} and {most:,}")
