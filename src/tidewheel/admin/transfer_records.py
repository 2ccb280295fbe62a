"""Records of copies in their target store: a mark during the copy, and a count of jobs written.

The mark allows one copy at a time, and none into its own source. It expires 20 seconds after its last
renewal. The count stays after the copy. A job missing from the target may never have been copied, or may have
run there and been pruned; the second must not be copied again. A target that has lost jobs is refused.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from typing import Final

import msgspec

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import JobFilter, NewDocument
from tidewheel.errors import ConfigurationError, StoreError, WrongState
from tidewheel.stores.protocol import Store

COPY_DOCUMENT_KIND: Final = "copy"
MARK_DOCUMENT_ID: Final = "target"
MARK_TTL_SECONDS: Final = 20
"""How long a mark stays that nobody renews."""
RENEW_SECONDS: Final = 5.0


class _MarkBody(msgspec.Struct):
    token: str
    source: str
    host: str
    pid: int


class CopyMark:
    """Ours, in the target. ``source`` is for people."""

    def __init__(self, target: Store, source: str) -> None:
        self._target = target
        self._body = _MarkBody(secrets.token_hex(16), source, socket.gethostname(), os.getpid())
        self._version = 0
        self._renewed = 0.0

    async def set(self, source: Store) -> None:
        """Set it. Refused where another copy is at work, or where it turns up in the source as well."""
        other = await self._read(self._target)
        if other is not None:
            document_version, body = other
            if not _has_ended(body):
                raise WrongState(
                    f"another copy into this store, from {body.source}, is under way (process {body.pid} on "
                    f"{body.host}); wait for it, or {MARK_TTL_SECONDS} s after its end if it was killed"
                )
            self._version = document_version
        await self._write()
        found = await self._read(source)
        if found is not None and found[1].token == self._body.token:
            await self.remove()
            raise ConfigurationError(
                "FROM and TO are the same store, under two names; nothing was copied, name another one"
            )

    async def renew(self) -> None:
        """Once in a while, as long as the copy goes on."""
        if asyncio.get_running_loop().time() - self._renewed >= RENEW_SECONDS:
            await self._write()

    async def remove(self) -> None:
        found = await self._read(self._target)
        if found is not None and found[1].token == self._body.token:
            await self._target.remove_document(COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID)

    async def _write(self) -> None:
        expires_at = await self._target.now() + MARK_TTL_SECONDS * MICROSECONDS
        body = msgspec.json.encode(self._body)
        for _ in range(2):
            [version] = await self._target.write_documents(
                [
                    NewDocument(
                        COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID, body, expires_at, expected_version=self._version
                    )
                ]
            )
            if version is not None:
                self._version = version
                self._renewed = asyncio.get_running_loop().time()
                return
            # Either ours, of a write whose answer was lost, or it expired in a process that was stopped: then
            # the next is the first.
            found = await self._read(self._target)
            if found is not None and found[1].token != self._body.token:
                break
            self._version = 0 if found is None else found[0]
        raise StoreError("another copy into this store has begun; this one stops")

    async def _read(self, store: Store) -> tuple[int, _MarkBody] | None:
        document = await store.document(COPY_DOCUMENT_KIND, MARK_DOCUMENT_ID)
        if document is None:
            return None
        return document.version, msgspec.json.decode(document.body, type=_MarkBody)


def _has_ended(body: _MarkBody) -> bool:
    """Whether a process of this machine has ended; of others only time tells."""
    if os.name != "posix" or body.host != socket.gethostname():
        return False
    try:
        os.kill(body.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return body.pid == os.getpid()  # a copy of this very process that did not come to its end


COUNT_DOCUMENT_ID: Final = "placed"


class _CountBody(msgspec.Struct):
    jobs: int
    more: int
    """about to be written in one transaction; whether that was done, only the jobs tell"""


class CopiedJobCount:
    """What is in the target. ``name`` is for people."""

    def __init__(self, target: Store, name: str) -> None:
        self._target, self._name = target, name
        self._jobs = 0

    async def check(self) -> int:
        """How many jobs are there. Refused where some that were put there are gone."""
        there = (await self._target.count(JobFilter(), exact=True)).total
        document = await self._target.document(COPY_DOCUMENT_KIND, COUNT_DOCUMENT_ID)
        if document is not None:
            told = msgspec.json.decode(document.body, type=_CountBody)
            if there < told.jobs + told.more and there != told.jobs:
                raise WrongState(
                    f"jobs that an earlier copy put into {self._name} are gone: {told.jobs:,} or more were "
                    f"there, {there:,} are left. They have run or were deleted there, and a copy would bring "
                    "them back. Nothing was copied; begin again with a new store (another file, schema or "
                    "database)"
                )
        self._jobs = there
        return there

    async def announce(self, more: int) -> None:
        """So many will be written next."""
        body = msgspec.json.encode(_CountBody(self._jobs, more))
        await self._target.write_documents([NewDocument(COPY_DOCUMENT_KIND, COUNT_DOCUMENT_ID, body, None)])

    def add(self, written: int) -> None:
        """So many were written."""
        self._jobs += written
