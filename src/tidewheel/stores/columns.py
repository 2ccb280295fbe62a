"""New jobs turned on their side, for stores that write many of them with one statement.

Jobs that are written together have most of their values in common: encoding or binding those for every job
costs more than writing the rest of it. A column therefore has one value a job, or a single one that all jobs
share.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from tidewheel.clock import seconds_to_microseconds
from tidewheel.model import NewJob

Column = Sequence[Any]

_names = NewJob.__struct_fields__


def columns_of(jobs: Sequence[NewJob]) -> dict[str, Column]:
    """The fields of these jobs, at least one, by name."""
    if len(jobs) == 1:
        return dict(zip(_names, zip(astuple(jobs[0]), strict=True), strict=True))
    ids, *others = zip(*map(astuple, jobs), strict=True)  # ids never have anything in common
    return dict(zip(_names, [ids, *map(shared, others)], strict=True))


def shared(column: Column) -> Column:
    """The column with a single value, if that is the value of every job."""
    return column[:1] if column.count(column[0]) == len(column) else column


def microseconds(seconds: Column) -> Column:
    """A column of seconds as whole microseconds."""
    return [*map(_microseconds, seconds)]


def spread(column: Column, number: int) -> Column:
    """A value for each of so many jobs."""
    return list(column) * number if len(column) == 1 else column


@functools.lru_cache(1000)
def _microseconds(seconds: float | None) -> int | None:
    return None if seconds is None else seconds_to_microseconds(seconds)
