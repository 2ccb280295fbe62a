"""All jobs of a list."""

from __future__ import annotations

from uuid import UUID

from tidewheel.core.model import JobFilter
from tidewheel.stores.protocol import Store


async def ids_of(store: Store, where: JobFilter, limit: int = 1000) -> list[UUID]:
    """All jobs of a filter, page by page."""
    found: list[UUID] = []
    cursor = None
    while True:
        page = await store.list_jobs(where, limit=limit, cursor=cursor)
        found += [item.id for item in page.items]
        if page.cursor is None:
            return found
        assert len(page.items) == limit
        cursor = page.cursor
