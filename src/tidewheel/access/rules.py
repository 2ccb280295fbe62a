"""Access rules: whether a caller may do something, and which jobs it may see.

One rule has two uses. ``rule_allows`` answers for one job at once. ``row_filter`` puts in everything that is
known of the request and leaves a condition on jobs, which a store turns into SQL. Both must answer alike; a
test makes up rules, callers and jobs, and compares.

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
    NUMBER_FIELDS,
    TEXT_FIELDS,
    AndExpression,
    ComparisonExpression,
    ConstantExpression,
    Expression,
    JobValue,
    Literal,
    OrExpression,
    RequestValue,
    compare_ordered,
    compare_values,
    integer_bound,
    is_missing,
    is_number,
    is_storable,
    parse_time,
    value_at,
)
from tidewheel.access.rule_parser import parse_rule
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
    is_in_state,
    negate,
)
from tidewheel.core.model import DerivedState, JobRecord, State

ALL_STATES: Final[tuple[State | DerivedState, ...]] = (*State, *DerivedState)


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
    return Rule(name, text, parse_rule(name, text, with_body=with_body) if text.strip() else None)


def reads_body(rule: Rule) -> bool:
    """Whether two requests of one caller may get different answers for what is in their bodies."""
    return rule.expression is not None and _expression_reads_body(rule.expression)


def _expression_reads_body(expression: Expression) -> bool:
    match expression:
        case ConstantExpression():
            return False
        case AndExpression(parts) | OrExpression(parts):
            return any(_expression_reads_body(part) for part in parts)
        case ComparisonExpression(left, _, right):
            return any(isinstance(side, RequestValue) and side.path[0] == "body" for side in (left, right))
    assert_never(expression)


def job_fields(job: JobRecord, now: int) -> dict[str, Any]:
    """What a rule can ask of a job, for ``rule_allows``. It may be in several states at once."""
    fields: dict[str, Any] = {
        name: getattr(job, column) for name, column in (TEXT_FIELDS | NUMBER_FIELDS).items()
    }
    fields["created"] = job.created_at
    fields["state"] = [state for state in ALL_STATES if is_in_state(job, state, now)]
    return fields


# -- for one job ----------------------------------------------------------------------------------------


def rule_allows(rule: Rule, request: RuleRequest, job: Mapping[str, Any]) -> bool:
    """Whether the rule lets somebody who is no superuser through. What ``job`` does not have is missing."""
    return rule.expression is not None and _holds(rule.expression, request, job)


def _holds(expression: Expression, request: RuleRequest, job: Mapping[str, Any]) -> bool:
    match expression:
        case ConstantExpression(holds):
            return holds
        case AndExpression(parts):
            return all(_holds(part, request, job) for part in parts)
        case OrExpression(parts):
            return any(_holds(part, request, job) for part in parts)
        case ComparisonExpression(left, comparison, right, negative):
            if _caller_lacks_value(expression, request):
                return False
            if isinstance(left, JobValue):
                value = _value(right, request)
                if _tests_missing(expression) and left.field not in TEXT_FIELDS:
                    found: bool | None = False  # every job has one
                else:
                    found = _job_compares(job, left.field, comparison, value)
            else:
                found = _request_compares(expression, request)
            return found is not None and found != negative
    assert_never(expression)


def _tests_missing(asked: ComparisonExpression) -> bool:
    """Whether it asks if a value is missing: ``= null``, ``= ''`` or the opposite. Known for every kind."""
    return asked.comparison is Comparison.EQUAL and any(
        isinstance(side, Literal) and is_missing(side.value) for side in (asked.left, asked.right)
    )


def _request_compares(asked: ComparisonExpression, request: RuleRequest) -> bool | None:
    """Compare two values that no job is needed for; None is unknown."""
    assert not isinstance(asked.left, JobValue)  # noqa: S101 - told apart before
    left, right = _value(asked.left, request), _value(asked.right, request)
    if _tests_missing(asked):
        return is_missing(left) and is_missing(right)
    return compare_values(left, asked.comparison, right)


def _job_compares(job: Mapping[str, Any], name: str, comparison: Comparison, value: Any) -> bool | None:
    found = job.get(name)
    if name in TEXT_FIELDS:
        if isinstance(value, str) and not is_storable(value):
            return None
        return compare_values(found or "", comparison, value)
    if name == "state":
        if not (value is None or isinstance(value, str)):
            return None
        states: Collection[str] = [found] if isinstance(found, str) else found or ()
        return any(compare_values(str(state), comparison, value) for state in states)
    if name == "created":
        value = parse_time(value)
        if value is None or found is None or comparison is Comparison.CONTAINS:
            return None
        return compare_ordered(found, comparison, value)
    return None if found is None else compare_values(found, comparison, value)


# -- for all jobs ---------------------------------------------------------------------------------------


def row_filter(rule: Rule, request: RuleRequest) -> Condition:
    """Which jobs the rule shows to somebody who is no superuser: a condition on columns."""
    return NEVER if rule.expression is None else _condition(rule.expression, request)


def _condition(expression: Expression, request: RuleRequest) -> Condition:
    match expression:
        case ConstantExpression(holds):
            return _constant_condition(holds)
        case AndExpression(parts):
            return all_of(*(_condition(part, request) for part in parts))
        case OrExpression(parts):
            return any_of(*(_condition(part, request) for part in parts))
        case ComparisonExpression(left, comparison, right, negative):
            if _caller_lacks_value(expression, request):
                return NEVER
            if isinstance(left, JobValue):
                if _tests_missing(expression) and left.field not in TEXT_FIELDS:
                    found: Condition | None = NEVER
                else:
                    found = _job_condition(left.field, comparison, _value(right, request))
            else:
                known = _request_compares(expression, request)
                found = None if known is None else _constant_condition(known)
            if found is None:  # unknown: in neither polarity
                return NEVER
            return negate(found) if negative else found
    assert_never(expression)


def _job_condition(name: str, comparison: Comparison, value: Any) -> Condition | None:
    """What is left to ask of a job; None is unknown for every job."""
    if name in TEXT_FIELDS:
        text = "" if value is None else value
        return (
            Compare(TEXT_FIELDS[name], comparison, text)
            if isinstance(text, str) and is_storable(text)
            else None
        )
    if name == "state":
        if not (value is None or isinstance(value, str)):
            return None
        return any_of(
            *(InState(state) for state in ALL_STATES if compare_values(str(state), comparison, value))
        )
    if comparison is Comparison.CONTAINS:
        return None
    if name == "created":
        value = parse_time(value)
        return None if value is None else Compare(Field.CREATED_AT, comparison, value)
    if not is_number(value):
        return None
    bound = integer_bound(comparison, value)
    return (
        _constant_condition(bound)
        if isinstance(bound, bool)
        else Compare(NUMBER_FIELDS[name], comparison, bound)
    )


def _constant_condition(holds: bool) -> Condition:
    return ALWAYS if holds else NEVER


# -- what an operator should know -----------------------------------------------------------------------


def paths_open_when_missing(rule: Rule) -> list[str]:
    """Return the values of a request that pass a comparison of this rule by being missing.

    ``@request.auth.role != 'banned'`` lets in callers without a role. A rule that asks for the value beside
    it, ``@request.auth.role != '' && …``, is not meant, nor is one that asks whether it is missing.
    """
    return [] if rule.expression is None else sorted(set(_open_paths(rule.expression, frozenset())))


def _open_paths(expression: Expression, present: frozenset[RequestValue]) -> Iterator[str]:
    match expression:
        case ConstantExpression():
            return
        case AndExpression(parts):
            present |= {value for part in parts for value in _required_values(part)}
            for part in parts:
                yield from _open_paths(part, present)
        case OrExpression(parts):
            for part in parts:
                yield from _open_paths(part, present)
        case ComparisonExpression(left, _, right):
            for side in (left, right):
                if (
                    isinstance(side, RequestValue)
                    and side not in present
                    and _passes_when_missing(expression, side)
                ):
                    yield "@request." + ".".join(side.path)
        case _:
            assert_never(expression)


def _required_values(part: Expression) -> Iterator[RequestValue]:
    """The values of a request that this part asks for: it holds only where they are there."""
    if isinstance(part, ComparisonExpression) and part.negative and _tests_missing(part):
        yield from (side for side in (part.left, part.right) if isinstance(side, RequestValue))


def _passes_when_missing(asked: ComparisonExpression, side: RequestValue) -> bool:
    """Whether a comparison can hold if this side is missing, although it does not ask for that."""
    if side.path[0] == "method" or _tests_missing(asked):
        return False
    other = asked.right if side is asked.left else asked.left
    if not isinstance(other, Literal):
        return asked.negative and side.path[0] == "body"
    if _caller_lacks_value(asked, RuleRequest()):
        return False
    found = _request_compares(asked, RuleRequest())
    return found is not None and found != asked.negative


def _caller_lacks_value(asked: ComparisonExpression, request: RuleRequest) -> bool:
    """Whether it puts something that the caller does not have beside anything but a value of the rule's own.

    Such a comparison never holds, not even a negative one: otherwise ``user_id = @request.auth.id`` would
    show the jobs of no user to whoever has not said who they are, and every text has ``''`` in it.
    """
    written = isinstance(asked.left, Literal) or isinstance(asked.right, Literal)
    if written and (asked.comparison is not Comparison.CONTAINS or isinstance(asked.right, Literal)):
        return False
    return any(
        isinstance(side, RequestValue) and side.path[0] == "auth" and _value(side, request) in (None, "")
        for side in (asked.left, asked.right)
    )


def _value(operand: Literal | RequestValue, request: RuleRequest) -> Any:
    if isinstance(operand, Literal):
        return operand.value
    root = operand.path[0]
    found = request.auth if root == "auth" else request.body if root == "body" else request.method
    return value_at(found, operand.path[1:])
