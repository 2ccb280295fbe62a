"""``download_file``: a file from the web, whole or not at all, however often it is interrupted.

What has arrived is in a draft beside the target, and how much of it counts in the job's checkpoint, which is
written after the draft was flushed. Whoever goes on asks for the rest (``Range``), and only for that of the
same file (``If-Range``): a server that has another one by now sends it from its beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Annotated, Any, Final, TypedDict

from msgspec import Meta

from tidewheel.builtin.download_transfer import DownloadCheckpoint, DownloadRequest, Transfer
from tidewheel.builtin.http_client import HttpAddress
from tidewheel.builtin.network_policy import NetworkPolicy
from tidewheel.builtin.partial_files import PartialFile, is_published, open_partial_file, run_uncancelled
from tidewheel.builtin.roots import FilePath, Roots, os_errors_as_task_errors
from tidewheel.builtin.task_group import BuiltinTask, TaskGroup
from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, TaskError
from tidewheel.tasks.annotations import ValueCheck
from tidewheel.tasks.context import Context

MAX_BYTES: Final = 10 * 2**30
IDLE_SECONDS: Final = 30.0


def _check_url(url: str) -> None:
    try:
        HttpAddress.parse(url)
    except TaskError as error:
        raise ValueError(str(error).removeprefix("url ")) from None


Url = Annotated[str, ValueCheck(_check_url)]
Size = Annotated[int, Meta(ge=0)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$")]
ChunkSize = Annotated[int, Meta(ge=4096, le=64 * 2**20)]


class DownloadOptions(TypedDict, total=False):
    """What may be said about downloads."""

    allowed_hosts: Collection[str]
    allowed_networks: Collection[str]
    max_download_bytes: int
    download_idle_seconds: float


@dataclass(frozen=True, slots=True)
class Downloaded:
    """What a download came to; ``duration_secs`` is the time spent on it in all runs together."""

    path: str
    bytes: int
    duration_secs: float


class Downloads:
    """The task, and what it was configured with."""

    def __init__(
        self,
        roots: Roots,
        policy: NetworkPolicy,
        *,
        max_bytes: int = MAX_BYTES,
        idle_seconds: float = IDLE_SECONDS,
        file_mode: int | None = None,
    ) -> None:
        self._roots = roots
        self._reach = policy
        self._max_bytes = max_bytes
        self._idle_seconds = idle_seconds
        self._mode = file_mode

    async def download_file(
        self,
        ctx: Context,
        url: Url,
        dest: FilePath,
        chunk_size: ChunkSize = 2**20,
        size: Size | None = None,
        sha256: Sha256 | None = None,
    ) -> Downloaded:
        """Fetch ``url`` into the file ``dest``, which is replaced once all of it is there.

        ``size`` and ``sha256`` are compared with what came; ``chunk_size`` is how many bytes are written at a
        time.
        """
        began = monotonic()
        where = HttpAddress.parse(url)
        self._reach.check_host(where.host)
        self._roots.locate(dest)
        checksum = sha256.lower() if sha256 is not None else None
        course = DownloadCheckpoint(**ctx.checkpoint.value) if ctx.checkpoint else DownloadCheckpoint()
        with os_errors_as_task_errors(dest):
            async with open_partial_file(self._roots, ctx, dest, course.draft, self._mode) as draft:
                if course.finished and await self._is_done(draft, course, dest, checksum):
                    seconds = course.seconds + monotonic() - began
                    return Downloaded(draft.path, course.bytes_downloaded, seconds)
                wanted = DownloadRequest(where, chunk_size, size, checksum, self._max_bytes)
                transfer = Transfer(ctx, draft, course, wanted, self._reach, self._idle_seconds)
                try:
                    course = await transfer.run()
                except TaskError as error:
                    if not error.retryable:
                        await run_uncancelled(draft.discard)
                    raise
                except asyncio.CancelledError:
                    if ctx.cancel_requested:  # nobody will go on with it
                        await run_uncancelled(draft.discard)
                    raise
                # Refused when this run has lost the job, and then nothing is put in place.
                await ctx.checkpoint(asdict(course))
                await run_uncancelled(draft.publish)
                return Downloaded(draft.path, course.bytes_downloaded, course.seconds)

    async def _is_done(
        self, draft: PartialFile, checkpoint: DownloadCheckpoint, dest: str, checksum: str | None
    ) -> bool:
        """Whether an earlier run had all of it, and died before it could put it in place or say so."""
        if draft.size == checkpoint.bytes_downloaded:
            await run_uncancelled(draft.publish)
            return True
        if await run_uncancelled(is_published, self._roots, dest, checkpoint.bytes_downloaded, checksum):
            await run_uncancelled(draft.discard)
            return True
        return False


def build(given: Mapping[str, Any], roots: Roots) -> Iterable[BuiltinTask]:
    """The task, where hosts are allowed and there is a root to write to."""
    hosts = given.get("allowed_hosts")
    if hosts is None:
        return
    if not roots:
        raise ConfigurationError("allowed_hosts is given, but there is no root to download to; give roots=")
    max_bytes = given.get("max_download_bytes", MAX_BYTES)
    if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 1:
        raise ConfigurationError(f"max_download_bytes is {shorten(max_bytes)}; give a number, 1 or more")
    idle = given.get("download_idle_seconds", IDLE_SECONDS)
    if isinstance(idle, bool) or not isinstance(idle, int | float) or not 0 < idle <= 3600:
        raise ConfigurationError(f"download_idle_seconds is {shorten(idle)}; 0 to 3,600 seconds are possible")
    reach = NetworkPolicy.from_options(hosts, given.get("allowed_networks", ()))
    downloads = Downloads(
        roots, reach, max_bytes=max_bytes, idle_seconds=idle, file_mode=given.get("file_mode")
    )
    yield BuiltinTask("download_file", downloads.download_file, {"max_attempts": 10, "timeout": 3600})


TASKS: Final = TaskGroup(("download_file",), build, "allowed_hosts and roots")
