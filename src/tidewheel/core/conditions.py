"""Conditions on jobs, as values: what a filter or an access rule means. No I/O.

A store turns what is about columns into SQL; :func:`matches` says the same about one job in Python. Both must
answer alike, so the meaning is kept simple:

* There is true and false, nothing else. A text that is missing is the empty text. A number or a time that is
  missing equals None only, and is neither smaller nor larger than anything.
* Texts are ordered by code point, and ``CONTAINS`` looks for exactly these characters.
* A value in a payload equals one of its own kind only: 42 and 42.0 are one number, "42" and true are not it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias, assert_never

from tidewheel.core import fingerprints, payload
from tidewheel.core.model import AttemptRecord, BodyFormat, DerivedState, JobFilter, State
from tidewheel.core.names import check_text, shorten
from tidewheel.errors import InvalidInput, InvalidPayload

MAX_VALUE_LENGTH: Final = 1000
"""Longest text to compare with, or to look for."""

_fingerprint = re.compile(rf"[0-9a-f]{{{fingerprints.FINGERPRINT_LENGTH}}}", re.ASCII)


class Field(StrEnum):
    """What every job has, under the names of :class:`~tidewheel.core.model.JobRecord`."""

    TOPIC = "topic"
    TASK = "task"
    TENANT = "tenant"
    KEY = "key"
    CORRELATION_ID = "correlation_id"
    USER_ID = "user_id"
    SERVICE_ID = "service_id"
    LIMIT_KEY = "limit_key"
    WORKER = "worker"
    PRIORITY = "priority"
    ATTEMPT = "attempt"
    MAX_ATTEMPTS = "max_attempts"
    CREATED_AT = "created_at"
    RUN_AT = "run_at"
    STARTED_AT = "started_at"
    FINISHED_AT = "finished_at"
    ERROR_SUMMARY = "error_summary"

    @property
    def is_text(self) -> bool:
        return self not in NUMBERS


NUMBERS: Final = frozenset(
    {
        Field.PRIORITY,
        Field.ATTEMPT,
        Field.MAX_ATTEMPTS,
        Field.CREATED_AT,
        Field.RUN_AT,
        Field.STARTED_AT,
        Field.FINISHED_AT,
    }
)
"""Whole numbers; times are microseconds. All others are texts."""


class Comparison(StrEnum):
    EQUAL = "="
    LESS = "<"
    AT_MOST = "<="
    GREATER = ">"
    AT_LEAST = ">="
    CONTAINS = "~"
    """of texts: these characters, somewhere"""


Value: TypeAlias = str | int | float | bool | None
Path: TypeAlias = tuple[str | int, ...]
"""Where in a payload: names of objects' members, positions in arrays."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A column against a value. Texts with texts (None = empty), numbers with whole numbers or None."""

    field: Field
    comparison: Comparison
    value: str | int | None

    def __post_init__(self) -> None:
        """Refuse what stores could not compare alike: another kind, or a text that not all can take."""
        if self.value is None:
            return
        if isinstance(self.value, bool) or not isinstance(self.value, str if self.field.is_text else int):
            kind = "a text" if self.field.is_text else "a whole number"
            raise InvalidInput(f"{self.field} is compared with {shorten(self.value)}; it must be {kind}")
        if isinstance(self.value, str) and self.value:
            check_text(self.field, self.value, MAX_VALUE_LENGTH)


@dataclass(frozen=True, slots=True)
class InState:
    """In this state at the moment of asking, derived ones included."""

    state: State | DerivedState


@dataclass(frozen=True, slots=True)
class ComparePayload:
    """What a JSON payload has at a path. What is not there compares as false, but equals None."""

    path: Path
    comparison: Comparison
    value: Value


@dataclass(frozen=True, slots=True)
class ContainsText:
    """A text in any of the kept errors, or in those or the payload as it is stored."""

    text: str
    in_payload: bool = True

    def __post_init__(self) -> None:
        check_text("text", self.text, MAX_VALUE_LENGTH)


@dataclass(frozen=True, slots=True)
class LastErrorContains:
    """A text in the last error, ``code: message``, which is the final one of a job that failed."""

    text: str

    def __post_init__(self) -> None:
        check_text("text", self.text, MAX_VALUE_LENGTH)


