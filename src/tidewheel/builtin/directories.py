"""A directory held open: what is done in it happens there, whatever its path leads to by then.

Every name is one component, taken relative to a descriptor and never followed when it is a link, so there is
no moment between a check and a use in which a link could be planted. Where the system has no such calls
(Windows), :class:`PathDirectory` looks at each name right before it uses it, which leaves such a moment.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Final, Self

from tidewheel.errors import TaskError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_RELATIVE: Final = (os.open, os.mkdir, os.rename, os.unlink, os.link, os.stat)
HAS_DESCRIPTORS: Final = (
    all(call in os.supports_dir_fd for call in _RELATIVE)
    and hasattr(os, "O_NOFOLLOW")
    and hasattr(os, "O_DIRECTORY")
)
"""Whether calls relative to a directory's descriptor are to be had here."""

_O_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_O_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_ENTER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _O_CLOEXEC
# Opening a pipe would wait for its other end, and a terminal could become ours.
_CAREFUL = _O_NOFOLLOW | _O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_READ = os.O_RDONLY | _CAREFUL
_APPEND = os.O_RDWR | os.O_APPEND | _CAREFUL
_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | _O_NOFOLLOW | _O_CLOEXEC
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would change line ends
_NO_HARD_LINKS: Final = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK})
_CANNOT_SYNC: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
_REPARSE_POINT: Final = 0x400  # of Windows: links, junctions and their like


class Directory:
    """One directory by its descriptor; ``with`` closes it. ``display_path`` is its path, for messages."""

    def __init__(self, descriptor: int, shown: str) -> None:
        self._descriptor = descriptor
        self.display_path = shown

    @classmethod
    def open(cls, path: str) -> Self:
        """A root. Links on the way to it are the operator's own, and are followed."""
        return cls(os.open(path, _ENTER), path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    def enter(self, name: str, *, create: bool = False) -> Self:
        """A directory in this one, made where it is missing and asked for."""
        entered = self._present(name)
        if entered is None and create:
            self._make(name)
            entered = self._present(name)
        if entered is None:
            raise FileNotFoundError(
                errno.ENOENT, os.strerror(errno.ENOENT), os.path.join(self.display_path, name)
            )
        if create:
            try:
                # Whoever made it may have been killed before this, so it is not only for who makes it.
                self.sync()
            except BaseException:
                entered.close()
                raise
        return entered

    def _present(self, name: str) -> Self | None:
        try:
            return self._entered(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.EMLINK, errno.ENOTDIR}:  # systems differ about links
                raise self._no_directory(name) from None
            raise

    def _entered(self, name: str) -> Self:
        descriptor = os.open(name, _ENTER | _O_NOFOLLOW, dir_fd=self._descriptor)
        return type(self)(descriptor, os.path.join(self.display_path, name))

    def _make(self, name: str) -> None:
        # Somebody else may make it meanwhile; what is there is looked at again in any case.
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self._descriptor)

    def _no_directory(self, name: str) -> TaskError:
        found = self.lstat(name)
        if found is not None and is_link(found):
            return refused_link(os.path.join(self.display_path, name))
        return TaskError(
            f"{os.path.join(self.display_path, name)} is no directory",
            code="not_a_directory",
            retryable=False,
        )

    def lstat(self, name: str) -> os.stat_result | None:
        """What is there under this name, itself and not what it leads to; None for nothing."""
        try:
            return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        """All that is in it."""
        return os.listdir(self._descriptor)

    def stat_file(self, name: str) -> os.stat_result | None:
        """The same, refused when it is anything but a regular file."""
        found = self.lstat(name)
        if found is not None:
            refuse_special_file(found, os.path.join(self.display_path, name))
        return found

    def open_to_read(self, name: str) -> int:
        """A descriptor to read a regular file with."""
        return self._open_file(name, _READ | _BINARY)

    def create(self, name: str, mode: int | None = None) -> int:
        """A descriptor of a new file, to write; without ``mode`` the process's umask decides its mode."""
        return self._open(name, _CREATE | _BINARY, 0o666 if mode is None else mode)

    def open_to_append(self, name: str) -> int:
        """A descriptor of a regular file of ours, to go on writing it where it ends.

        Refused when it has another name: that was planted, and leads out of the root like a link.
        """
        descriptor = self._open_file(name, _APPEND | _BINARY)
        if os.fstat(descriptor).st_nlink > 1:
            os.close(descriptor)
            raise refused_link(os.path.join(self.display_path, name))
        return descriptor

    def _open_file(self, name: str, flags: int) -> int:
        self.stat_file(name)  # opening a device may do something already
        try:
            descriptor = self._open(name, flags)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise refused_link(os.path.join(self.display_path, name)) from None
            raise
        try:
            refuse_special_file(os.fstat(descriptor), os.path.join(self.display_path, name))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _open(self, name: str, flags: int, mode: int = 0o600) -> int:
        return os.open(name, flags, mode, dir_fd=self._descriptor)

    def replace(self, old: str, new: str) -> None:
        """Put ``old`` in the place of ``new``, in one moment; a link there is replaced, not followed."""
        os.rename(old, new, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)

    def move_if_absent(self, old: str, new: str) -> bool:
        """The same where nothing may be: False when something is, and ``old`` stays."""
        try:
            os.link(
                old,
                new,
                src_dir_fd=self._descriptor,
                dst_dir_fd=self._descriptor,
                follow_symlinks=False,
            )
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
        else:
            self.remove(old)
            return True
        # A file system without hard links. Who puts something there between these two lines loses it.
        if self.lstat(new) is not None:
            return False
        self.replace(old, new)
        return True

    def remove(self, name: str) -> bool:
        """Take a name away; False when it was not there. A link goes itself, not what it leads to."""
        try:
            self._unlink(name)
        except FileNotFoundError:
            return False
        return True

    def _unlink(self, name: str) -> None:
        os.unlink(name, dir_fd=self._descriptor)

    def sync(self) -> None:
        """Have the names in it survive a power cut."""
        try:
            flush(self._descriptor)
        except OSError as error:
            # Some file systems of networks cannot sync a directory, and say so every time.
            if error.errno not in _CANNOT_SYNC:
                raise


