"""What the fields of the language mean: from what is written to a condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Never

from tidewheel.admin.filters.syntax import (
    AndNode,
    Node,
    NotNode,
    Operator,
    OrNode,
    SearchWord,
    Term,
    WrittenValue,
)
from tidewheel.admin.filters.times import TimeCondition, compare_age, compare_time
from tidewheel.core.conditions import (
    AnyOf,
    Compare,
    ComparePayload,
    Comparison,
    Condition,
    ContainsText,
    Field,
    HasFingerprint,
    InState,
    LastErrorContains,
    all_of,
    any_of,
    negate,
)
from tidewheel.core.model import DerivedState, State
from tidewheel.core.names import check_any_topic, check_task_name, shorten, suggest
from tidewheel.core.security_context import effective_tenant
from tidewheel.errors import InvalidFilter, InvalidInput

_COMPARISONS: Final = {
    Operator.LESS: Comparison.LESS,
    Operator.AT_MOST: Comparison.AT_MOST,
    Operator.GREATER: Comparison.GREATER,
    Operator.AT_LEAST: Comparison.AT_LEAST,
}
_EQUALITY_OPERATORS: Final = (Operator.IS, Operator.EQUAL, Operator.UNEQUAL)
_ORDER_OPERATORS: Final = tuple(_COMPARISONS)

_number = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_whole = re.compile(r"[+-]?\d{1,400}", re.ASCII)

STATES: Final[dict[str, State | DerivedState]] = {
    **{str(state): state for state in (*State, *DerivedState)},
    **dict.fromkeys(("queued", "enqueued", "ready", "available"), State.PENDING),
    **dict.fromkeys(("processing", "in_progress", "executing", "reserved"), State.RUNNING),
    **dict.fromkeys(("succeeded", "done"), State.COMPLETED),
    **dict.fromkeys(("dead", "deadlettered", "dead_lettered", "buried", "discarded"), State.FAILED),
    **dict.fromkeys(("canceled", "aborted", "expired"), State.CANCELLED),
    "scheduled": DerivedState.DELAYED,
    "retryable": DerivedState.RETRYING,
    "holding": DerivedState.BLOCKED,
}
"""Our words, and what others call the same (docs/reference/states.md)."""


class FieldKind(StrEnum):
    """What the values of a field are."""

    STATE = "state"
    TEXT = "text"
    NUMBER = "number"
    TIME = "time"
    DURATION = "duration"
    SEARCH = "search"
    """a text that is contained"""
    FINGERPRINT = "fingerprint"
    """the name of an error's group"""
    PAYLOAD = "payload"
    """any JSON value"""


@dataclass(frozen=True, slots=True)
class FilterField:
    """A field of the language."""

    name: str
    kind: FieldKind
    help: str
    example: str
    aliases: tuple[str, ...] = ()
    column: Field | None = None

    @property
    def operators(self) -> tuple[Operator, ...]:
        match self.kind:
            case FieldKind.STATE | FieldKind.FINGERPRINT:
                return _EQUALITY_OPERATORS
            case FieldKind.TEXT | FieldKind.PAYLOAD:
                return tuple(Operator)
            case FieldKind.NUMBER | FieldKind.TIME:
                return (*_EQUALITY_OPERATORS, *_ORDER_OPERATORS)
            case FieldKind.DURATION:
                return _ORDER_OPERATORS
            case FieldKind.SEARCH:
                return (*_EQUALITY_OPERATORS, Operator.CONTAINS)


