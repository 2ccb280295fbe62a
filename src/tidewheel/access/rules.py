"""Access rules: whether a caller may do something, and which jobs it may see.

One rule has two uses. ``decide`` answers for one job at once. ``row_filter`` puts in everything that is known
of the request and leaves a condition on jobs, which a store turns into SQL. Both must answer alike; a test
makes up rules, callers and jobs, and compares.

A comparison is true, false or unknown, and a rule passes only if it is true as a whole (Kleene's logic). The
parser has moved every ``!`` to the comparisons, so it is enough that an unknown comparison holds in neither
polarity: ``&&`` and ``||`` of what is left give the same answer as with three values. Conditions for stores
therefore need no third value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from tidewheel.access.rule_expressions import (
    NUMBERS,
    TEXTS,
    Always,
    Both,
    Compares,
    Either,
    Expression,
    Literal,
    OfJob,
    OfRequest,
    at,
    compare,
    is_missing,
    is_number,
    moment,
    ordered,
    storable,
    whole,
)
from tidewheel.access.rule_parser import parse
from tidewheel.core.conditions import (
    ALWAYS,
    NEVER,
    Compare,
    Comparison,
    Condition,
    Field,
    InState,
    all_of,
    any_of,
    in_state,
    negate,
)
from tidewheel.core.model import JobRecord, Shown, State

STATES: Final[tuple[State | Shown, ...]] = (*State, *Shown)


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule as it was read. Without an expression it is for superusers only."""

    name: str
    text: str
    expression: Expression | None


@dataclass(frozen=True, slots=True)
class RuleRequest:
    """What a rule can ask of a request: plain JSON."""

    auth: Mapping[str, Any] = field(default_factory=dict, repr=False)
    method: str = ""
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)


def read_rule(name: str, text: str, *, with_body: bool = False) -> Rule:
    """The rule of a setting; ``ConfigurationError`` points at the character that is wrong."""
    return Rule(name, text, parse(name, text, with_body=with_body) if text.strip() else None)


def asks_about_body(rule: Rule) -> bool:
    """Whether two requests of one caller may get different answers for what is in their bodies."""
    return rule.expression is not None and _asks_about_body(rule.expression)


def _asks_about_body(expression: Expression) -> bool:
    match expression:
        case Always():
            return False
        case Both(parts) | Either(parts):
            return any(_asks_about_body(part) for part in parts)
        case Compares(left, _, right):
            return any(isinstance(side, OfRequest) and side.path[0] == "body" for side in (left, right))
    assert_never(expression)


def job_fields(job: JobRecord, now: int) -> dict[str, Any]:
    """What a rule can ask of a job, for ``decide``. It may be in several states at once."""
    fields: dict[str, Any] = {name: getattr(job, column) for name, column in (TEXTS | NUMBERS).items()}
    fields["created"] = job.created_at
    fields["state"] = [state for state in STATES if in_state(job, state, now)]
    return fields


# -- for one job ----------------------------------------------------------------------------------------


def decide(rule: Rule, request: RuleRequest, job: Mapping[str, Any]) -> bool:
    """Whether the rule lets somebody who is no superuser through. What ``job`` does not have is missing."""
    return rule.expression is not None and _holds(rule.expression, request, job)


def _holds(expression: Expression, request: RuleRequest, job: Mapping[str, Any]) -> bool:
    match expression:
        case Always(holds):
            return holds
        case Both(parts):
            return all(_holds(part, request, job) for part in parts)
        case Either(parts):
            return any(_holds(part, request, job) for part in parts)
        case Compares(left, comparison, right, negative):
            if _is_lacking(expression, request):
                return False
            if isinstance(left, OfJob):
                value = _value(right, request)
                if _asks_for_nothing(expression) and left.field not in TEXTS:
                    found: bool | None = False  # every job has one
                else:
                    found = _job_compares(job, left.field, comparison, value)
            else:
                found = _request_compares(expression, request)
            return found is not None and found != negative
    assert_never(expression)


def _asks_for_nothing(asked: Compares) -> bool:
    """Whether it asks if a value is missing: ``= null``, ``= ''`` or the opposite. Known for every kind."""
    return asked.comparison is Comparison.EQUAL and any(
        isinstance(side, Literal) and is_missing(side.value) for side in (asked.left, asked.right)
    )


def _request_compares(asked: Compares, request: RuleRequest) -> bool | None:
    """Compare two values that no job is needed for; None is unknown."""
    assert not isinstance(asked.left, OfJob)  # noqa: S101 - told apart before
    left, right = _value(asked.left, request), _value(asked.right, request)
    if _asks_for_nothing(asked):
        return is_missing(left) and is_missing(right)
    return compare(left, asked.comparison, right)


def _job_compares(job: Mapping[str, Any], name: str, comparison: Comparison, value: Any) -> bool | None:
    found = job.get(name)
    if name in TEXTS:
        if isinstance(value, str) and not storable(value):
            return None
        return compare(found or "", comparison, value)
    if name == "state":
        if not (value is None or isinstance(value, str)):
            return None
        states: Collection[str] = [found] if isinstance(found, str) else found or ()
        return any(compare(str(state), comparison, value) for state in states)
    if name == "created":
        value = moment(value)
        if value is None or found is None or comparison is Comparison.CONTAINS:
            return None
        return ordered(found, comparison, value)
    return None if found is None else compare(found, comparison, value)


