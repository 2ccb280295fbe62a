"""The texts that travel with a job beside its payload: a JSON object in one column, each part with a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from windlass.errors import InvalidInput

MAX_HEADER_BYTES: Final = 4096
"""All of a job's headers together, encoded."""

SCHEDULE: Final = "schedule"
FIRE_TIME: Final = "fire_time"
"""Entries of a job that a schedule made: its name, and the moment the job is for."""

_decoder = msgspec.json.Decoder(dict[str, str])


def read(headers: str | None) -> dict[str, str]:
    """All entries. What is no object of texts, written by somebody else, counts as none."""
    if headers is None:
        return {}
    try:
        return _decoder.decode(headers)
    except (msgspec.DecodeError, ValueError):
        return {}


def write(entries: Mapping[str, str]) -> str | None:
    """As stored; None for none."""
    if not entries:
        return None
    encoded = msgspec.json.encode(entries)
    if len(encoded) > MAX_HEADER_BYTES:
        raise InvalidInput(
            f"the headers of a job are {len(encoded):,} bytes; the limit is {MAX_HEADER_BYTES:,}: "
            f"{', '.join(sorted(entries))[:200]}"
        )
    return encoded.decode()


def get(headers: str | None, name: str) -> str | None:
    """One entry."""
    return read(headers).get(name)


def set(headers: str | None, name: str, value: str) -> str | None:  # noqa: A001 - read as headers.set
    """The same headers with this entry."""
    return write({**read(headers), name: value})
