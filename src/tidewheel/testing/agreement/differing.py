"""Where two answers differ, for whoever has to find out why: a page of jobs is too long to read."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


def difference(one: Any, other: Any, where: str = "") -> str:
    """In words: the first place at which they differ, and what each says there."""
    if type(one) is type(other):
        for field in _fields(one):
            if getattr(one, field) != getattr(other, field):
                return difference(getattr(one, field), getattr(other, field), f"{where}.{field}")
    if isinstance(one, list | tuple) and type(one) is type(other) and len(one) == len(other):
        for index, (item, counterpart) in enumerate(zip(one, other, strict=True)):
            if item != counterpart:
                return difference(item, counterpart, f"{where}[{index}]")
    return f"differ{where and f' in {where}'}: {one!r} and {other!r}"


def _fields(value: Any) -> tuple[str, ...]:
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(value)) if dataclasses.is_dataclass(value) else ()
