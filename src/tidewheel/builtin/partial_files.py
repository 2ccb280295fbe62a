"""Partial files: drafts under hidden names beside their targets until they are complete.

A draft outlives the run that began it: the next run of its job takes it over once no process writes to it any
more. Its name contains the job's id and the fence of the run, so that a run that lost its job, and has not
noticed yet, cannot publish the draft of its successor. If the job has no next run, because it was cancelled
or its attempts were used up, the hidden file stays until it is deleted by hand; ``tidewheel doctor`` lists
such files.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from types import ModuleType
from typing import Final, ParamSpec, Self, TypeVar
from uuid import UUID

from tidewheel.builtin.directories import flush
from tidewheel.builtin.file_reconciliation import Leftover
from tidewheel.builtin.roots import FileLocation, Roots
from tidewheel.errors import TaskError
from tidewheel.tasks.context import Context

HIDDEN_NAME_PATTERN: Final = re.compile(
    r"\.tidewheel-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-\d{1,20}\.(?:tmp|part)"
)


def hidden_name(job_id: UUID, fence: int, kind: str) -> str:
    """Of the run of this job with this fence; no two runs have the same."""
    return f".tidewheel-{job_id}-{fence}.{kind}"


def find_leftovers(roots: Sequence[str], most: int) -> tuple[list[Leftover], bool]:
    """Hidden files beneath these directories; False when there are more names than ``most``, the rest unread.

    Only names are read, links are not followed, and what cannot be read is passed over. Blocks.
    """
    found: dict[str, Leftover] = {}
    waiting = [os.path.realpath(root) for root in roots]
    seen = set(waiting)
    left = most
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if left == 0:
                        return list(found.values()), False
                    left -= 1
                    if (name := HIDDEN_NAME_PATTERN.fullmatch(entry.name)) is not None:
                        if entry.is_file(follow_symlinks=False):
                            size = entry.stat(follow_symlinks=False).st_size
                            found[entry.path] = Leftover(entry.path, UUID(name[1]), size)
                    elif entry.is_dir(follow_symlinks=False) and entry.path not in seen:
                        seen.add(entry.path)
                        waiting.append(entry.path)
        except OSError:
            continue
    return list(found.values()), True


fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

P = ParamSpec("P")
R = TypeVar("R")

BLOCK_BYTES: Final = 2**20


async def run_uncancelled(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call it on a thread, and wait for it even when cancelled: it may use a file that is closed after it."""
    thread = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        while not thread.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([thread])
        if not thread.cancelled():
            thread.exception()  # looked at: the cancellation is what counts
        raise


class PartialFile:
    """One such file, open at its end. Its calls block, so they belong on a thread
    (:func:`run_uncancelled`).
    """

    def __init__(self, location: FileLocation, name: str, descriptor: int, mode: int | None = None) -> None:
        self._place = location
        self._descriptor = descriptor
        self._mode = mode
        self.name = name
        self.size = os.fstat(descriptor).st_size

    @property
    def path(self) -> str:
        """Of its target, for people."""
        return self._place.path

    @classmethod
    def open(cls, location: FileLocation, ctx: Context, earlier: str | None, mode: int | None) -> Self:
        """The draft of an earlier run, or an empty one; without ``mode`` the umask decides about that."""
        location.directory.stat_file(location.name)  # a directory or a device there is not for us to replace
        name = hidden_name(ctx.job.id, ctx.fence, "part")
        descriptor = None
        if earlier is not None and HIDDEN_NAME_PATTERN.fullmatch(earlier) and str(ctx.job.id) in earlier:
            found = earlier if location.directory.lstat(earlier) is not None else _renamed(location, ctx)
            descriptor = _take_over(location, found, name) if found is not None else None
        if descriptor is None:
            # Ours to read and to write until it is whole, whatever its mode is to be: the next run has to.
            descriptor = location.directory.create(name, None if mode is None else mode | 0o600)
            _lock(descriptor)
        return cls(location, name, descriptor, mode)

    def truncate(self, size: int) -> None:
        """Forget what comes after the first ``size`` bytes."""
        os.ftruncate(self._descriptor, size)
        os.lseek(self._descriptor, 0, os.SEEK_END)
        self.size = size

    def write(self, data: bytes) -> None:
        """Add to its end."""
        rest = memoryview(data)
        while rest:
            written = os.write(self._descriptor, rest)
            self.size += written
            rest = rest[written:]

    def digest(self) -> hashlib._Hash:
        """SHA-256 of all that is in it, ready to go on."""
        sha256 = hashlib.sha256()
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while block := os.read(self._descriptor, BLOCK_BYTES):
            sha256.update(block)
        return sha256

    def flush(self) -> None:
        """Have what was written survive a power cut."""
        flush(self._descriptor)

    def publish(self) -> None:
        """Put it in the place of its target, in one moment. It has been flushed, and its run has its job."""
        self._place.directory.stat_file(self._place.name)  # again: much time has passed
        if self._mode is not None and hasattr(os, "fchmod"):
            os.fchmod(self._descriptor, self._mode)  # whatever the umask took away
        self._place.directory.replace(self.name, self._place.name)
        self._place.directory.sync()

    def discard(self) -> None:
        """Remove it."""
        self._place.directory.remove(self.name)

    def close(self) -> None:
        """Let go of it; the next run may have it."""
        os.close(self._descriptor)


