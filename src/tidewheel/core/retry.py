"""When to try again. Pure functions of (attempt, error, randomness): the store only records the answer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tidewheel.core.jitter import GENERATOR
from tidewheel.errors import InvalidInput

MAX_DELAY: Final = 366 * 24 * 3600.0
"""Longest wait between two attempts, in seconds. A longer one is a mistake in a formula."""

DelayFunction = Callable[[int, BaseException], float]


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry policy: how long to wait after attempt number ``n`` errored.

    Build one with :meth:`exponential`, :meth:`quadratic`, :meth:`fixed`, :meth:`sequence` or :meth:`call`.
    With ``jitter`` (the default) each delay is drawn from the upper half of its nominal length, so jobs that
    fail together do not come back together.
    """

    kind: str
    initial: float = 1.0
    factor: float = 2.0
    maximum: float = 30.0
    delays: tuple[float, ...] = ()
    jitter: bool = True
    function: DelayFunction | None = field(default=None, compare=False)

    @classmethod
    def exponential(
        cls, initial: float = 1.0, *, factor: float = 2.0, maximum: float = 30.0, jitter: bool = True
    ) -> Retry:
        """``initial``, then ``factor`` times longer each time, at most ``maximum`` seconds."""
        _check("initial", initial)
        _check("maximum", maximum)
        if not 1 <= factor <= 1000:
            raise InvalidInput(f"factor is {factor}; it must be between 1 and 1000")
        return cls("exponential", initial, factor, maximum, jitter=jitter)

    @classmethod
    def quadratic(cls, unit: float = 60.0, *, maximum: float = 86_400.0, jitter: bool = True) -> Retry:
        """n² minutes after attempt n (1, 4, 9, …), at most ``maximum`` seconds."""
        _check("unit", unit)
        _check("maximum", maximum)
        return cls("quadratic", unit, maximum=maximum, jitter=jitter)

    @classmethod
    def fixed(cls, delay: float, *, jitter: bool = True) -> Retry:
        """The same wait every time."""
        _check("delay", delay)
        return cls("fixed", delay, maximum=delay, jitter=jitter)

    @classmethod
    def sequence(cls, delays: Sequence[float], *, jitter: bool = True) -> Retry:
        """These waits in turn; the last one repeats."""
        if not delays:
            raise InvalidInput("delays is empty; give at least one number of seconds")
        for delay in delays:
            _check("delay", delay)
        return cls("sequence", delays=tuple(delays), maximum=max(delays), jitter=jitter)

    @classmethod
    def call(cls, function: DelayFunction, *, jitter: bool = False) -> Retry:
        """Whatever ``function(attempt, error)`` answers, in seconds. Per task only: it cannot be stored."""
        return cls("call", function=function, maximum=MAX_DELAY, jitter=jitter)

    def delay(self, attempt: int, error: BaseException, random_: random.Random | None = None) -> float:
        """Seconds to wait after ``attempt`` (numbered from 1) ended with ``error``."""
        match self.kind:
            case "exponential":
                # Bounded before the power is taken: attempt 5,000 must not overflow a float.
                steps = min(attempt - 1, 64)
                nominal = min(self.maximum, self.initial * self.factor**steps)
            case "quadratic":
                nominal = min(self.maximum, self.initial * attempt * attempt)
            case "fixed":
                nominal = self.initial
            case "sequence":
                nominal = self.delays[min(attempt, len(self.delays)) - 1]
            case _:
                if self.function is None:
                    raise InvalidInput(f"retry policy {self.kind!r} has no function")
                nominal = float(self.function(attempt, error))
                if not 0 <= nominal <= MAX_DELAY:  # also refuses NaN
                    raise InvalidInput(
                        f"the retry function returned {nominal}; 0 to {MAX_DELAY:.0f} s are possible"
                    )
        if self.jitter and nominal > 0:
            nominal *= (random_ or GENERATOR).uniform(0.5, 1.0)
        return nominal

    def dump(self) -> str:
        """As stored with a job that has a policy of its own."""
        if self.kind == "call":
            raise InvalidInput("a retry function cannot be stored with a job; give it to the task instead")
        return msgspec.json.encode(
            {
                "kind": self.kind,
                "initial": self.initial,
                "factor": self.factor,
                "maximum": self.maximum,
                "delays": self.delays,
                "jitter": self.jitter,
            }
        ).decode()

    @classmethod
    def load(cls, text: str) -> Retry:
        stored = msgspec.json.decode(text, type=_Stored)
        return cls(stored.kind, stored.initial, stored.factor, stored.maximum, stored.delays, stored.jitter)


class _Stored(msgspec.Struct):
    kind: str
    initial: float
    factor: float
    maximum: float
    delays: tuple[float, ...]
    jitter: bool


def _check(name: str, seconds: float) -> None:
    if not 0 <= seconds <= MAX_DELAY:  # also refuses NaN
        raise InvalidInput(f"{name} is {seconds}; 0 to {MAX_DELAY:.0f} seconds are possible")


# Last, because making a policy checks it.
DEFAULT_RETRY: Final = Retry.exponential()
