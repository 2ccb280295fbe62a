"""Keep requests within the size that the server accepts.

A server may close the connection on a request that is too large, which looks like an outage. A result larger
than ``max_request_bytes`` therefore fails its job at once. Long lists are split into requests of up to 1,000
items and just under 1 MiB, a quarter of what servers accept by default.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Raw, Struct

from tidewheel.core.model import Completed, Failed, JobError, Settlement
from tidewheel.stores.http.api_client import LARGE_BYTES, ApiClient, encode_json

ALWAYS_ACCEPTED_BYTES: Final = 65_536
"""Results of so many bytes, which is what apps keep by default, fit into what every server takes."""
ENVELOPE_BYTES: Final = 500
"""Bytes of a request around the result it tells, at most."""


class SizesShape(Struct):
    max_request_bytes: int


async def max_request_bytes(client: ApiClient) -> int:
    """In bytes."""
    return (await client.get("/time", SizesShape)).max_request_bytes


async def reject_large_results(client: ApiClient, settlements: Sequence[Settlement]) -> dict[int, Failed]:
    """How jobs end, by their places, whose results no request has room for: if they were run again, there
    would be another such result.
    """
    sizes = {place: _size(settlement) for place, settlement in enumerate(settlements)}
    if not sizes or max(sizes.values()) <= ALWAYS_ACCEPTED_BYTES:
        return {}
    limit = await max_request_bytes(client)
    return {place: _failed(size, limit) for place, size in sizes.items() if size + ENVELOPE_BYTES > limit}


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


MAX_ITEMS_PER_REQUEST: Final = 1000
MAX_BYTES_PER_REQUEST: Final = LARGE_BYTES - 1000
"""Of the items of one request, unless there is only one: a quarter of what servers take by default."""


def split_bodies(name: str, items: Sequence[Any]) -> Iterator[tuple[int, bytes]]:
    """Bodies ``{name: [item, …]}`` with all items in order; with each how many it has."""
    part: list[Raw] = []
    size = 0
    for item in items:
        one = encode_json(item)
        if part and (len(part) == MAX_ITEMS_PER_REQUEST or size + len(one) > MAX_BYTES_PER_REQUEST):
            yield len(part), encode_json({name: part})
            part, size = [], 0
        part.append(Raw(one))
        size += len(one) + 1
    if part:
        yield len(part), encode_json({name: part})
