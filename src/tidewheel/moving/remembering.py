"""How many jobs copies have put into a store, for the next one that goes there.

A job that is not in the target looks the same whether it never came or has run there and was pruned. The
second must not come again. So the target remembers how many were put into it, also after the copy is done.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidewheel.errors import WrongState
from tidewheel.model import JobFilter, NewDocument
from tidewheel.moving.marking import KIND
from tidewheel.stores.protocol import Store

NAME: Final = "placed"


class _Body(msgspec.Struct):
    jobs: int
    more: int
    """about to be written in one transaction; whether that was done, only the jobs tell"""


class Placed:
    """What is in the target. ``name`` is for people."""

    def __init__(self, target: Store, name: str) -> None:
        self._target, self._name = target, name
        self._jobs = 0

    async def look(self) -> int:
        """How many jobs are there. Refused where some that were put there are gone."""
        there = (await self._target.count(JobFilter(), beyond=True)).total
        document = await self._target.document(KIND, NAME)
        if document is not None:
            told = msgspec.json.decode(document.body, type=_Body)
            if there < told.jobs + told.more and there != told.jobs:
                raise WrongState(
                    f"jobs that an earlier copy put into {self._name} are gone: {told.jobs:,} or more were "
                    f"there, {there:,} are left. They have run or were deleted there, and a copy would bring "
                    "them back. Nothing was copied; begin again with a new store (another file, schema or "
                    "database)"
                )
        self._jobs = there
        return there

    async def expect(self, more: int) -> None:
        """So many will be written next."""
        body = msgspec.json.encode(_Body(self._jobs, more))
        await self._target.write_documents([NewDocument(KIND, NAME, body, None)])

    def add(self, written: int) -> None:
        """So many were written."""
        self._jobs += written
