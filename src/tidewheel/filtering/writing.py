"""Filters that programs write: values so that they mean themselves."""

from __future__ import annotations

import re

_plain = re.compile(r"[\w.-]+")


def written(field: str, value: str) -> str:
    """``field:value``, quoted where it has to be."""
    return f"{field}:{quoted(value)}"


def of_lane(topic: str, task: str | None, *states: str) -> str:
    """The jobs of a lane, or of a topic, that are in one of these states."""
    terms = [f"state:{','.join(states)}"] if states else []
    terms.append(written("topic", topic))
    if task is not None:
        terms.append(written("task", task))
    return " ".join(terms)


def quoted(text: str) -> str:
    if _plain.fullmatch(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