@dataclass(frozen=True, slots=True)
class HasFingerprint:
    """The last error has this fingerprint, see :mod:`tidewheel.core.fingerprints`."""

    fingerprint: str

    def __post_init__(self) -> None:
        """Refuse what no error has: a mistyped one would select nothing, or everything when negated."""
        if _fingerprint.fullmatch(self.fingerprint) is None:
            raise InvalidInput(
                f"fingerprint is {shorten(self.fingerprint)}; it must be {fingerprints.FINGERPRINT_LENGTH} "
                "hexadecimal "
                "digits, as `tidewheel why failed` prints them"
            )


@dataclass(frozen=True, slots=True)
class Not:
    part: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds; without parts it does."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds; without parts none does."""

    parts: tuple[Condition, ...]


Leaf: TypeAlias = Compare | InState | ComparePayload | ContainsText | LastErrorContains | HasFingerprint
Condition: TypeAlias = Leaf | Not | AllOf | AnyOf

ALWAYS: Final = AllOf(())
NEVER: Final = AnyOf(())

_LANE_FIELDS: Final = frozenset({Field.TENANT, Field.TOPIC, Field.TASK})
_STORED_AS: Final = {
    DerivedState.DELAYED: State.PENDING,
    DerivedState.RETRYING: State.PENDING,
    DerivedState.BLOCKED: State.PENDING,
    DerivedState.CLAIMED: State.RUNNING,
}


