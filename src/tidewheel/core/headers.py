"""Texts that travel with a job: context variables, the context of a trace. One JSON object in the store."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

from tidewheel.core.names import shorten
from tidewheel.errors import InvalidInput, LimitExceeded

MAX_HEADERS_BYTES: Final = 4096
"""Headers of one job, as JSON."""

SCHEDULE_HEADER: Final = "schedule"
FIRE_TIME_HEADER: Final = "fire_time"
"""Entries of a job that a schedule made: its name, and the moment the job is for."""

_decoder: Final = msgspec.json.Decoder(dict[str, str])
_encoder: Final = msgspec.json.Encoder(order="sorted")


def read_headers(headers: str | None) -> dict[str, str]:
    """The texts of a job; empty where there are none, or where what is stored is no object of texts.

    That was written by other means than these, and a job must not fail for what only travels along.
    """
    if headers is None:
        return {}
    try:
        return _decoder.decode(headers)
    except msgspec.MsgspecError:
        return {}


def write_headers(entries: Mapping[str, str]) -> str | None:
    """As a store keeps them; None where there are none. ``InvalidInput`` when they cannot be kept."""
    if not entries:
        return None
    for name, value in entries.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput(
                f"header {shorten(name)} has a value of type {type(value).__name__}; names and values are "
                "texts"
            )
        if "\0" in name or "\0" in value:
            raise InvalidInput(
                f"header {shorten(name)} has a NUL character, which no store can keep; leave it out"
            )
    try:
        body = _encoder.encode(dict(entries))
    except UnicodeEncodeError as error:
        raise InvalidInput(f"headers have a character that is no text: {error.reason}") from None
    if len(body) > MAX_HEADERS_BYTES:
        longest = max(entries, key=lambda name: len(entries[name]))
        raise LimitExceeded(
            f"headers are {len(body):,} bytes of JSON; the limit is {MAX_HEADERS_BYTES:,}. "
            f"The longest is {shorten(longest)} with {len(entries[longest]):,} characters: carry an id "
            "instead of what it stands for"
        )
    return body.decode()


def fire_time(entries: Mapping[str, str]) -> datetime | None:
    """The moment in UTC that a job of a schedule is for; None for others, or if somebody else wrote it."""
    try:
        moment = datetime.fromisoformat(entries[FIRE_TIME_HEADER])
    except (KeyError, ValueError):
        return None
    return None if moment.tzinfo is None else moment.astimezone(UTC)
