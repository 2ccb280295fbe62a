"""From the text of a rule to its expression; what is wrong is said with the character it begins at."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tidewheel.access.rule_expressions import (
    FLIPPED_OPERATORS,
    NUMBER_FIELDS,
    RULE_FIELDS,
    AndExpression,
    ComparisonExpression,
    ConstantExpression,
    Expression,
    JobValue,
    Literal,
    Operand,
    Operator,
    OrExpression,
    RequestValue,
    negate_expression,
    parse_time,
)
from tidewheel.core.model import DerivedState, State
from tidewheel.core.names import suggest
from tidewheel.errors import ConfigurationError

MAX_RULE_LENGTH: Final = 2_000
MAX_DEPTH: Final = 20
MAX_RULE_TERMS: Final = 100
MAX_PATH_PARTS: Final = 10

_token = re.compile(
    r"""(?P<space>\s+)
    |(?P<symbol>&&|\|\||!=|!~|>=|<=|[()!=<>~])
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<number>-?[0-9]{1,15}(?:\.[0-9]{1,15})?(?![\w.]))
    |(?P<word>@?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_-]+)*)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS: Final = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # symbol, text, number, word, end
    text: str
    at: int


def parse_rule(name: str, text: str, *, with_body: bool) -> Expression:
    """The expression of the setting ``name``. ``with_body``: whether it may ask for ``@request.body``."""
    if len(text) > MAX_RULE_LENGTH:
        raise ConfigurationError(f"{name} has {len(text):,} characters; the limit is {MAX_RULE_LENGTH:,}")
    return _Parser(name, text, with_body=with_body).parse()


class _Parser:
    """Recursive descent; how deep it may go is limited, so that no rule can exhaust the stack."""

    def __init__(self, name: str, text: str, *, with_body: bool) -> None:
        self._name = name
        self._text = text
        self._with_body = with_body
        self._tokens = list(self._read())
        self._next = 0
        self._depth = 0
        self._terms = 0

    def parse(self) -> Expression:
        expression = self._either()
        if self._token.kind != "end":
            raise self._wrong("expected && or ||, or the end")
        return expression

    # -- reading ----------------------------------------------------------------------------------------

    def _read(self) -> Iterator[_Token]:
        at = 0
        while at < len(self._text):
            match = _token.match(self._text, at)
            if match is None:
                raise self._wrong_at(at, "this is no part of a rule")
            if match.lastgroup != "space":
                yield _Token(match.lastgroup or "", match[0], at)
            at = match.end()
        yield _Token("end", "", at)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *symbols: str) -> bool:
        if self._token.kind == "symbol" and self._token.text in symbols:
            self._next += 1
            return True
        return False

    def _wrong(self, what: str) -> ConfigurationError:
        return self._wrong_at(self._token.at, what)

    def _wrong_at(self, at: int, what: str) -> ConfigurationError:
        found = self._text[at : at + 30]
        place = f"at character {at + 1} ({found!r})" if found else "at its end"
        return ConfigurationError(f"{self._name} cannot be read {place}: {what}")

    # -- grammar ----------------------------------------------------------------------------------------

    def _either(self) -> Expression:
        parts = [self._both()]
        while self._take("||"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else OrExpression(tuple(parts))

    def _both(self) -> Expression:
        parts = [self._term()]
        while self._take("&&"):
            parts.append(self._term())
        return parts[0] if len(parts) == 1 else AndExpression(tuple(parts))

    def _term(self) -> Expression:
        start = self._token
        if not self._take("(", "!"):
            return self._comparison()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong_at(start.at, f"this is nested deeper than {MAX_DEPTH}")
        if start.text == "!":
            inner: Expression = negate_expression(self._term())
        else:
            inner = self._either()
            if not self._take(")"):
                raise self._wrong("expected && or || or )")
        self._depth -= 1
        return inner

    def _comparison(self) -> Expression:
        start = self._token
        self._terms += 1
        if self._terms > MAX_RULE_TERMS:
            raise self._wrong(f"a rule has at most {MAX_RULE_TERMS} terms")
        left = self._operand()
        token = self._token
        if token.kind != "symbol" or token.text not in set(Operator):
            if isinstance(left, Literal) and isinstance(left.value, bool):
                return ConstantExpression(left.value)
            raise self._wrong(f"expected one of {' '.join(Operator)}")
        self._next += 1
        operator = Operator(token.text)
        right = self._operand()
        if isinstance(left, JobValue) and isinstance(right, JobValue):
            raise self._wrong_at(start.at, "both sides are of the job; one must be a value or of @request")
        if isinstance(right, JobValue):
            if operator not in FLIPPED_OPERATORS:
                raise self._wrong_at(start.at, "the job's side of ~ and !~ is the left one")
            return self._compares(right, FLIPPED_OPERATORS[operator], left, start.at)
        return self._compares(left, operator, right, start.at)

    def _compares(self, left: Operand, operator: Operator, right: Operand, at: int) -> ComparisonExpression:
        assert not isinstance(right, JobValue)  # noqa: S101 - told apart above
        if isinstance(left, JobValue) and isinstance(right, Literal):
            self._check_literal(left.field, operator, right, at)
        return ComparisonExpression(left, operator.comparison, right, operator.negative)

    def _operand(self) -> Operand:
        token = self._token
        match token.kind:
            case "text":
                operand: Operand = Literal(re.sub(r"\\(.)", r"\1", token.text[1:-1], flags=re.DOTALL))
            case "number":
                operand = Literal(float(token.text) if "." in token.text else int(token.text))
            case "word" if token.text in _WORDS:
                operand = Literal(_WORDS[token.text])
            case "word" if token.text in RULE_FIELDS:
                operand = JobValue(token.text)
            case "word" if token.text.startswith("@"):
                operand = self._of_request(token)
            case "word":
                hint = suggest(token.text, RULE_FIELDS) or f"; a job has {', '.join(RULE_FIELDS)}"
                raise self._wrong(f"{token.text} is nothing of a job{hint}; texts are in quotes")
            case _:
                raise self._wrong("expected a value, something of the job or of @request")
        self._next += 1
        return operand

    def _of_request(self, token: _Token) -> RequestValue:
        root, *path = token.text.split(".")
        roots = {"auth", "method", "body"} if self._with_body else {"auth", "method"}
        if root != "@request" or not path or path[0] not in roots:
            known = ", ".join(f"@request.{name}" for name in sorted(roots))
            raise self._wrong_at(token.at, f"there is no {token.text}; there are {known}")
        if (path[0] == "method") != (len(path) == 1):
            raise self._wrong_at(token.at, "say @request.method, or what of it: @request.auth.id")
        if len(path) > MAX_PATH_PARTS:
            raise self._wrong_at(token.at, f"a path has at most {MAX_PATH_PARTS} parts")
        return RequestValue(tuple(path))

    def _check_literal(self, field: str, operator: Operator, literal: Literal, at: int) -> None:
        """What can never be true is a mistake, and one that closes doors or opens them."""
        value = literal.value
        if field == "state" and operator in (Operator.EQUAL, Operator.NOT_EQUAL):
            states = [*State, *DerivedState]
            if value not in states:
                hint = suggest(value, states) if isinstance(value, str) else ""
                raise self._wrong_at(at, f"there is no such state{hint}; the states are {', '.join(states)}")
        if field == "created" and value is not None and parse_time(value) is None:
            raise self._wrong_at(at, "created is a time; write it like '2030-01-31T09:00Z'")
        if field in NUMBER_FIELDS and isinstance(value, str | bool):
            raise self._wrong_at(at, f"{field} is a number; write it without quotes")
