"""The directories that tasks may write to, and the way from a payload's path to a place beneath them."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final, TypedDict

from tidewheel.builtin.directories import Directory, open_directory
from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, TaskError
from tidewheel.tasks.annotations import ValueCheck

Path = str | os.PathLike[str]

MAX_ROOTS: Final = 100
MAX_PATH_BYTES: Final = 4096
MAX_PATH_COMPONENTS: Final = 100
"""Directories in one path, and its file: each is opened, and perhaps made."""

_separators = re.compile(r"[/\\]" if os.name == "nt" else "/")
_NO_SPACE: Final = frozenset({errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)})
_NOT_PERMITTED: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class RootOptions(TypedDict, total=False):
    """What may be said about directories."""

    roots: Path | Sequence[Path]


def split_path(path: str) -> tuple[str, ...]:
    """The components of a path; ``ValueError`` when it cannot be one of a file beneath a root."""
    if len(path.encode("utf-8", "surrogatepass")) > MAX_PATH_BYTES:
        raise ValueError(f"is longer than {MAX_PATH_BYTES:,} bytes")
    if "\0" in path:
        raise ValueError("has a NUL character in it")
    parts = tuple(part for part in _separators.split(path) if part not in {"", "."})
    if ".." in parts:
        raise ValueError("has '..' in it; give a path beneath one of the roots without it")
    if not parts or _separators.split(path)[-1] in {"", "."}:
        raise ValueError("names no file; give the path of one")
    if len(parts) > MAX_PATH_COMPONENTS:
        raise ValueError(f"is {len(parts):,} directories deep; the limit is {MAX_PATH_COMPONENTS}")
    return parts


FilePath = Annotated[str, ValueCheck(split_path)]
"""A path in a payload, refused at enqueue when it could not be that of a file beneath any root."""


@dataclass(frozen=True, slots=True)
class FileLocation:
    """Where a file is to be: the open directory, and its name there."""

    directory: Directory
    name: str

    @property
    def path(self) -> str:
        """For people."""
        return os.path.join(self.directory.display_path, self.name)


class Roots:
    """Directories as they were configured. A relative path belongs to the first of them."""

    def __init__(self, given: Path | Sequence[Path] = ()) -> None:
        if isinstance(given, str | os.PathLike):
            given = [given]
        if not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
            raise ConfigurationError(f"roots is {shorten(given)}; give the path of a directory, or several")
        listed = list(given)
        if len(listed) > MAX_ROOTS:
            raise ConfigurationError(f"roots has {len(listed):,} directories; the limit is {MAX_ROOTS}")
        self.paths = tuple(dict.fromkeys(_checked(root) for root in listed))

    def __bool__(self) -> bool:
        return bool(self.paths)

    def __repr__(self) -> str:
        return f"<Roots {', '.join(self.paths)}>"

    def locate(self, path: str) -> tuple[str, tuple[str, ...]]:
        """The root a path lies beneath, and the components from there; refused when there is none."""
        try:
            parts = split_path(path)
        except ValueError as error:
            raise TaskError(f"the path {error}", code="invalid_path", retryable=False) from None
        if os.name == "nt" and any(":" in part for part in parts[not os.path.isabs(path) :]):
            raise TaskError("the path has a ':' in it", code="invalid_path", retryable=False)
        if not os.path.isabs(path) and self.paths:
            parts = (*_path_components(self.paths[0]), *parts)
        # Of two roots, one in the other, the inner one is meant, also by a path that is relative to the outer
        # one: a root is never made, and a job about a file is seen to be about the same file as another.
        beneath = [
            (len(above), root)
            for root in self.paths
            for above in (_path_components(root), _path_components(os.path.realpath(root)))
            if parts[: len(above)] == above and len(parts) > len(above)
        ]
        if beneath:
            depth, root = max(beneath, key=lambda found: found[0])
            return root, parts[depth:]
        raise TaskError(
            f"{shorten(path)} is beneath none of the configured roots; add one, or give a relative path",
            code="path_outside_roots",
            retryable=False,
        )

    def identity(self, path: str) -> str:
        """The same for all paths of one file, through whichever root they lead."""
        root, parts = self.locate(path)
        return os.path.join(os.path.realpath(root), *parts)

    def display_path(self, path: str) -> str:
        """Where that is, for people."""
        root, parts = self.locate(path)
        return os.path.join(root, *parts)

    @contextmanager
    def open_location(self, path: str, *, create: bool = False) -> Iterator[FileLocation]:
        """Hold the directory of a file open; ``create`` makes those that are missing on the way.

        Without it a missing one is ``FileNotFoundError``. The root itself is never made: where it is missing
        a disk may not be mounted.
        """
        root, parts = self.locate(path)
        directory = _open_root(root)
        try:
            for part in parts[:-1]:
                entered = directory.enter(part, create=create)
                directory.close()
                directory = entered
            yield FileLocation(directory, parts[-1])
        finally:
            directory.close()


@contextmanager
def os_errors_as_task_errors(path: str) -> Iterator[None]:
    """What the system says no to, as errors of a task: a code for programs, and whether to try again."""
    try:
        yield
    except OSError as error:
        code, retryable = "io_error", True
        if error.errno in _NO_SPACE:
            code = "no_space"
        elif error.errno in _NOT_PERMITTED:
            code = "permission_denied"
        elif error.errno == errno.ENAMETOOLONG:
            code, retryable = "invalid_path", False
        words = error.strerror or type(error).__name__
        raise TaskError(f"{shorten(path, 200)}: {words}", code=code, retryable=retryable) from error
    except UnicodeEncodeError as error:
        # Tried again: another worker may be set up better.
        raise TaskError(
            f"{shorten(path, 200)}: file names are {sys.getfilesystemencoding()} for this worker; "
            "start it in a UTF-8 locale, or with PYTHONUTF8=1",
            code="io_error",
        ) from error


def _open_root(root: str) -> Directory:
    try:
        return open_directory(root)
    except (FileNotFoundError, NotADirectoryError):
        # Tried again: a disk may be mounted by then.
        raise TaskError(
            f"the root {root} is no directory; make it, or mount what belongs there", code="root_missing"
        ) from None


def _path_components(path: str) -> tuple[str, ...]:
    return tuple(part for part in _separators.split(path) if part)


def _checked(root: Path) -> str:
    path = os.fspath(root) if isinstance(root, str | os.PathLike) else None
    if not isinstance(path, str) or not path or "\0" in path:
        raise ConfigurationError(f"roots holds {shorten(root)}; give paths of directories")
    path = os.path.abspath(path)
    # One that is missing may be mounted later, and not everybody who enqueues has it.
    if os.path.exists(path) and not os.path.isdir(path):
        raise ConfigurationError(f"the root {path} is a file; give the path of a directory")
    return path
