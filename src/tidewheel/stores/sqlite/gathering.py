"""Looks at single jobs, many callers' at once.

A look takes some microseconds; handing it to a thread and its answer back takes many times as long, and more
so while other threads want the interpreter. So whoever asks while a look is under way waits for the next one,
and shares it. A caller that is alone is served at once.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from tidewheel.model import JobRecord
from tidewheel.stores.sqlite import reading
from tidewheel.stores.sqlite.reader import Reader

MOST_TOGETHER: Final = 100
"""Jobs of one look: the first of them waits for the last."""


class _Wanted(NamedTuple):
    job_id: UUID
    tenant: str | None
    answer: asyncio.Future[JobRecord | None]


class Gathering:
    """For one event loop."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._waiting: list[_Wanted] = []
        self._looking: asyncio.Task[None] | None = None

    async def get(self, job_id: UUID, tenant: str | None) -> JobRecord | None:
        answer: asyncio.Future[JobRecord | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Wanted(job_id, tenant, answer))
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return await answer

    async def _look(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
                wanted = [one for one in asked if not one.answer.done()]  # others were given up
                if not await self._answer(wanted) and len(wanted) > 1:
                    # What is wrong may be wrong with one of them; the others are not to suffer for it.
                    for one in wanted:
                        await self._answer([one])
        finally:
            self._looking = None

    async def _answer(self, wanted: Sequence[_Wanted]) -> bool:
        """Whether all of them have one; a single caller gets the error as its answer."""

        def look(connection: sqlite3.Connection) -> list[JobRecord | None]:
            return [reading.get(connection, one.job_id, one.tenant) for one in wanted]

        try:
            records = await self._reader.run(look)
        except Exception as error:
            if len(wanted) == 1 and not wanted[0].answer.done():
                wanted[0].answer.set_exception(error)
            return False
        for one, record in zip(wanted, records, strict=True):
            if not one.answer.done():
                one.answer.set_result(record)
        return True
