"""Answers as JSON: the fields of the Python API, with times as ISO 8601."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from tidewheel.cli import words
from tidewheel.model import MinuteStats


def answer_json(value: Any) -> Any:
    """An answer, or anything it is made of."""
    if isinstance(value, MinuteStats):
        return {**_fields(value), "minute": words.moment(value.minute)}
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {key: answer_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [answer_json(item) for item in value]
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: answer_json(getattr(value, field.name)) for field in fields(value)}
