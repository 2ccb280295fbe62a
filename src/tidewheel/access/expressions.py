"""Rules as values: what an expression is made of. ``rule_parsing`` reads it, ``rules`` says what it does."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

from tidewheel.conditions import Comparison, Field, Value


class Operator(StrEnum):
    EQUAL = "="
    NOT_EQUAL = "!="
    GREATER = ">"
    AT_LEAST = ">="
    LESS = "<"
    AT_MOST = "<="
    CONTAINS = "~"
    NOT_CONTAINS = "!~"

    @property
    def negative(self) -> bool:
        return self in (Operator.NOT_EQUAL, Operator.NOT_CONTAINS)

    @property
    def comparison(self) -> Comparison:
        """The same without its not."""
        return Comparison(self.removeprefix("!"))


FLIPPED: Final = {
    Operator.EQUAL: Operator.EQUAL,
    Operator.NOT_EQUAL: Operator.NOT_EQUAL,
    Operator.GREATER: Operator.LESS,
    Operator.AT_LEAST: Operator.AT_MOST,
    Operator.LESS: Operator.GREATER,
    Operator.AT_MOST: Operator.AT_LEAST,
}
"""The operator when both sides change places."""

TEXTS: Final = {
    "topic": Field.TOPIC,
    "tenant": Field.TENANT,
    "task": Field.TASK,
    "user_id": Field.USER_ID,
    "service_id": Field.SERVICE_ID,
    "correlation_id": Field.CORRELATION_ID,
    "key": Field.KEY,
}
NUMBERS: Final = {"priority": Field.PRIORITY, "attempt": Field.ATTEMPT}
FIELDS: Final = (*TEXTS, *NUMBERS, "created", "state")
"""What a rule can say about a job."""


@dataclass(frozen=True, slots=True)
class Literal:
    value: Value


@dataclass(frozen=True, slots=True)
class OfRequest:
    """Something of ``@request``: ``("auth", "id")``."""

    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OfJob:
    field: str


Operand: TypeAlias = Literal | OfRequest | OfJob


@dataclass(frozen=True, slots=True)
class Compares:
    """Two operands; if one is of the job, it is the left one."""

    left: Operand
    comparison: Comparison
    right: Literal | OfRequest
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Always:
    holds: bool


@dataclass(frozen=True, slots=True)
class Both:
    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Either:
    parts: tuple[Expression, ...]


Expression: TypeAlias = Compares | Always | Both | Either


def negated(expression: Expression) -> Expression:
    """The opposite, said of each comparison by itself.

    Not of the whole: a comparison with something the caller lacks does not hold, whichever way it is put, and
    around it a ``!`` would make that true.
    """
    match expression:
        case Compares():
            return replace(expression, negative=not expression.negative)
        case Always(holds):
            return Always(not holds)
        case Both(parts):
            return Either(tuple(negated(part) for part in parts))
        case Either(parts):
            return Both(tuple(negated(part) for part in parts))
    assert_never(expression)