# -- for all jobs ---------------------------------------------------------------------------------------


def row_filter(rule: Rule, request: RuleRequest) -> Condition:
    """Which jobs the rule shows to somebody who is no superuser: a condition on columns."""
    return NEVER if rule.expression is None else _condition(rule.expression, request)


def _condition(expression: Expression, request: RuleRequest) -> Condition:
    match expression:
        case Always(holds):
            return _known(holds)
        case Both(parts):
            return all_of(*(_condition(part, request) for part in parts))
        case Either(parts):
            return any_of(*(_condition(part, request) for part in parts))
        case Compares(left, comparison, right, negative):
            if _is_lacking(expression, request):
                return NEVER
            if isinstance(left, OfJob):
                if _asks_for_nothing(expression) and left.field not in TEXTS:
                    found: Condition | None = NEVER
                else:
                    found = _job_condition(left.field, comparison, _value(right, request))
            else:
                known = _request_compares(expression, request)
                found = None if known is None else _known(known)
            if found is None:  # unknown: in neither polarity
                return NEVER
            return negate(found) if negative else found
    assert_never(expression)


def _job_condition(name: str, comparison: Comparison, value: Any) -> Condition | None:
    """What is left to ask of a job; None is unknown for every job."""
    if name in TEXTS:
        text = "" if value is None else value
        return Compare(TEXTS[name], comparison, text) if isinstance(text, str) and storable(text) else None
    if name == "state":
        if not (value is None or isinstance(value, str)):
            return None
        return any_of(*(InState(state) for state in STATES if compare(str(state), comparison, value)))
    if comparison is Comparison.CONTAINS:
        return None
    if name == "created":
        value = moment(value)
        return None if value is None else Compare(Field.CREATED_AT, comparison, value)
    if not is_number(value):
        return None
    bound = whole(comparison, value)
    return _known(bound) if isinstance(bound, bool) else Compare(NUMBERS[name], comparison, bound)


def _known(holds: bool) -> Condition:
    return ALWAYS if holds else NEVER


# -- what an operator should know -----------------------------------------------------------------------


def open_to_missing(rule: Rule) -> list[str]:
    """Return the values of a request that pass a comparison of this rule by being missing.

    ``@request.auth.role != 'banned'`` lets in callers without a role. A rule that asks for the value beside
    it, ``@request.auth.role != '' && …``, is not meant, nor is one that asks whether it is missing.
    """
    return [] if rule.expression is None else sorted(set(_open_paths(rule.expression, frozenset())))


def _open_paths(expression: Expression, present: frozenset[OfRequest]) -> Iterator[str]:
    match expression:
        case Always():
            return
        case Both(parts):
            present |= {value for part in parts for value in _asked_for(part)}
            for part in parts:
                yield from _open_paths(part, present)
        case Either(parts):
            for part in parts:
                yield from _open_paths(part, present)
        case Compares(left, _, right):
            for side in (left, right):
                if isinstance(side, OfRequest) and side not in present and _passes_without(expression, side):
                    yield "@request." + ".".join(side.path)
        case _:
            assert_never(expression)


def _asked_for(part: Expression) -> Iterator[OfRequest]:
    """The values of a request that this part asks for: it holds only where they are there."""
    if isinstance(part, Compares) and part.negative and _asks_for_nothing(part):
        yield from (side for side in (part.left, part.right) if isinstance(side, OfRequest))


def _passes_without(asked: Compares, side: OfRequest) -> bool:
    """Whether a comparison can hold if this side is missing, although it does not ask for that."""
    if side.path[0] == "method" or _asks_for_nothing(asked):
        return False
    other = asked.right if side is asked.left else asked.left
    if not isinstance(other, Literal):
        return asked.negative and side.path[0] == "body"
    if _is_lacking(asked, RuleRequest()):
        return False
    found = _request_compares(asked, RuleRequest())
    return found is not None and found != asked.negative


def _is_lacking(asked: Compares, request: RuleRequest) -> bool:
    """Whether it puts something that the caller does not have beside anything but a value of the rule's own.

    Such a comparison never holds, not even a negative one: otherwise ``user_id = @request.auth.id`` would
    show the jobs of no user to whoever has not said who they are, and every text has ``''`` in it.
    """
    written = isinstance(asked.left, Literal) or isinstance(asked.right, Literal)
    if written and (asked.comparison is not Comparison.CONTAINS or isinstance(asked.right, Literal)):
        return False
    return any(
        isinstance(side, OfRequest) and side.path[0] == "auth" and _value(side, request) in (None, "")
        for side in (asked.left, asked.right)
    )


def _value(operand: Literal | OfRequest, request: RuleRequest) -> Any:
    if isinstance(operand, Literal):
        return operand.value
    root = operand.path[0]
    found = request.auth if root == "auth" else request.body if root == "body" else request.method
    return at(found, operand.path[1:])
