"""Job filters: select the jobs of a list, a count or a bulk action.

The filter language (``state:failed topic:mail payload.user_id:42 error:"timed out" age>1h``) is the same in
Python, on the command line, over HTTP and in the web UI. A filter becomes a condition, and
:mod:`tidewheel.core.filter_pushdown` finds the parts of it that indexes serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypedDict

from tidewheel.admin.filters.fields import FIELDS, FilterCompiler, FilterField
from tidewheel.admin.filters.parser import MAX_DEPTH, MAX_LENGTH, MAX_TERMS, FilterParser
from tidewheel.admin.filters.syntax import Node
from tidewheel.core.conditions import ALWAYS, Condition, all_of
from tidewheel.core.filter_pushdown import push_down
from tidewheel.core.model import DerivedState, JobFilter, State
from tidewheel.core.names import check_any_topic, check_task_name, check_text, shorten, suggest
from tidewheel.core.security_context import effective_tenant, row_filter
from tidewheel.core.validation import check_time
from tidewheel.errors import InvalidInput

MAX_SEARCH_LENGTH: Final = 1000
"""Longest text to search for, and longest key to filter by."""


class JobFilters(TypedDict, total=False):
    """Conditions on jobs; all given ones must hold. None is no condition."""

    topic: str | None
    task: str | None
    state: str | None
    tenant: str | None
    key: str | None
    correlation_id: str | None
    created_after: datetime | None
    created_before: datetime | None
    text: str | None
    where: str | None


def check_filter(given: Mapping[str, Any], *, now: int, uuids: bool = False) -> JobFilter:
    """The filter a store understands, every value checked, narrowed to what the code at hand may see.

    ``now``: what relative times in ``where`` count from.
    """
    condition = row_filter() or ALWAYS
    checked: dict[str, Any] = {"tenant": effective_tenant(given.get("tenant"), uuids=uuids)}
    for name, value in given.items():
        if name not in JobFilters.__annotations__:
            names = sorted(JobFilters.__annotations__)
            raise InvalidInput(
                f"{shorten(name)} is no filter{suggest(name, names)}; the filters are {', '.join(names)}"
            )
        if value is None:
            continue
        match name:
            case "topic":
                checked[name] = check_any_topic(value)
            case "task":
                # Jobs enqueued by a bare name have the empty task; they can be asked for.
                checked[name] = value if value == "" else check_task_name(value)
            case "state":
                checked[name] = check_state(value)
            case "tenant":
                pass  # told above, with the one in force
            case "where":
                condition = all_of(parse_filter(value, now=now, uuids=uuids).condition, condition)
            case "created_after" | "created_before":
                checked[name] = check_time(name, value)
            case _:
                checked[name] = check_text(name, value, MAX_SEARCH_LENGTH)
    return push_down(JobFilter(**checked), condition)


def explain_times(given: Mapping[str, Any], *, now: int, uuids: bool = False) -> list[tuple[str, str]]:
    """Return each comparison of a time in a filter, with the moment it means in words.

    For example ``("finished>1h", "finished before 2026-11-18 14:03:05 UTC (more than 1h ago)")``.
    """
    told: list[tuple[str, str]] = []
    for name, relation in (("created_after", "at or after"), ("created_before", "before")):
        if (moment := given.get(name)) is not None:
            told.append((name, f"created {relation} {moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"))
    if (where := given.get("where")) is not None:
        told += parse_filter(where, now=now, uuids=uuids).time_explanations
    return told


def check_state(value: Any) -> State | DerivedState:
    """A state to filter by: a stored one, or one of the derived ones."""
    for states in (State, DerivedState):
        try:
            return states(value)
        except ValueError:
            continue
    known = [*State, *DerivedState]
    hint = suggest(value, known) if isinstance(value, str) else ""
    raise InvalidInput(f"state is {shorten(value)}{hint}; the states are {', '.join(known)}")


__all__ = [
    "MAX_DEPTH",
    "MAX_LENGTH",
    "MAX_TERMS",
    "FilterField",
    "ParsedFilter",
    "describe_fields",
    "parse_filter",
]


@dataclass(frozen=True, slots=True)
class ParsedFilter:
    """A filter that was read. ``str()`` writes it the way everybody would."""

    node: Node | None
    condition: Condition
    time_explanations: tuple[tuple[str, str], ...] = ()
    """each comparison of a time as it was written, and in words with the moment it means"""

    def __str__(self) -> str:
        return "" if self.node is None else str(self.node)


def parse_filter(query: Any, *, now: int, uuids: bool = False) -> ParsedFilter:
    """What a filter asks of jobs; ``InvalidFilter`` says at which character it cannot be read.

    ``now``: microseconds, what relative times count from. ``uuids``: the setting ``tenant_uuids``.
    """
    if not isinstance(query, str):
        raise InvalidInput(
            f"where is {shorten(query)} ({type(query).__name__}); give a text like state:failed"
        )
    node = FilterParser(query).parse()
    meaning = FilterCompiler(query, now, uuids=uuids)
    condition = ALWAYS if node is None else meaning.compile(node)
    return ParsedFilter(node, condition, tuple(meaning.time_explanations))


def describe_fields() -> tuple[FilterField, ...]:
    """Every field there is, for help and completion."""
    return FIELDS