def _renamed(location: FileLocation, ctx: Context) -> str | None:
    """A draft of this job under another name than the checkpoint has.

    A run that took it over was killed before it could say so. This reads the whole directory, and is seldom.
    """
    prefix = f".tidewheel-{ctx.job.id}-"
    names = [
        name
        for name in location.directory.names()
        if name.startswith(prefix) and name.endswith(".part") and HIDDEN_NAME_PATTERN.fullmatch(name)
    ]
    return max(names, key=lambda name: int(name[len(prefix) : -len(".part")]), default=None)


def _take_over(location: FileLocation, earlier: str, name: str) -> int | None:
    """An earlier run's draft under our name; None when there is none, or somebody still writes to it."""
    directory = location.directory
    try:
        descriptor = directory.open_to_append(earlier)
    except (FileNotFoundError, TaskError):
        return None
    except PermissionError:
        # Killed while it was put in place, with a mode that lets nobody write: it is fetched again.
        directory.remove(earlier)
        return None
    try:
        if not _lock(descriptor):
            # A run that lost the job is still at it: it may finish in the nameless file, and harm nobody.
            directory.remove(earlier)
            os.close(descriptor)
            return None
        directory.replace(earlier, name)
    except FileNotFoundError:  # it has just been put in place
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int) -> bool:
    """Claim a file for as long as it is open here. It ends with the process, whatever ends that."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: the checkpoint alone has to do
    return True


@asynccontextmanager
async def open_partial_file(
    roots: Roots, ctx: Context, path: str, earlier: str | None, mode: int | None
) -> AsyncIterator[PartialFile]:
    """A draft for the file at ``path``, closed in the end."""
    opened = _opened(roots, ctx, path, earlier, mode)
    try:  # entering is inside: who is cancelled meanwhile has opened it all the same
        yield await run_uncancelled(opened.__enter__)
    finally:
        await run_uncancelled(opened.__exit__, None, None, None)


@contextmanager
def _opened(
    roots: Roots, ctx: Context, path: str, earlier: str | None, mode: int | None
) -> Iterator[PartialFile]:
    with roots.open_location(path, create=True) as place:
        draft = PartialFile.open(place, ctx, earlier, mode)
        try:
            yield draft
        finally:
            draft.close()


def is_published(roots: Roots, path: str, size: int, sha256: str | None) -> bool:
    """Whether this very file is there already. Blocks."""
    try:
        with roots.open_location(path) as place:
            descriptor = place.directory.open_to_read(place.name)
            try:
                found = PartialFile(place, place.name, descriptor)
                return found.size == size and sha256 in (None, found.digest().hexdigest())
            finally:
                os.close(descriptor)
    except FileNotFoundError:
        return False