class PathDirectory(Directory):
    """A directory by its path, for systems that have no calls relative to a descriptor."""

    def __init__(self, path: str) -> None:
        super().__init__(-1, path)

    @classmethod
    def open(cls, path: str) -> Self:
        if not os.path.isdir(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return cls(path)

    def close(self) -> None:
        """Nothing is open."""

    def _entered(self, name: str) -> Self:
        found = os.lstat(self._path(name))
        if not stat.S_ISDIR(found.st_mode) or is_link(found):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self._path(name))
        return type(self)(self._path(name))

    def _make(self, name: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(self._path(name))

    def lstat(self, name: str) -> os.stat_result | None:
        try:
            return os.lstat(self._path(name))
        except FileNotFoundError:
            return None

    def names(self) -> list[str]:
        return os.listdir(self.display_path)

    def _open(self, name: str, flags: int, mode: int = 0o600) -> int:
        return os.open(self._path(name), flags, mode)

    def replace(self, old: str, new: str) -> None:
        os.replace(self._path(old), self._path(new))

    def move_if_absent(self, old: str, new: str) -> bool:
        if self.lstat(new) is not None:
            return False
        try:
            os.rename(self._path(old), self._path(new))
        except FileExistsError:  # on Windows this refuses, too
            return False
        return True

    def _unlink(self, name: str) -> None:
        os.unlink(self._path(name))

    def sync(self) -> None:
        """Windows has no way to, and keeps names by itself."""

    def _path(self, name: str) -> str:
        return os.path.join(self.display_path, name)


open_directory: Callable[[str], Directory] = Directory.open if HAS_DESCRIPTORS else PathDirectory.open


def flush(descriptor: int) -> None:
    """Wait until what was written is on the disk, through its own cache where the system can say so."""
    if fcntl is not None and hasattr(fcntl, "F_FULLFSYNC"):  # macOS: a plain fsync stops at that cache
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
        except OSError:
            pass  # a file system that cannot; the plain one below is all there is
        else:
            return
    os.fsync(descriptor)


def is_link(found: os.stat_result) -> bool:
    """Whether it leads elsewhere."""
    return stat.S_ISLNK(found.st_mode) or bool(getattr(found, "st_file_attributes", 0) & _REPARSE_POINT)


def refuse_special_file(found: os.stat_result, path: str) -> None:
    """Refuse what is no regular file: directories, links, devices, pipes, sockets."""
    if is_link(found):
        raise refused_link(path)
    if not stat.S_ISREG(found.st_mode):
        raise TaskError(f"{path} is no regular file", code="not_a_file", retryable=False)


def refused_link(path: str) -> TaskError:
    """The answer to every link on the way."""
    return TaskError(
        f"{path} is a link, which may lead anywhere; links beneath a root are refused",
        code="path_is_link",
        retryable=False,
    )
