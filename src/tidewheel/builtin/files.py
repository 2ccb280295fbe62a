"""``create_file`` and ``delete_file``: files that are there whole or not at all, as often as it is tried."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypedDict

from tidewheel.builtin.directories import Directory, flush
from tidewheel.builtin.file_reconciliation import FileContent, Leftover
from tidewheel.builtin.partial_files import find_leftovers, hidden_name
from tidewheel.builtin.roots import FileLocation, FilePath, Roots, os_errors_as_task_errors
from tidewheel.builtin.task_group import BuiltinTask, TaskGroup
from tidewheel.core.names import shorten
from tidewheel.core.validation import check_integer
from tidewheel.errors import ConfigurationError, InvalidInput, TaskError
from tidewheel.tasks.annotations import Alias
from tidewheel.tasks.context import Context

MAX_FILE_BYTES: Final = 16 * 2**20
MAX_FILE_BYTES_ALLOWED: Final = 2**30
MAX_FENCES: Final = 20
"""How many runs of a job are remembered for what they may have left."""
_CHUNK: Final = 2**20


class FileOptions(TypedDict, total=False):
    """What may be said about files."""

    file_mode: int | None
    max_file_bytes: int


@dataclass(frozen=True, slots=True)
class FileCreated:
    """What ``create_file`` did: ``written`` is False when the file was there with this content."""

    path: str
    bytes: int
    written: bool


@dataclass(frozen=True, slots=True)
class FileDeleted:
    """What ``delete_file`` did: ``deleted`` is False when there was nothing to delete."""

    path: str
    deleted: bool


class FileTasks:
    """The two tasks, with what was configured for them."""

    def __init__(
        self, roots: Roots, file_mode: int | None = None, max_file_bytes: int = MAX_FILE_BYTES
    ) -> None:
        self.roots = roots
        self._mode = file_mode
        self._limit = max_file_bytes

    def create_file(self, ctx: Context, path: FilePath, content: str, overwrite: bool = False) -> FileCreated:
        """Write a file beneath a root, whole or not at all; the same content there already is success."""
        data = content.encode()
        if len(data) > self._limit:
            raise TaskError(
                f"the content is {len(data):,} bytes; the limit is {self._limit:,} (max_file_bytes)",
                code="file_too_large",
                retryable=False,
            )
        with os_errors_as_task_errors(path), self.roots.open_location(path, create=True) as place:
            written = _write_at(ctx, place, data, overwrite=overwrite, mode=self._mode)
            return FileCreated(place.path, len(data), written)

    def delete_file(
        self,
        ctx: Context,
        path: FilePath,
        require_exists: Annotated[bool, Alias("requireExists")] = False,
    ) -> FileDeleted:
        """Remove a file beneath a root; a missing one is an error only with ``require_exists``."""
        deleted = _delete(ctx, self.roots, path, noted=require_exists)
        shown = self.roots.display_path(path)
        # An earlier run that was killed after its work wrote this down before it.
        if not deleted and require_exists and not ctx.checkpoint.get("found"):
            raise TaskError(
                f"{shown} does not exist, and require_exists is set", code="file_not_found", retryable=False
            )
        return FileDeleted(shown, deleted)

    def describe_mismatch(self, path: str, wanted: FileContent | None) -> str | None:
        """What the disk has against a file with this content, or against there being none; None when nothing.

        For reconciliation: it only looks, and a place that cannot be looked at is an error like a task's.
        """
        with os_errors_as_task_errors(path):
            try:
                with self.roots.open_location(path) as place:
                    found = place.directory.lstat(place.name)
                    if wanted is None:
                        return None if found is None else f"{place.path} is there again"
                    if found is None:
                        return f"{place.path} is gone"
                    if not stat.S_ISREG(found.st_mode) or not _has_digest(place, wanted):
                        return f"{place.path} has other content"
            except FileNotFoundError:
                if wanted is not None:
                    return f"{self.roots.display_path(path)} is gone"
        return None

    def leftovers(self, most: int) -> tuple[list[Leftover], bool]:
        """What killed runs have left beneath the roots; False when there is more than was looked at."""
        return find_leftovers(self.roots.paths, most)


def write_file(
    ctx: Context, roots: Roots, path: str, data: bytes, *, overwrite: bool = False, mode: int | None = None
) -> bool:
    """Have the file at ``path`` hold exactly ``data``, durably; False when it did already.

    For plain handlers of your own, which may write any number of files. Killed at any moment it leaves the
    old file or the new one. What else it may leave is a temporary file, which the next run finds by the field
    ``fences`` of the checkpoint: a checkpoint of your own has to be an object that keeps it.
    """
    with os_errors_as_task_errors(path), roots.open_location(path, create=True) as place:
        return _write_at(ctx, place, data, overwrite=overwrite, mode=mode)


def remove_file(ctx: Context, roots: Roots, path: str) -> bool:
    """Have no file at ``path``, durably; False when there was none. For handlers of your own."""
    return _delete(ctx, roots, path, noted=False)


def _write_at(
    ctx: Context, location: FileLocation, data: bytes, *, overwrite: bool, mode: int | None
) -> bool:
    directory, name = location.directory, location.name
    fences = _fences(ctx)
    for fence in fences:
        if fence != ctx.fence:
            directory.remove(_temporary(ctx, fence))
    there = directory.stat_file(name)
    if there is not None and _holds(location, data):
        _flush_file(directory, name)  # it may be the work of a run that was killed before this
        directory.sync()
        return False
    if there is not None and not overwrite:
        raise _exists(location)
    # A run of the same job that was overtaken may still be at it, under its own name: two runs that share a
    # temporary file could put half of it in place.
    temporary = _temporary(ctx, ctx.fence)
    if ctx.fence not in fences:
        ctx.sync.checkpoint({**(ctx.checkpoint.value or {}), "fences": [*fences, ctx.fence][-MAX_FENCES:]})
    kept = mode if there is None else stat.S_IMODE(there.st_mode) & 0o777
    written = True
    try:
        _write(directory, temporary, data, kept)
        if overwrite:
            directory.replace(temporary, name)
        else:
            written = directory.move_if_absent(temporary, name)
    except BaseException:
        with suppress(OSError):  # the error that brought us here says more
            directory.remove(temporary)
        raise
    if not written:
        directory.remove(temporary)
        _accept_existing(location, data)
    directory.sync()
    return written


def _accept_existing(location: FileLocation, data: bytes) -> None:
    """Take a file that was put there since we looked for ours; refused when it has other content.

    It is that of a run of this job which was overtaken, or somebody else's.
    """
    if _holds(location, data):
        _flush_file(location.directory, location.name)
    elif location.directory.stat_file(location.name) is not None:
        raise _exists(location)
    else:  # tried again: nothing is in the way
        raise FileNotFoundError(errno.ENOENT, "something was there for a moment")


def _fences(ctx: Context) -> list[int]:
    """Of the runs of this job that may have left something."""
    value = ctx.checkpoint.value
    if value is not None and not isinstance(value, dict):
        raise TaskError(
            f"the checkpoint is a {type(value).__name__}; where files are written it has to be an object",
            code="invalid_checkpoint",
            retryable=False,
        )
    return [fence for fence in ctx.checkpoint.get("fences") or () if isinstance(fence, int)]


def _delete(ctx: Context, roots: Roots, path: str, *, noted: bool) -> bool:
    with os_errors_as_task_errors(path):
        try:
            with roots.open_location(path) as place:
                there = place.directory.stat_file(place.name)
                if there is not None and noted and not ctx.checkpoint.get("found"):
                    ctx.sync.checkpoint({"found": True})
                deleted = there is not None and place.directory.remove(place.name)
                # Also when it was gone: a run that was killed may not have come to this.
                place.directory.sync()
                return deleted
        except FileNotFoundError:  # of a directory on the way
            return False


def _write(directory: Directory, name: str, data: bytes, mode: int | None) -> None:
    descriptor = directory.create(name, mode)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if mode is not None and hasattr(os, "fchmod"):
            os.fchmod(descriptor, mode)  # whatever the umask took away
        flush(descriptor)
    finally:
        os.close(descriptor)


def _holds(location: FileLocation, data: bytes) -> bool:
    """Whether a file holds exactly this; no when it may not be read."""
    try:
        descriptor = location.directory.open_to_read(location.name)
    except (FileNotFoundError, PermissionError):
        return False
    try:
        if os.fstat(descriptor).st_size != len(data):
            return False
        rest = memoryview(data)
        for chunk in _chunks(descriptor, len(data)):
            if rest[: len(chunk)] != chunk:
                return False
            rest = rest[len(chunk) :]
        return not rest
    finally:
        os.close(descriptor)


def _has_digest(location: FileLocation, wanted: FileContent) -> bool:
    """The same for content of which only the digest is known; one that may not be read is an error."""
    descriptor = location.directory.open_to_read(location.name)
    try:
        if os.fstat(descriptor).st_size != wanted.size:
            return False
        sha256 = hashlib.sha256()
        for chunk in _chunks(descriptor, wanted.size):
            sha256.update(chunk)
        return sha256.digest() == wanted.sha256
    finally:
        os.close(descriptor)


def _chunks(descriptor: int, at_most: int) -> Iterator[bytes]:
    left = at_most
    while left > 0 and (chunk := os.read(descriptor, min(left, _CHUNK))):
        left -= len(chunk)
        yield chunk


def _flush_file(directory: Directory, name: str) -> None:
    descriptor = directory.open_to_read(name)
    try:
        flush(descriptor)
    finally:
        os.close(descriptor)


def _temporary(ctx: Context, fence: int) -> str:
    return hidden_name(ctx.job.id, fence, "tmp")


def _exists(location: FileLocation) -> TaskError:
    return TaskError(
        f"{location.path} exists with other content, and overwrite is not set",
        code="file_exists",
        retryable=False,
    )


def _build(given: Mapping[str, Any], roots: Roots) -> Iterator[BuiltinTask]:
    mode = given.get("file_mode")
    try:
        limit = check_integer(
            "max_file_bytes", given.get("max_file_bytes", MAX_FILE_BYTES), 1, MAX_FILE_BYTES_ALLOWED
        )
    except InvalidInput as error:
        raise ConfigurationError(str(error)) from None
    # Without 0o400 the next run of a job could not see what the one before it wrote.
    if mode is not None and (
        isinstance(mode, bool) or not isinstance(mode, int) or not 0o400 <= mode <= 0o777
    ):
        raise ConfigurationError(f"file_mode is {shorten(mode)}; give one from 0o400 to 0o777, such as 0o640")
    if roots:
        tasks = FileTasks(roots, mode, limit)
        yield BuiltinTask("create_file", tasks.create_file)
        yield BuiltinTask("delete_file", tasks.delete_file)


TASKS: Final = TaskGroup(("create_file", "delete_file"), _build, "roots, the directories to write in")
