"""Two stores side by side, job by job, newest first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from tidewheel.stores.protocol import Store
from tidewheel.whole import WholeJob

PAGE: Final = 500
"""Jobs read, and written, at a time."""

Pair = tuple[WholeJob | None, WholeJob | None]
"""The job of a number here and there; None where there is none."""


async def walk(store: Store) -> AsyncGenerator[list[WholeJob], None]:
    """All jobs, a page at a time. The next page is read while one is looked at."""
    page = await store.whole_jobs(limit=PAGE)
    while page:
        further = asyncio.ensure_future(store.whole_jobs(limit=PAGE, before=page[-1].record.number))
        try:
            yield page
            page = await further
        finally:
            if not further.cancel() and not further.cancelled():
                further.exception()  # whoever left has an error of its own; this one is told to nobody


async def side_by_side(source: Store, target: Store | None) -> AsyncGenerator[list[Pair], None]:
    """The jobs of both, a page of the source at a time; without a target, those of the source alone.

    A page of the source brings what the target has down to its last number, in several parts where that is
    much. What the target has below all of the source comes last.
    """
    theirs = _Ahead(target)
    async with aclosing(theirs), aclosing(walk(source)) as pages:
        async for page in pages:
            pairs: list[Pair] = []
            for job in page:
                while others := await theirs.above(job.record.number, PAGE):
                    pairs += [(None, other) for other in others]
                    if len(pairs) >= 2 * PAGE:
                        yield pairs
                        pairs = []
                pairs.append((job, await theirs.at(job.record.number)))
            yield pairs
        while rest := await theirs.above(-1, PAGE):
            yield [(None, other) for other in rest]


class _Ahead:
    """The jobs of a store one after the other, with a look at the next."""

    def __init__(self, store: Store | None) -> None:
        self._pages = walk(store) if store is not None else None
        self._page: list[WholeJob] = []
        self._place = 0

    async def aclose(self) -> None:
        if self._pages is not None:
            await self._pages.aclose()

    async def _next(self) -> WholeJob | None:
        if self._place == len(self._page):
            if self._pages is None:
                return None
            self._page, self._place = await anext(self._pages, []), 0
            if not self._page:
                self._pages = None
                return None
        return self._page[self._place]

    async def above(self, number: int, limit: int) -> list[WholeJob]:
        """Take those with a higher number, at most so many."""
        found: list[WholeJob] = []
        while len(found) < limit:
            job = await self._next()
            if job is None or job.record.number <= number:
                break
            found.append(job)
            self._place += 1
        return found

    async def at(self, number: int) -> WholeJob | None:
        """Take the one with this number, where it is the next."""
        job = await self._next()
        if job is None or job.record.number != number:
            return None
        self._place += 1
        return job
