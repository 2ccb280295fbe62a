"""How large a request may be, as the server says: what is larger is better not sent at all.

Whoever is sent more than it takes may hang up, and that looks like a server that is away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tidewheel.model import JobError, Settlement
from tidewheel.outcome import Completed, Failed
from tidewheel.stores.http.client import Client

SMALL: Final = 65_536
"""Results of so many bytes, which is what apps keep by default, fit into what every server takes."""
AROUND: Final = 500
"""Bytes of a request around the result it tells, at most."""


class SizesShape(Struct):
    max_request_bytes: int


async def largest_request(client: Client) -> int:
    """In bytes."""
    return (await client.get("/time", SizesShape)).max_request_bytes


async def too_large(client: Client, settlements: Sequence[Settlement]) -> dict[int, Failed]:
    """How jobs end, by their places, whose results no request has room for: if they were run again, there
    would be another such result.
    """
    sizes = {place: _size(settlement) for place, settlement in enumerate(settlements)}
    if not sizes or max(sizes.values()) <= SMALL:
        return {}
    limit = await largest_request(client)
    return {place: _failed(size, limit) for place, size in sizes.items() if size + AROUND > limit}


def _size(settlement: Settlement) -> int:
    match settlement.outcome:
        case Completed(result) if result is not None:
            return len(result)
        case _:
            return 0


def _failed(size: int, limit: int) -> Failed:
    return invalid_result(
        f"the result is {size:,} bytes; the server takes requests of {limit:,} (max_request_bytes); return "
        "less, or keep it elsewhere and return where it is"
    )


def invalid_result(message: str) -> Failed:
    """How a job ends whose result cannot be kept."""
    return Failed(JobError("invalid_result", message, retryable=False))
