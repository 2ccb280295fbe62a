"""Normalize the answers of different stores, and describe the first difference between two.

Numbers and fences only promise to grow, and cursors are private to a store. So each is replaced by its rank:
the first number handed out is 1 on every store. Only the first difference is reported, because a page of jobs
is too long to read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import structs

from tidewheel.core.model import Claim, Claimed, Enqueued, JobRecord, Lease, Page


class RankedValues:
    """Values that must grow, and their ranks."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._ranks: dict[int, int] = {0: 0}
        self._values: list[int] = [0]
        self._greatest = 0

    def record(self, values: Sequence[int]) -> None:
        """Values handed out together: all greater than those before; among themselves in any order."""
        new = [value for value in values if value not in self._ranks]
        if not new:
            return
        assert min(new) > self._greatest, f"{self._what} {min(new)} after {self._greatest}"
        assert len(set(new)) == len(new), f"{self._what} given twice: {new}"
        for value in new:
            self._ranks[value] = len(self._values)
            self._values.append(value)
        self._greatest = max(new)

    def rank(self, value: int) -> int:
        """Of a value seen before, or the next rank for a new one, which must be the greatest so far."""
        self.record([value])
        return self._ranks[value]

    def value(self, rank: int) -> int:
        """What this store calls it; one it never gave for a rank that was never given."""
        return self._values[rank] if rank < len(self._values) else self._greatest + rank


class AnswerTranslator:
    """Between one store and the common words."""

    def __init__(self) -> None:
        self._numbers = RankedValues("number")
        self._fences = RankedValues("fence")
        self.cursor: int | None = None  # of the last page, for the next one

    def lease(self, common: Lease) -> Lease:
        """A lease as this store gave it."""
        return Lease(common.job_id, self._fences.value(common.fence))

    def number(self, rank: int) -> int:
        """A number as this store gave it."""
        return self._numbers.value(rank)

    def answer(self, answer: Any) -> Any:
        """An answer of this store, comparable with those of others."""
        match answer:
            case list() | tuple():
                return [self.answer(item) for item in answer]
            case Lease():
                return Lease(answer.job_id, self._fences.rank(answer.fence))
            case Enqueued():
                return structs.replace(answer, number=self._numbers.rank(answer.number))
            case Claim():
                self._fences.record([job.lease.fence for job in answer.jobs])
                return structs.replace(answer, jobs=tuple(self.answer(job) for job in answer.jobs))
            case Claimed():
                number = self._numbers.rank(answer.number)
                return structs.replace(answer, lease=self.answer(answer.lease), number=number)
            case JobRecord():
                number = self._numbers.rank(answer.number)
                return structs.replace(answer, number=number, fence=self._fences.rank(answer.fence))
            case Page():
                self.cursor = answer.cursor
                further = None if answer.cursor is None else 1
                return replace(answer, items=tuple(map(self.answer, answer.items)), cursor=further)
            case _:
                return answer


def describe_difference(one: Any, other: Any, where: str = "") -> str:
    """In words: the first place at which they differ, and what each says there."""
    if type(one) is type(other):
        for field in _fields(one):
            if getattr(one, field) != getattr(other, field):
                return describe_difference(getattr(one, field), getattr(other, field), f"{where}.{field}")
    if isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
        for index, (item, counterpart) in enumerate(zip(one, other, strict=True)):
            if item != counterpart:
                return describe_difference(item, counterpart, f"{where}[{index}]")
    return f"differ{where and f' in {where}'}: {one!r} and {other!r}"


def _fields(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(value)) if dataclasses.is_dataclass(value) else ()