class ConditionSubject(Protocol):
    """What conditions look at in a job, beside the columns that :class:`Field` names."""

    @property
    def topic(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def state(self) -> State: ...
    @property
    def blocked(self) -> int: ...
    @property
    def run_at(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def started_at(self) -> int | None: ...
    @property
    def error_summary(self) -> str | None: ...
    @property
    def format(self) -> BodyFormat: ...
    @property
    def payload(self) -> bytes | None: ...
    @property
    def attempts(self) -> tuple[AttemptRecord, ...]: ...


def all_of(*parts: Condition) -> Condition:
    """``AllOf``, without what changes nothing."""
    kept: list[Condition] = []
    for part in parts:
        if part == NEVER:
            return NEVER
        kept += part.parts if isinstance(part, AllOf) else [part]
    return kept[0] if len(kept) == 1 else AllOf(tuple(kept))


def any_of(*parts: Condition) -> Condition:
    """``AnyOf``, without what changes nothing."""
    kept: list[Condition] = []
    for part in parts:
        if part == ALWAYS:
            return ALWAYS
        kept += part.parts if isinstance(part, AnyOf) else [part]
    return kept[0] if len(kept) == 1 else AnyOf(tuple(kept))


def negate(part: Condition) -> Condition:
    """``Not``, without what changes nothing."""
    if part == ALWAYS:
        return NEVER
    if part == NEVER:
        return ALWAYS
    return part.part if isinstance(part, Not) else Not(part)


def leaves(condition: Condition) -> Iterator[Leaf]:
    """What it asks of a job, whatever it makes of the answers."""
    match condition:
        case Not(part):
            yield from leaves(part)
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from leaves(part)
        case _:
            yield condition


def uses_only_columns(condition: Condition) -> bool:
    """Whether it can be told without a job's body and errors."""
    return all(isinstance(leaf, Compare | InState) for leaf in leaves(condition))


def necessary_condition(condition: Condition, *known: type[Leaf]) -> Condition:
    """What holds of every job that it holds of, and asks for nothing but leaves of these kinds.

    Whoever cannot see the rest leaves out with this what is no match whatever the rest says.
    """
    return _approximate(condition, known, ALWAYS)


def sufficient_condition(condition: Condition, *known: type[Leaf]) -> Condition:
    """Return a condition on leaves of these kinds alone that holds only where the given one does."""
    return _approximate(condition, known, NEVER)


def _approximate(condition: Condition, known: tuple[type[Leaf], ...], unknown: Condition) -> Condition:
    match condition:
        case Not(part):
            return negate(_approximate(part, known, negate(unknown)))
        case AllOf(parts):
            return all_of(*(_approximate(part, known, unknown) for part in parts))
        case AnyOf(parts):
            return any_of(*(_approximate(part, known, unknown) for part in parts))
        case _:
            return condition if isinstance(condition, known) else unknown


def unindexed_condition(where: JobFilter) -> Condition | None:
    """What a filter asks beyond its fields that indexes serve; None when that is nothing."""
    text = ALWAYS if where.text is None else ContainsText(where.text)
    condition = all_of(where.condition or ALWAYS, text)
    return None if condition == ALWAYS else condition


def remaining_condition(condition: Condition, *known: type[Leaf]) -> Condition:
    """What is left to ask of a job that ``necessary_condition`` holds of: the parts that ask for other
    leaves.
    """
    parts = condition.parts if isinstance(condition, AllOf) else (condition,)
    return all_of(
        *(part for part in parts if not all(isinstance(leaf, known) for leaf in leaves(part))),
    )


def evaluate(condition: Condition, evaluate_leaf: Callable[[Leaf], bool]) -> bool:
    """Whether it is true, of a job of which ``tell`` knows the leaves."""
    match condition:
        case Not(part):
            return not evaluate(part, evaluate_leaf)
        case AllOf(parts):
            return all(evaluate(part, evaluate_leaf) for part in parts)
        case AnyOf(parts):
            return any(evaluate(part, evaluate_leaf) for part in parts)
        case _:
            return evaluate_leaf(condition)


def partially_evaluate(condition: Condition, replace_leaf: Callable[[Leaf], Condition]) -> Condition:
    """The condition for jobs of which something is known: ``tell`` says what each leaf becomes."""
    match condition:
        case Not(part):
            return negate(partially_evaluate(part, replace_leaf))
        case AllOf(parts):
            return all_of(*(partially_evaluate(part, replace_leaf) for part in parts))
        case AnyOf(parts):
            return any_of(*(partially_evaluate(part, replace_leaf) for part in parts))
        case _:
            return replace_leaf(condition)


def simplify_for_state(condition: Condition, state: State) -> Condition:
    """What it asks of jobs in this stored state beside that. Derived states are still asked for."""

    def tell(leaf: Leaf) -> Condition:
        if isinstance(leaf, Compare) and leaf.field is Field.WORKER and state is State.PENDING:
            # Nobody has it in hand: a job that is given back loses its worker.
            return ALWAYS if _compare_column(None, leaf.comparison, leaf.value, text=True) else NEVER
        if not isinstance(leaf, InState):
            return leaf
        if isinstance(leaf.state, State):
            return ALWAYS if leaf.state is state else NEVER
        return leaf if _STORED_AS[leaf.state] is state else NEVER

    return partially_evaluate(condition, tell)


def simplify_for_value(condition: Condition, field: Field, value: str) -> Condition:
    """What it asks of jobs with this text in a column beside that."""

    def tell(leaf: Leaf) -> Condition:
        if not isinstance(leaf, Compare) or leaf.field is not field:
            return leaf
        return ALWAYS if _compare_column(value, leaf.comparison, leaf.value, text=True) else NEVER

    return partially_evaluate(condition, tell)


def simplify_for_other_values(condition: Condition, field: Field) -> Condition:
    """What it asks of jobs with a text in a column that it does not name."""

    def tell(leaf: Leaf) -> Condition:
        named = isinstance(leaf, Compare) and leaf.field is field and leaf.comparison is Comparison.EQUAL
        return NEVER if named else leaf

    return partially_evaluate(condition, tell)


def can_match(condition: Condition) -> bool:
    """Whether it can be true of any job, for all that is known without asking one."""
    return necessary_condition(condition) != NEVER


def is_counted(where: JobFilter) -> bool:
    """Whether stores keep counters of exactly this: of tenants, lanes and stored states."""
    finer = (where.key, where.correlation_id, where.created_after, where.created_before)
    if finer != (None,) * len(finer) or isinstance(where.state, DerivedState):
        return False
    return all(
        isinstance(leaf.state, State)
        if isinstance(leaf, InState)
        else isinstance(leaf, Compare) and leaf.field in _LANE_FIELDS
        for leaf in leaves(unindexed_condition(where) or ALWAYS)
    )


def depends_on_topic_only(condition: Condition) -> bool:
    """Whether it has all jobs of a tenant's topic or none of them."""
    return all(
        isinstance(leaf, Compare) and leaf.field in (Field.TOPIC, Field.TENANT) for leaf in leaves(condition)
    )


def matches_topic(condition: Condition, tenant: str, topic: str) -> bool:
    """Whether it is true of the jobs of a tenant's topic, for a condition that is
    ``depends_on_topic_only``.
    """
    known = {Field.TENANT: tenant, Field.TOPIC: topic}

    def tell(leaf: Leaf) -> bool:
        if not isinstance(leaf, Compare):
            raise InvalidInput(f"{shorten(leaf)} is not about topics")
        return _compare_column(known[leaf.field], leaf.comparison, leaf.value, text=True)

    return evaluate(condition, tell)


def matches(condition: Condition, job: ConditionSubject, now: int) -> bool:
    """Whether it is true of this job. What looks into bodies and errors needs a record that has them."""

    def tell(leaf: Leaf) -> bool:
        match leaf:
            case Compare(field, comparison, value):
                return _compare_column(getattr(job, field), comparison, value, text=field.is_text)
            case InState(state):
                return is_in_state(job, state, now)
            case ComparePayload():
                return compare_payload(leaf, job.format, job.payload)
            case ContainsText(text, in_payload):
                return _contains_text(job, text, in_payload=in_payload)
            case LastErrorContains(text):
                return text in _last_error(job)
            case HasFingerprint(fingerprint):
                return fingerprints.job_fingerprint(job.topic, job.task, job.error_summary) == fingerprint
        assert_never(leaf)

    return evaluate(condition, tell)


def is_in_state(job: ConditionSubject, state: State | DerivedState, now: int) -> bool:
    """Whether a job is in a state to filter by. ``retrying`` and ``delayed`` may both be true of one."""
    match state:
        case DerivedState.DELAYED:
            return job.state is State.PENDING and not job.blocked and job.run_at > now
        case DerivedState.RETRYING:
            return job.state is State.PENDING and job.attempt > 0
        case DerivedState.BLOCKED:
            return job.state is State.PENDING and job.blocked > 0
        case DerivedState.CLAIMED:
            return job.state is State.RUNNING and job.started_at is None
        case _:
            return job.state is state


def _compare_column(found: Any, comparison: Comparison, value: Any, *, text: bool) -> bool:
    if text:
        found, value = found or "", value or ""
    if comparison is Comparison.EQUAL:
        return bool(found == value)
    if found is None or value is None:
        return False
    return _compare_values(found, comparison, value)


def compare_payload(asked_for: ComparePayload, body_format: BodyFormat, body: bytes | None) -> bool:
    """Whether it is true of a job with this body."""
    comparison, value = asked_for.comparison, asked_for.value
    found = _value_at(body_format, body, asked_for.path)
    if comparison is Comparison.EQUAL and value is None:
        return found is None
    if isinstance(found, str) and isinstance(value, str):
        return found == value if comparison is Comparison.EQUAL else _compare_values(found, comparison, value)
    if isinstance(found, bool) or isinstance(value, bool):
        return comparison is Comparison.EQUAL and found is value
    if isinstance(found, int | float) and isinstance(value, int | float):
        if comparison is Comparison.EQUAL:
            return found == value
        return comparison is not Comparison.CONTAINS and _compare_values(found, comparison, value)
    return False


def _value_at(body_format: BodyFormat, body: bytes | None, path: Path) -> Any:
    if body is None or body_format is not BodyFormat.JSON:
        return None
    try:
        found = payload.parse(body)
    except InvalidPayload:  # no door lets such a body in; if there is one, it must not end everybody's search
        return None
    for part in path:
        if isinstance(found, dict) and isinstance(part, str):
            found = found.get(part)
        elif isinstance(found, list) and isinstance(part, int) and part < len(found):
            found = found[part]
        else:
            return None
    return found


def _compare_values(found: Any, comparison: Comparison, value: Any) -> bool:
    match comparison:
        case Comparison.EQUAL:
            return bool(found == value)
        case Comparison.LESS:
            return bool(found < value)
        case Comparison.AT_MOST:
            return bool(found <= value)
        case Comparison.GREATER:
            return bool(found > value)
        case Comparison.AT_LEAST:
            return bool(found >= value)
        case Comparison.CONTAINS:
            return isinstance(found, str) and value in found
    assert_never(comparison)


def _contains_text(job: ConditionSubject, text: str, *, in_payload: bool) -> bool:
    if in_payload and job.payload is not None and text.encode() in job.payload:
        return True
    if text in (job.error_summary or ""):
        return True
    return any(text in f"{kept.error.code}: {kept.error.message}" for kept in job.attempts)


def _last_error(job: ConditionSubject) -> str:
    """The whole last error. A summary that belongs to no attempt, as of a cancelled job, is all there is."""
    summary = job.error_summary or ""
    if summary and job.attempts:
        newest = job.attempts[-1].error
        whole = f"{newest.code}: {newest.message}"
        if whole.startswith(summary):
            return whole
    return summary
