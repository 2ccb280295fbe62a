"""Queries and bodies as their types, or a problem that points at what is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct
from msgspec.inspect import ListType, LiteralType, StructType, Type, UnionType, type_info

from tidewheel.core.names import shorten, suggest
from tidewheel.core.payload import (
    MAX_DEPTH,
    DuplicateMember,
    object_without_duplicates,
    pointer_to,
    refuse_duplicate_members,
)
from tidewheel.server.problems import MALFORMED_JSON, Problem, invalid_input_problem

S = TypeVar("S", bound=Struct)

MAX_PARAMETERS: Final = 50
MAX_PATH_LENGTH: Final = 1000
"""Max characters of the path in a message of msgspec. A field name can imitate a longer one."""

_field = re.compile(r"Object (?P<how>contains unknown|missing required) field `(?P<name>.*)`", re.DOTALL)
_number = re.compile(r"\s*[-+]?[0-9._]*(e[-+]?[0-9]+)?\s*", re.IGNORECASE)
_time_without_plus = re.compile(r".*T.* \d\d:?\d\d", re.DOTALL)
_steps = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def decode_body(decoder: msgspec.json.Decoder[S], body: bytes, *, allow_lone_surrogates: bool = False) -> S:
    """A body as the decoder's type. ``halves``: of characters, too, which are no JSON in UTF-8."""
    try:
        found = decoder.decode(body)
        refuse_duplicate_members(body)
        return found
    except DuplicateMember as error:
        raise invalid_input_problem(f"the body cannot be accepted: {error}", pointer="#") from None
    except msgspec.ValidationError as error:
        detail, pointer = _explain(str(error))
        hint = _hint(detail, pointer, decoder.type)
        if pointer and _field.search(str(error)) is None:  # else it begins with the name
            detail = f"{pointer[1:]}: {detail}"
        raise invalid_input_problem(detail + hint, pointer=f"#{pointer}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if allow_lone_surrogates and (cut := _decode_lone_surrogates(decoder.type, body)) is not None:
            return cut
        raise Problem(MALFORMED_JSON, f"the body is not JSON: {error}") from None
    except RecursionError:
        raise Problem(
            MALFORMED_JSON, f"the body is nested too deep; payloads may have {MAX_DEPTH} levels"
        ) from None


def _decode_lone_surrogates(kind: type[S], body: bytes) -> S | None:
    """With lone surrogates in its texts, as JavaScript writes a text that was cut in the wrong place; None
    where more than that is wrong.
    """
    try:
        plain = json.loads(body, parse_constant=_no_number, object_pairs_hook=object_without_duplicates)
        return msgspec.convert(plain, kind)
    except DuplicateMember as error:
        raise invalid_input_problem(f"the body cannot be accepted: {error}", pointer="#") from None
    except (ValueError, RecursionError, msgspec.ValidationError):
        return None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def decode_query(kind: type[S], query: bytes) -> S:
    """A query string as this type. A parameter that is given twice, or that there is not, is refused."""
    if not query:
        return _convert(kind, {})
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MAX_PARAMETERS,
            encoding="utf-8",
            errors="strict",
        )
    except UnicodeDecodeError:
        raise invalid_input_problem("the query is not UTF-8 in percent-encoding", parameter="") from None
    except ValueError:
        raise invalid_input_problem(
            f"the query has more than {MAX_PARAMETERS} parameters", parameter=""
        ) from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name in given:
            raise invalid_input_problem(f"{shorten(name)} is given twice; give it once", parameter=name)
        given[name] = value
    return _convert(kind, given)


def _convert(kind: type[S], given: Mapping[str, str]) -> S:
    try:
        found = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        detail, pointer = _explain(str(error))
        name = pointer.removeprefix("/")
        if name in given and "unknown" not in detail:
            detail = f"{name} is {shorten(given[name])}: {detail}"
            if "datetime" in detail:
                detail += f"; {_time_hint(given[name])}"
        raise invalid_input_problem(detail + _hint(detail, pointer, kind), parameter=name) from None
    for name, value in given.items():
        # Without quotes around it msgspec takes the word null for None, and a number for a time.
        match getattr(found, name):
            case None:
                raise invalid_input_problem(
                    f"{name} is {shorten(value)}; leave it out instead", parameter=name
                )
            case datetime() if _number.fullmatch(value):
                raise invalid_input_problem(
                    f"{name} is {shorten(value)}; {_time_hint(value)}", parameter=name
                )
    return found


def _explain(message: str) -> tuple[str, str]:
    """What msgspec found, and where as a JSON pointer."""
    what, mark, path = message.rpartition(" - at `$")
    if not mark or len(path) > MAX_PATH_LENGTH:
        what, path = message, "`"
    pointer = pointer_to([name or index for name, index in _steps.findall(path[:-1])])
    about = _field.fullmatch(what)
    if about:
        pointer += pointer_to([about["name"]])
        if about["how"] == "missing required":
            return f"{about['name']} is missing", pointer
        return f"{shorten(about['name'])} is unknown here and cannot be set", pointer
    return what[:1].lower() + what[1:].replace("`", ""), pointer


def _hint(detail: str, pointer: str, kind: type[Struct]) -> str:
    """What could stand there instead."""
    *path, name = pointer.split("/")
    if "unknown" in detail:
        names = [
            field.encode_name
            for part in _parts(kind, path)
            if isinstance(part, StructType)
            for field in part.fields
        ]
        return suggest(name, names) or f"; possible are {', '.join(names) or 'none'}"
    if "enum value" in detail:
        values = [
            str(value)
            for part in _parts(kind, [*path, name])
            if isinstance(part, LiteralType)
            for value in part.values
        ]
        return f"; possible are {', '.join(sorted(values))}" if values else ""
    return ""


def _parts(kind: type[Struct], path: Sequence[str]) -> list[Type]:
    """The types that may stand at a path, which begins with an empty step."""
    found: list[Type] = _options(type_info(kind))
    for step in path[1:]:
        inner: list[Type] = []
        for part in found:
            match part:
                case StructType():
                    inner += [field.type for field in part.fields if field.encode_name == step]
                case ListType():
                    inner.append(part.item_type)
        found = [option for one in inner for option in _options(one)]
    return found


def _options(part: Type) -> list[Type]:
    return list(part.types) if isinstance(part, UnionType) else [part]


def _time_hint(value: str) -> str:
    if _time_without_plus.fullmatch(value):
        return "a plus in a query is a space: write it as %2B, or give the time in UTC with a Z at its end"
    return "give a time like 2026-01-31T12:00:00Z"
