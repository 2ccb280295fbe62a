"""The bytes of one download: connections, the pieces they bring, and how far they count."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from time import monotonic
from typing import Final

from tidewheel.builtin.http_client import (
    ConnectionInterrupted,
    HttpAddress,
    HttpRequest,
    HttpResponse,
    send_request,
)
from tidewheel.builtin.network_policy import ConnectionForbidden, NetworkPolicy
from tidewheel.builtin.partial_files import PartialFile, run_uncancelled
from tidewheel.core.names import shorten
from tidewheel.core.text_format import plural
from tidewheel.errors import RetryAfter, TaskError
from tidewheel.tasks.context import Context

MAX_REDIRECTS: Final = 5
MAX_CONNECTIONS: Final = 10_000
"""Of one run: a server that lets go after each byte would have us for ever."""
MAX_IDLE_CONNECTIONS: Final = 3
"""Connections in a row that may bring nothing new; then the job's retry policy decides when to go on."""
SAVE_BYTES: Final = 8 * 2**20
SAVE_SECONDS: Final = 1.0
"""After so many bytes or so long what has arrived is made to count: no more than that is fetched twice."""

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_TRANSIENT_STATUSES: Final = frozenset({408, 425, 429})
_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_UNSATISFIED_RANGE: Final = re.compile(r"bytes \*/(\d{1,18})")


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """What is to be fetched, and what it must be."""

    address: HttpAddress
    chunk_size: int
    size: int | None
    sha256: str | None
    max_bytes: int


@dataclass(frozen=True, slots=True)
class DownloadCheckpoint:
    """How far a download is: the job's checkpoint."""

    bytes_downloaded: int = 0
    total: int | None = None
    validator: str | None = None  # the server's name for this version of the file
    draft: str | None = None
    seconds: float = 0.0
    finished: bool = False  # all of it has been compared, and is about to be put in place


