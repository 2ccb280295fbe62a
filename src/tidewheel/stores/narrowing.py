"""Times of creation as ranges of numbers. No I/O: who wants to know is asked for samples.

Numbers and times of creation grow together, but for clocks that were set back and calls that waited for a
lock. So a few looks at jobs in between tell which numbers need not be walked through.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from tidewheel.clock import MICROSECONDS

DISORDER: Final = 3600 * MICROSECONDS
"""How much earlier a job may have been created than one with a lower number. Generous: the clock of a server
that took over may be off, and a job that is missing from a list is worse than a list that takes longer."""
WALKED: Final = 10_000
"""So many numbers are walked through rather than looked up."""
ROUNDS: Final = 3
SAMPLES: Final = 64
"""Jobs looked at in each round."""


class Sample(NamedTuple):
    number: int
    created_at: int


class Range(NamedTuple):
    """Two numbers; all jobs created in the given time are between them. None = no bound is known."""

    above: int | None = None
    below: int | None = None


Wanted: TypeAlias = tuple[int, int] | None
"""Numbers between which to look at some jobs. None: the first and the last job there are."""
Asking: TypeAlias = Generator[Wanted, list[Sample], Range]
"""Yields what to look at, is sent what was found, in the order of numbers, and returns what that tells."""


def between(after: int | None, before: int | None) -> Asking:
    """Where jobs are that were created at ``after`` or later and earlier than ``before``."""
    ends = yield None
    if not ends or ends[-1].number - ends[0].number <= WALKED:
        return Range()
    samples = yield ends[0].number, ends[-1].number
    return Range(
        None if after is None else (yield from _above(samples, after - DISORDER)),
        None if before is None else (yield from _below(samples, before + DISORDER)),
    )


def _above(samples: list[Sample], after: int) -> Generator[Wanted, list[Sample], int | None]:
    """A number up to which everything was created before this time."""
    above = None
    for _ in range(ROUNDS):
        early = [sample.number for sample in takewhile(lambda sample: sample.created_at < after, samples)]
        if early:
            above = early[-1]
        if not early or len(early) == len(samples) or samples[len(early)].number - early[-1] <= WALKED:
            break
        samples = yield early[-1], samples[len(early)].number
    return above


def _below(samples: list[Sample], before: int) -> Generator[Wanted, list[Sample], int | None]:
    """A number from which on everything was created at this time or later."""
    below = None
    for _ in range(ROUNDS):
        late = [
            sample.number
            for sample in takewhile(lambda sample: sample.created_at >= before, reversed(samples))
        ]
        if late:
            below = late[-1]
        if not late or len(late) == len(samples) or late[-1] - samples[-len(late) - 1].number <= WALKED:
            break
        samples = yield samples[-len(late) - 1].number, late[-1]
    return below