FIELDS: Final = (
    FilterField(
        "state", FieldKind.STATE, "Its state, derived ones included.", "state:failed,cancelled", ("status",)
    ),
    FilterField("topic", FieldKind.TEXT, "The lane it waits in.", "topic:mail", (), Field.TOPIC),
    FilterField(
        "task", FieldKind.TEXT, 'Its task; "" has none.', "task:send_digest", ("handler_id",), Field.TASK
    ),
    FilterField("tenant", FieldKind.TEXT, "Whom it belongs to.", "tenant:acme", (), Field.TENANT),
    FilterField("key", FieldKind.TEXT, "Its idempotency key.", "key:order-42", (), Field.KEY),
    FilterField(
        "correlation_id",
        FieldKind.TEXT,
        "What it belongs together with.",
        "correlation:checkout-7",
        ("correlation",),
        Field.CORRELATION_ID,
    ),
    FilterField("user_id", FieldKind.TEXT, "On whose behalf it runs.", "user:42", ("user",), Field.USER_ID),
    FilterField(
        "service_id",
        FieldKind.TEXT,
        "Which service asked for it.",
        "service:shop",
        ("service",),
        Field.SERVICE_ID,
    ),
    FilterField(
        "limit_key",
        FieldKind.TEXT,
        "What it is limited together with.",
        "limit_key:acme",
        (),
        Field.LIMIT_KEY,
    ),
    FilterField("worker", FieldKind.TEXT, "Who holds it or held it last.", "worker~box-3", (), Field.WORKER),
    FilterField("priority", FieldKind.NUMBER, "Higher runs first.", "priority>=100", (), Field.PRIORITY),
    FilterField(
        "attempt", FieldKind.NUMBER, "Attempts counted so far.", "attempts>2", ("attempts",), Field.ATTEMPT
    ),
    FilterField(
        "max_attempts",
        FieldKind.NUMBER,
        "Attempts it gets; none is unlimited.",
        "max_attempts:none",
        (),
        Field.MAX_ATTEMPTS,
    ),
    FilterField(
        "created", FieldKind.TIME, "When it was enqueued.", "created:today", ("created_at",), Field.CREATED_AT
    ),
    FilterField("run_at", FieldKind.TIME, "When it is or was due.", "due<+1h", ("due",), Field.RUN_AT),
    FilterField(
        "started",
        FieldKind.TIME,
        "When its handler last began.",
        "started>10m",
        ("started_at",),
        Field.STARTED_AT,
    ),
    FilterField(
        "finished",
        FieldKind.TIME,
        "When it reached its final state; >1h is more than an hour ago.",
        "finished>1h",
        ("finished_at",),
        Field.FINISHED_AT,
    ),
    FilterField("age", FieldKind.DURATION, "How long ago it was enqueued.", "age>1h", (), Field.CREATED_AT),
    FilterField(
        "error", FieldKind.SEARCH, "A text in the last error.", 'error:"timed out"', (), Field.ERROR_SUMMARY
    ),
    FilterField(
        "any_error",
        FieldKind.SEARCH,
        "A text in any kept error.",
        "any_error:refused",
        (),
        Field.ERROR_SUMMARY,
    ),
    FilterField(
        "fingerprint",
        FieldKind.FINGERPRINT,
        "The group its last error belongs to.",
        "fingerprint:d18e5daeb1b8",
        (),
        Field.ERROR_SUMMARY,
    ),
    FilterField("text", FieldKind.SEARCH, "A text in the payload or an error.", 'text:"mia@example.com"'),
    FilterField("payload", FieldKind.PAYLOAD, "A value inside the payload.", "payload.user.id:42"),
)

_NAMES: Final = {name: field for field in FIELDS for name in (field.name, *field.aliases)}