class Transfer:
    """One run of a download, from the first connection to the last byte."""

    def __init__(
        self,
        ctx: Context,
        draft: PartialFile,
        checkpoint: DownloadCheckpoint,
        wanted: DownloadRequest,
        policy: NetworkPolicy,
        idle_seconds: float,
    ) -> None:
        self._ctx = ctx
        self._draft = draft
        self._course = replace(checkpoint, draft=draft.name, finished=False)
        self._wanted = wanted
        self._reach = policy
        self._idle_seconds = idle_seconds
        self._began = monotonic() - checkpoint.seconds
        self._sha256 = hashlib.sha256()
        self._waiting = bytearray()
        self._saved_bytes = 0
        self._saved_at = monotonic()
        self._complete = False  # everything in the draft came over one connection
        self._end: int | None = None  # where the body that is being read has to end

    async def run(self) -> DownloadCheckpoint:
        """Fetch what is missing, and compare."""
        await self._resume()
        stalls, furthest = 0, self._draft.size
        for _ in range(MAX_CONNECTIONS):
            try:
                await self._connection()
                await self._verify()
            except ConnectionInterrupted as error:
                await self._store(save=True)
                # Not since the last connection, but ever: who starts over again and again gets nowhere.
                stalls = 0 if self._draft.size > furthest else stalls + 1
                furthest = max(furthest, self._draft.size)
                if stalls >= MAX_IDLE_CONNECTIONS:
                    raise
                self._ctx.logger.info("download goes on at byte %d: %s", self._draft.size, error)
                await asyncio.sleep(0.1 * 3 ** (stalls - 1) if stalls else 0)
            else:
                return self._checkpoint(finished=True)
        raise ConnectionInterrupted(f"{self._wanted.address} broke {plural(MAX_CONNECTIONS, 'connection')}")

    async def _resume(self) -> None:
        """What an earlier run made count, if it is there, and can be gone on with."""
        size = min(self._course.bytes_downloaded, self._draft.size)
        if size < self._course.bytes_downloaded or not self._can_resume:
            size = 0
        await run_uncancelled(self._draft.truncate, size)
        if size == 0:
            self._course = DownloadCheckpoint(draft=self._draft.name)
        elif self._wanted.sha256 is not None:
            self._sha256 = await run_uncancelled(self._draft.digest)
        self._saved_bytes = size
        # Whoever comes next finds the draft by it, also when this run ends before the first bytes count.
        await self._ctx.checkpoint(asdict(self._checkpoint()))

    @property
    def _can_resume(self) -> bool:
        """Whether it would be noticed that the rest is that of another file."""
        return self._course.validator is not None or self._wanted.sha256 is not None

    async def _start_over(self) -> None:
        if self._saved_bytes:
            # First: who is killed here must not leave the bytes of one file under the name of another.
            await self._ctx.checkpoint(
                asdict(DownloadCheckpoint(draft=self._draft.name, seconds=self._seconds))
            )
        await run_uncancelled(self._draft.truncate, 0)
        self._sha256 = hashlib.sha256()
        self._waiting.clear()
        self._course = DownloadCheckpoint(draft=self._draft.name)
        self._saved_bytes = 0

    # -- one connection -----------------------------------------------------------------------------------

    async def _connection(self) -> None:
        if self._draft.size and not self._can_resume:
            await self._start_over()
        offset = self._draft.size
        if offset and offset == self._course.total:
            return
        headers: dict[str, str] = {}
        if offset:
            headers["Range"] = f"bytes={offset}-"
            if self._course.validator is not None:
                headers["If-Range"] = self._course.validator
        async with self._answer(headers) as answer:
            if not await self._continues_at(answer, offset):
                return
            self._complete = offset == 0 or answer.status == 200
            async for block in answer.blocks():
                self._waiting += block
                size = self._draft.size + len(self._waiting)
                if size > self._wanted.max_bytes:
                    raise self._too_large(size)
                if self._end is not None and size > self._end:
                    await self._start_over()
                    raise ConnectionInterrupted(
                        f"{self._wanted.address} sent more than the piece it announced"
                    )
                if len(self._waiting) >= self._wanted.chunk_size or self._is_late or self._ctx.shutting_down:
                    await self._store()
            is_piece = answer.status == 206 or not answer.has_known_end
        await self._store()
        if is_piece and self._is_missing_some:
            raise ConnectionInterrupted(f"{self._wanted.address} sent a part of what is missing")

    @property
    def _is_late(self) -> bool:
        return monotonic() - self._saved_at >= SAVE_SECONDS

    @property
    def _is_missing_some(self) -> bool:
        """Whether more has to follow, though the server ended this in good order.

        A piece may be shorter than what was asked for, and a body without a length ends where the connection
        did. Where nobody said how long the whole is, another question for the rest tells.
        """
        wanted, size = self._wanted, self._draft.size
        if self._end is not None and size < self._end:
            return True
        total = self._course.total if self._course.total is not None else wanted.size
        if total is not None:
            return size < total
        return wanted.sha256 is None or self._sha256.hexdigest() != wanted.sha256

    @asynccontextmanager
    async def _answer(self, headers: Mapping[str, str]) -> AsyncIterator[HttpResponse]:
        where = self._wanted.address
        for _ in range(MAX_REDIRECTS + 1):
            request = HttpRequest(where, headers=headers)
            async with send_request(request, policy=self._reach, idle_seconds=self._idle_seconds) as answer:
                location = answer.headers.get("location")
                if answer.status not in _REDIRECTS or location is None:
                    yield answer
                    return
            secure, where = where.scheme == "https", where.resolve_redirect(location)
            if secure and where.scheme != "https":
                raise ConnectionForbidden(
                    f"{self._wanted.address} leads from https to {where}, which everybody can read"
                )
        raise TaskError(
            f"{self._wanted.address} leads on more than {MAX_REDIRECTS} times",
            code="too_many_redirects",
            retryable=False,
        )

    async def _continues_at(self, answer: HttpResponse, offset: int) -> bool:
        """Whether bytes follow that belong behind those we have, which are dropped where they do not."""
        if answer.status == 206 and offset:
            await self._check_range(answer, offset)
            return True
        if answer.status == 416 and offset:
            end = _UNSATISFIED_RANGE.fullmatch(answer.headers.get("content-range", ""))
            if end is not None and int(end[1]) == offset and self._course.total in (None, offset):
                return False  # there is nothing after what we have
            await self._start_over()
            raise ConnectionInterrupted(
                f"{self._wanted.address} has no byte {offset:,} any more; starting over"
            )
        if answer.status != 200:
            raise self._refused(answer)
        if offset:
            self._ctx.logger.info("the file at %s is sent from its beginning", self._wanted.address)
            await self._start_over()
        self._look_at_head(answer)
        return True

    async def _check_range(self, answer: HttpResponse, offset: int) -> None:
        given = answer.headers.get("content-range", "")
        found = _RANGE.fullmatch(given)
        total = int(found[3]) if found is not None and found[3] != "*" else None
        known, validator = self._course.total, self._course.validator
        # Whoever named the version names it again, or says nothing; a server may not know If-Range.
        name = "etag" if validator is not None and validator.startswith('"') else "last-modified"
        end = int(found[2]) + 1 if found is not None else 0
        same = (
            found is not None
            and int(found[1]) == offset < end
            and (total is None or end <= total)
            and (known is None or total is None or total == known)
            and (validator is None or answer.headers.get(name, validator) == validator)
        )
        if not same:
            await self._start_over()
            raise ConnectionInterrupted(
                f"{self._wanted.address} answered with {shorten(given)}, which is not the rest"
            )
        self._end = end
        if known is None and total is not None:
            self._course = replace(self._course, total=total)

    def _look_at_head(self, answer: HttpResponse) -> None:
        length = answer.headers.get("content-length", "")
        total = int(length) if length.isdecimal() and len(length) < 19 else None
        wanted = self._wanted
        if total is not None and total > wanted.max_bytes:
            raise self._too_large(total)
        if total is not None and wanted.size is not None and total != wanted.size:
            raise self._wrong_size(total)
        if not answer.has_known_end and wanted.size is None and wanted.sha256 is None:
            raise TaskError(
                f"{wanted.address} does not say how long the file is, so nobody would notice its end "
                "missing; "
                "give size or sha256",
                code="unknown_length",
                retryable=False,
            )
        self._end = total
        self._course = DownloadCheckpoint(
            total=total, validator=_validator_of(answer), draft=self._draft.name
        )

    def _refused(self, answer: HttpResponse) -> Exception:
        status, after = answer.status, answer.retry_after
        words = f"{self._wanted.address} answered HTTP {status}"
        passing = status >= 500 or status in _TRANSIENT_STATUSES
        if passing and after is not None:
            return RetryAfter(after, f"{words} and asks for patience")
        return TaskError(words, code="http_error", details={"status": status}, retryable=passing)

    # -- what has arrived ---------------------------------------------------------------------------------

    async def _store(self, *, save: bool = False) -> None:
        """Write what waits, and now and then make it count."""
        if self._waiting:
            data, self._waiting = bytes(self._waiting), bytearray()
            await run_uncancelled(self._write, data)
        size, leaving = self._draft.size, self._ctx.shutting_down
        due = size - self._saved_bytes >= SAVE_BYTES or self._is_late
        if size > self._saved_bytes and (save or due or leaving):
            await run_uncancelled(self._draft.flush)
            await self._ctx.checkpoint(asdict(self._checkpoint()))
            self._saved_bytes, self._saved_at = size, monotonic()
            total = self._course.total
            percent = min(100.0, 100 * size / total) if total else 0
            await self._ctx.progress(
                percent, f"{size / 1e6:,.1f} MB" + (f" of {total / 1e6:,.1f}" if total else "")
            )
        if leaving:
            self._ctx.release()

    def _write(self, data: bytes) -> None:
        self._draft.write(data)
        if self._wanted.sha256 is not None:
            self._sha256.update(data)

    @property
    def _seconds(self) -> float:
        return monotonic() - self._began

    def _checkpoint(self, *, finished: bool = False) -> DownloadCheckpoint:
        size, seconds = self._draft.size, self._seconds
        return replace(self._course, bytes_downloaded=size, seconds=seconds, finished=finished)

    async def _verify(self) -> None:
        """All bytes are there: are they the right ones?"""
        wanted, size = self._wanted, self._draft.size
        if wanted.size is not None and size != wanted.size:
            raise self._wrong_size(size)
        if wanted.sha256 is not None and self._sha256.hexdigest() != wanted.sha256:
            if not self._complete:
                await self._start_over()
                raise ConnectionInterrupted(
                    f"the pieces of {wanted.address} do not fit together; starting over"
                )
            raise TaskError(
                f"SHA-256 of {wanted.address} is {self._sha256.hexdigest()}, not {wanted.sha256}",
                code="checksum_mismatch",
                retryable=False,
            )
        await run_uncancelled(self._draft.flush)

    def _too_large(self, size: int) -> TaskError:
        return TaskError(
            f"{self._wanted.address} has {size:,} bytes or more; the limit is {self._wanted.max_bytes:,} "
            "(max_download_bytes)",
            code="too_large",
            retryable=False,
        )

    def _wrong_size(self, size: int) -> TaskError:
        return TaskError(
            f"{self._wanted.address} has {size:,} bytes, not {self._wanted.size:,}",
            code="size_mismatch",
            retryable=False,
        )


def _validator_of(answer: HttpResponse) -> str | None:
    """What names this version of a file, byte for byte: a strong tag, or a date that is old enough.

    Weak tags mean files that look the same. A file may change twice in the second that dates can tell.
    """
    etag = answer.headers.get("etag", "")
    if re.fullmatch(r'"[\x21\x23-\x7e]{0,500}"', etag):
        return etag
    modified, date = answer.headers.get("last-modified", ""), answer.headers.get("date", "")
    try:
        age = parsedate_to_datetime(date) - parsedate_to_datetime(modified)
    except (ValueError, TypeError):
        return None
    return modified if age.total_seconds() >= 1 and len(modified) < 100 else None
