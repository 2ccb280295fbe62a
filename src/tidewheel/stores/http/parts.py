"""Long lists as several requests: a server takes so many items, and so many bytes, at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec import Raw

from tidewheel.stores.http.client import LARGE_BYTES, encoded

MOST_ITEMS: Final = 1000
MOST_BYTES: Final = LARGE_BYTES - 1000
"""Of the items of one request, unless there is only one: a quarter of what servers take by default."""


def in_parts(name: str, items: Sequence[Any]) -> Iterator[tuple[int, bytes]]:
    """Bodies ``{name: [item, …]}`` with all items in order; with each how many it has."""
    part: list[Raw] = []
    size = 0
    for item in items:
        one = encoded(item)
        if part and (len(part) == MOST_ITEMS or size + len(one) > MOST_BYTES):
            yield len(part), encoded({name: part})
            part, size = [], 0
        part.append(Raw(one))
        size += len(one) + 1
    if part:
        yield len(part), encoded({name: part})