class FilterCompiler:
    """Turns what stands in one filter into a condition."""

    def __init__(self, query: str, now: int, *, uuids: bool) -> None:
        self._query = query
        self._now = now
        self._uuids = uuids
        self.time_explanations: list[tuple[str, str]] = []
        """Each comparison of a time as it was written, and in words."""

    def compile(self, node: Node) -> Condition:
        match node:
            case AndNode(parts):
                return all_of(*map(self.compile, parts))
            case OrNode(parts):
                return any_of(*map(self.compile, parts))
            case NotNode(part):
                return negate(self.compile(part))
            case SearchWord(value):
                return self._checked(value, lambda: ContainsText(value.text))
            case Term():
                return self._term(node)

    def _term(self, term: Term) -> Condition:
        field = _NAMES.get(term.field.lower())
        if field is None:
            names = [each.name for each in FIELDS]
            hint = suggest(term.field.lower(), _NAMES)
            self._refuse(
                f"there is no field {shorten(term.field)}{hint}; the fields are {', '.join(names)}; "
                "a text to look for goes in quotes",
                term.position,
                term.length,
            )
        if term.path and field.kind is not FieldKind.PAYLOAD:
            self._refuse(f"{field.name} has nothing inside; only payload has", term.position, term.length)
        if term.operator not in field.operators:
            self._refuse(
                f"{field.name} cannot be compared with {term.operator}; use "
                f"{_list_operators(field.operators)}, "
                f"for example {field.example}",
                term.position,
                term.length + len(term.operator),
            )
        if len(term.values) > 1 and term.operator in _COMPARISONS:
            second = term.values[1]
            self._refuse(f"{term.operator} compares with one value only", second.position, second.length)
        told = [self._checked(value, self._compile_value(field, term, value)) for value in term.values]
        condition = any_of(*told)
        return negate(condition) if term.operator is Operator.UNEQUAL else condition

    def _compile_value(self, field: FilterField, term: Term, value: WrittenValue) -> Callable[[], Condition]:
        def meaning() -> Condition:
            present = value.text == "*" and not value.quoted and term.operator in _EQUALITY_OPERATORS
            match field.kind:
                case FieldKind.STATE:
                    return InState(read_state(value.text))
                case FieldKind.PAYLOAD:
                    return _payload(term, value, present=present)
                case FieldKind.SEARCH if not (present and field.column):
                    return _search(field.name, value.text)
                case FieldKind.FINGERPRINT if not present:
                    return HasFingerprint(value.text.lower())
                case FieldKind.DURATION:
                    compared = _COMPARISONS[term.operator]
                    return self._explain_time(
                        term, compare_age(Field.CREATED_AT, compared, value.text, self._now)
                    )
            if field.column is None:
                raise ValueError(f"{field.name} should be a column")
            if present:
                return negate(Compare(field.column, Comparison.EQUAL, None))
            match field.kind:
                case FieldKind.NUMBER:
                    return Compare(field.column, _comparison(term.operator), _integer(value))
                case FieldKind.TIME:
                    return self._time(field.column, term, value)
                case _:
                    return self._text(field.column, term.operator, value)

        return meaning

    def _text(self, column: Field, operator: Operator, value: WrittenValue) -> Condition:
        text = value.text
        if operator in _EQUALITY_OPERATORS and text:
            match column:
                case Field.TOPIC:
                    check_any_topic(text)
                case Field.TASK:
                    check_task_name(text)
                case Field.TENANT:
                    effective_tenant(text, uuids=self._uuids)
        return Compare(column, _comparison(operator), text)

    def _time(self, column: Field, term: Term, value: WrittenValue) -> Condition:
        comparison = _comparison(term.operator)
        if value.text.lower() == "none" and not value.quoted:
            return Compare(column, comparison, None)
        return self._explain_time(term, compare_time(column, comparison, value.text, self._now))

    def _explain_time(self, term: Term, condition: TimeCondition) -> Condition:
        not_ = "not " if term.operator is Operator.UNEQUAL else ""
        self.time_explanations.append((str(term), f"{not_}{condition.words}"))
        return condition.condition

    def _checked(self, value: WrittenValue, meaning: Callable[[], Condition]) -> Condition:
        try:
            return meaning()
        except InvalidInput as error:
            self._refuse(str(error), value.position, value.length)

    def _refuse(self, reason: str, position: int, length: int) -> Never:
        raise InvalidFilter(f"{reason} (at character {position + 1})", self._query, position, length)


def _comparison(operator: Operator) -> Comparison:
    if operator is Operator.CONTAINS:
        return Comparison.CONTAINS
    return _COMPARISONS.get(operator, Comparison.EQUAL)


def read_state(text: str) -> State | DerivedState:
    """A state by one of its names, ours or another system's."""
    state = STATES.get(text.lower())
    if state is None:
        known = ", ".join([*State, *DerivedState])
        raise InvalidInput(f"state is {shorten(text)}{suggest(text.lower(), STATES)}; the states are {known}")
    return state


def _search(name: str, text: str) -> Condition:
    match name:
        case "error":
            return LastErrorContains(text)
        case "any_error":
            return ContainsText(text, in_payload=False)
        case _:
            return ContainsText(text)


def _integer(value: WrittenValue) -> int | None:
    if value.text.lower() == "none":
        return None
    if not _whole.fullmatch(value.text):
        raise InvalidInput(f"{shorten(value.text)} is no whole number, and not none")
    return int(value.text)


def _payload(term: Term, value: WrittenValue, *, present: bool) -> Condition:
    comparison = _comparison(term.operator)
    if present:
        return negate(ComparePayload(term.path, Comparison.EQUAL, None))
    text = ComparePayload(term.path, comparison, value.text)
    if value.quoted or comparison is Comparison.CONTAINS:
        return text
    constants: dict[str, Any] = {"true": True, "false": False, "null": None}
    if value.text in constants and comparison is Comparison.EQUAL:
        return ComparePayload(term.path, comparison, constants[value.text])
    if not _number.fullmatch(value.text):
        return text
    whole = value.text.lstrip("-").isdigit()
    number = ComparePayload(term.path, comparison, int(value.text) if whole else float(value.text))
    # 42 may have been put in as "42". How texts of digits are ordered is hardly what somebody wants to know.
    return AnyOf((number, text)) if comparison is Comparison.EQUAL else number


def _list_operators(operators: Iterable[Operator]) -> str:
    return " ".join(operators)
