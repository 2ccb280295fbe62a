"""From a text to what stands in it. Knows the shape of the language, not what its fields mean."""

from __future__ import annotations

import re
from typing import Final, Never

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
from tidewheel.core.names import shorten
from tidewheel.errors import InvalidFilter

MAX_LENGTH: Final = 1000
MAX_DEPTH: Final = 20
MAX_TERMS: Final = 50

_space = re.compile(r"\s*")
_operator = re.compile(r"!=|<=|>=|[:=<>~]")
# A field's name, and the steps of a path into the payload.
_field = re.compile(
    r'[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[\d{1,9}\]|\["(?:[^"\\]|\\.)*"\])*', re.ASCII
)
_step = re.compile(r'\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d{1,9})\]|\["((?:[^"\\]|\\.)*)"\]', re.ASCII)
_plain_value = re.compile(r'[^\s"(),]+')
_word = re.compile(r'[^\s"()]+')
_quoted = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_escape = re.compile(r"\\(.)", re.DOTALL)
_keyword = re.compile(r'(AND|OR|NOT)(?=[\s"()]|$)')


class FilterParser:
    """Goes through a text once, from left to right."""

    def __init__(self, query: str) -> None:
        self._query = query
        self._at = 0
        self._terms = 0

    def parse(self) -> Node | None:
        """What stands in it; None when nothing does."""
        if len(self._query) > MAX_LENGTH:
            reason = f"the filter has {len(self._query):,} characters; the limit is {MAX_LENGTH:,}"
            self._refuse(reason, MAX_LENGTH, len(self._query) - MAX_LENGTH)
        self._skip()
        if self._ended():
            return None
        node = self._either(0)
        if not self._ended():  # only a bracket ends a filter before its end
            self._refuse("this bracket closes nothing; take it away, or put it in quotes", self._at)
        return node

    # -- what holds terms together ----------------------------------------------------------------------

    def _either(self, depth: int) -> Node:
        parts = [self._both(depth)]
        while self._keyword() == "OR":
            self._advance(2)
            parts.append(self._both(depth))
        return parts[0] if len(parts) == 1 else OrNode(tuple(parts))

    def _both(self, depth: int) -> Node:
        parts = [self._one(depth)]
        while not self._ended() and self._query[self._at] != ")" and self._keyword() != "OR":
            if self._keyword() == "AND":
                self._advance(3)
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else AndNode(tuple(parts))

    def _one(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self._refuse(f"brackets and NOT are nested deeper than {MAX_DEPTH}; write it flatter", self._at)
        keyword = self._keyword()
        if self._ended() or keyword in ("AND", "OR") or self._query[self._at] == ")":
            found = "the end" if self._ended() else shorten(keyword or ")")
            self._refuse(
                f"{found} stands where a term is expected, for example state:failed; "
                "words that are to be looked for go in quotes",
                self._at,
                len(keyword or ")"),
            )
        if keyword == "NOT":
            self._advance(3)
            return NotNode(self._one(depth + 1))
        if self._query[self._at] == "-":
            self._at += 1
            if self._ended() or self._query[self._at].isspace():
                self._refuse("a minus negates the term right behind it, and there is none", self._at - 1)
            return NotNode(self._one(depth + 1))
        if self._query[self._at] == "(":
            return self._bracket(depth)
        self._terms += 1
        if self._terms > MAX_TERMS:
            self._refuse(
                f"there are more than {MAX_TERMS} terms; use field:a,b,c for one of several", self._at
            )
        return self._term()

    def _bracket(self, depth: int) -> Node:
        opened = self._at
        self._advance(1)
        node = self._either(depth + 1)
        if self._ended():
            self._refuse("this bracket is never closed; add ) or put it in quotes", opened)
        self._advance(1)
        return node

    # -- terms ------------------------------------------------------------------------------------------

    def _term(self) -> Node:
        start = self._at
        field = _field.match(self._query, start)
        if field is not None:
            after = _space.match(self._query, field.end())
            operator = _operator.match(self._query, after.end() if after else field.end())
            if operator is not None:
                return self._comparison(start, field[0], operator)
        if (operator := _operator.match(self._query, start)) is not None:
            self._refuse(
                f"{operator[0]} has no field before it; write field{operator[0]}value, "
                "or put the text to look for in quotes",
                start,
                len(operator[0]),
            )
        if self._query[start] == '"':
            return SearchWord(self._in_quotes())
        word = _word.match(self._query, start)
        if word is None:
            self._refuse("nothing can be read here", start)
        if (inside := _operator.search(word[0])) is not None and inside.start():
            self._refuse(
                f"{shorten(word[0][: inside.start()])} is no field's name; put a text to look for in quotes",
                start,
                inside.start(),
            )
        self._advance(len(word[0]))
        return SearchWord(WrittenValue(word[0], False, start, len(word[0])))

    def _comparison(self, start: int, name: str, operator: re.Match[str]) -> Term:
        self._at = operator.end()
        self._skip()
        values = [self._value(operator[0])]
        while not self._ended() and self._query[self._at] == ",":
            self._advance(1)
            values.append(self._value(","))
        self._skip()
        head = re.split(r"[.\[]", name, maxsplit=1)[0]
        path = tuple(
            match[1]
            if match[1] is not None
            else int(match[2])
            if match[2] is not None
            else _unescaped(match[3])
            for match in _step.finditer(name, len(head))
        )
        return Term(head, path, Operator(operator[0]), tuple(values), start, len(name))

    def _value(self, after: str) -> WrittenValue:
        start = self._at
        if not self._ended() and self._query[start] == '"':
            return self._in_quotes()
        plain = None if self._ended() else _plain_value.match(self._query, start)
        if plain is None:
            found = "the end" if self._ended() else shorten(self._query[start])
            self._refuse(
                f"{found} stands where a value is expected after {after}; "
                'values with spaces, commas or brackets go in quotes, "" is the empty text',
                start,
            )
        self._at = plain.end()
        return WrittenValue(plain[0], False, start, len(plain[0]))

    def _in_quotes(self) -> WrittenValue:
        start = self._at
        found = _quoted.match(self._query, start)
        if found is None:
            self._refuse('this quote is never closed; add ", and write a quote inside as \\"', start)
        self._at = found.end()
        return WrittenValue(_unescaped(found[1]), True, start, found.end() - start)

    # -- walking ----------------------------------------------------------------------------------------

    def _ended(self) -> bool:
        return self._at >= len(self._query)

    def _skip(self) -> None:
        found = _space.match(self._query, self._at)
        self._at = found.end() if found else self._at

    def _advance(self, length: int) -> None:
        self._at += length
        self._skip()

    def _keyword(self) -> str | None:
        self._skip()
        found = _keyword.match(self._query, self._at)
        return found[1] if found else None

    def _refuse(self, reason: str, position: int, length: int = 1) -> Never:
        raise InvalidFilter(f"{reason} (at character {position + 1})", self._query, position, length)


def _unescaped(text: str) -> str:
    return _escape.sub(r"\1", text)
