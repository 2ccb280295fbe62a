"""Rewrite job filters so that indexes can serve them. No I/O.

``find_number_range`` turns creation times into ranges of job numbers. Both grow together, except for clocks
that were set back and calls that waited for a lock. Up to 3 rounds of 64 samples, supplied by the store,
exclude most numbers. ``split_filter`` splits one filter into up to 16 with more fields:
``state:failed,cancelled`` is no field of a filter, but two filters with one state each have an index to walk.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from itertools import product, takewhile
from typing import Any, Final, NamedTuple, TypeAlias

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.conditions import (
    Compare,
    Comparison,
    Condition,
    Field,
    InState,
    Leaf,
    can_match,
    leaves,
    simplify_for_other_values,
    simplify_for_state,
    simplify_for_value,
    unindexed_condition,
)
from tidewheel.core.model import JobFilter, State

MAX_CLOCK_DISORDER: Final = 3600 * MICROSECONDS
"""How much earlier a job may have been created than one with a lower number. Generous: the clock of a server
that took over may be off, and a job that is missing from a list is worse than a list that takes longer."""
MAX_SCANNED_NUMBERS: Final = 10_000
"""So many numbers are walked through rather than looked up."""
SAMPLE_ROUNDS: Final = 3
SAMPLES_PER_ROUND: Final = 64
"""Jobs looked at in each round."""


class Sample(NamedTuple):
    number: int
    created_at: int


class NumberRange(NamedTuple):
    """Two numbers; all jobs created in the given time are between them. None = no bound is known."""

    above: int | None = None
    below: int | None = None


SampleRequest: TypeAlias = tuple[int, int] | None
"""Numbers between which to look at some jobs. None: the first and the last job there are."""
RangeSearch: TypeAlias = Generator[SampleRequest, list[Sample], NumberRange]
"""Yields what to look at, is sent what was found, in the order of numbers, and returns what that tells."""


def find_number_range(after: int | None, before: int | None) -> RangeSearch:
    """Where jobs are that were created at ``after`` or later and earlier than ``before``."""
    ends = yield None
    if not ends or ends[-1].number - ends[0].number <= MAX_SCANNED_NUMBERS:
        return NumberRange()
    samples = yield ends[0].number, ends[-1].number
    return NumberRange(
        None if after is None else (yield from _lower_bound(samples, after - MAX_CLOCK_DISORDER)),
        None if before is None else (yield from _upper_bound(samples, before + MAX_CLOCK_DISORDER)),
    )


def _lower_bound(samples: list[Sample], after: int) -> Generator[SampleRequest, list[Sample], int | None]:
    """A number up to which everything was created before this time."""
    above = None
    for _ in range(SAMPLE_ROUNDS):
        early = [sample.number for sample in takewhile(lambda sample: sample.created_at < after, samples)]
        if early:
            above = early[-1]
        if (
            not early
            or len(early) == len(samples)
            or samples[len(early)].number - early[-1] <= MAX_SCANNED_NUMBERS
        ):
            break
        samples = yield early[-1], samples[len(early)].number
    return above


def _upper_bound(samples: list[Sample], before: int) -> Generator[SampleRequest, list[Sample], int | None]:
    """A number from which on everything was created at this time or later."""
    below = None
    for _ in range(SAMPLE_ROUNDS):
        late = [
            sample.number
            for sample in takewhile(lambda sample: sample.created_at >= before, reversed(samples))
        ]
        if late:
            below = late[-1]
        if (
            not late
            or len(late) == len(samples)
            or late[-1] - samples[-len(late) - 1].number <= MAX_SCANNED_NUMBERS
        ):
            break
        samples = yield samples[-len(late) - 1].number, late[-1]
    return below


MAX_ALTERNATIVES: Final = 16
"""Ways to walk at once. What would take more is walked through in one."""

_FIELDS: Final = {Field.KEY: "key", Field.CORRELATION_ID: "correlation_id", Field.TOPIC: "topic"}


def split_filter(where: JobFilter) -> list[JobFilter]:
    """Filters of which each job of ``where`` is in exactly one. None at all: there can be no such job.

    Their fields say more than those of ``where``; the condition is still to be asked.
    """
    condition = unindexed_condition(where)
    if condition is None:
        return [where]
    choices: list[list[dict[str, Any]]] = []
    for field, name in _FIELDS.items():
        if getattr(where, name) is None:
            values = _possible_values(condition, field)
            if values is not None:
                choices.append([{name: value} for value in values])
    if where.state is None and any(_implies_started(leaf) for leaf in leaves(condition)):
        states = [state for state in State if can_match(simplify_for_state(condition, state))]
        if len(states) < len(State):
            choices.append([{"state": state} for state in states])
    found = [where]
    for choice in choices:
        if len(found) * len(choice) <= MAX_ALTERNATIVES:
            found = [replace(one, **fields) for one, fields in product(found, choice)]
    return found


def _implies_started(leaf: Leaf) -> bool:
    """Jobs that wait have no worker: they need not be walked through to find those of one."""
    return isinstance(leaf, InState) or (isinstance(leaf, Compare) and leaf.field is Field.WORKER)


def _possible_values(condition: Condition, field: Field) -> list[str] | None:
    """The texts that a column may have; None when that can be anything, none, or one of many."""
    named = {
        str(leaf.value or "")
        for leaf in leaves(condition)
        if isinstance(leaf, Compare) and leaf.field is field and leaf.comparison is Comparison.EQUAL
    }
    if not 0 < len(named) <= MAX_ALTERNATIVES or can_match(simplify_for_other_values(condition, field)):
        return None
    possible = sorted(value for value in named if can_match(simplify_for_value(condition, field, value)))
    return None if "" in possible else possible
