"""One filter as several: what its condition says of columns that indexes serve. No I/O.

``state:failed,cancelled`` is no field of a filter. But it is two filters with one each, and each of those has
an index to walk.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any, Final

from tidewheel.conditions import (
    Compare,
    Comparison,
    Condition,
    Field,
    InState,
    Leaf,
    asked,
    for_other_values,
    for_state,
    for_value,
    leaves,
    may_hold,
)
from tidewheel.model import JobFilter, State

MOST: Final = 16
"""Ways to walk at once. What would take more is walked through in one."""

_FIELDS: Final = {Field.KEY: "key", Field.CORRELATION_ID: "correlation_id", Field.TOPIC: "topic"}


def alternatives(where: JobFilter) -> list[JobFilter]:
    """Filters of which each job of ``where`` is in exactly one. None at all: there can be no such job.

    Their fields say more than those of ``where``; the condition is still to be asked.
    """
    condition = asked(where)
    if condition is None:
        return [where]
    choices: list[list[dict[str, Any]]] = []
    for field, name in _FIELDS.items():
        if getattr(where, name) is None:
            values = _possible_values(condition, field)
            if values is not None:
                choices.append([{name: value} for value in values])
    if where.state is None and any(_tells_states_apart(leaf) for leaf in leaves(condition)):
        states = [state for state in State if may_hold(for_state(condition, state))]
        if len(states) < len(State):
            choices.append([{"state": state} for state in states])
    found = [where]
    for choice in choices:
        if len(found) * len(choice) <= MOST:
            found = [replace(one, **fields) for one, fields in product(found, choice)]
    return found


def _tells_states_apart(leaf: Leaf) -> bool:
    """Jobs that wait have no worker: they need not be walked through to find those of one."""
    return isinstance(leaf, InState) or (isinstance(leaf, Compare) and leaf.field is Field.WORKER)


def _possible_values(condition: Condition, field: Field) -> list[str] | None:
    """The texts that a column may have; None when that can be anything, none, or one of many."""
    named = {
        str(leaf.value or "")
        for leaf in leaves(condition)
        if isinstance(leaf, Compare) and leaf.field is field and leaf.comparison is Comparison.EQUAL
    }
    if not 0 < len(named) <= MOST or may_hold(for_other_values(condition, field)):
        return None
    possible = sorted(value for value in named if may_hold(for_value(condition, field, value)))
    return None if "" in possible else possible
