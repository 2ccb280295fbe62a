"""Which file a ``sqlite:`` URL means, and whether SQLite can be safe there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from tidewheel.errors import ConfigurationError

# SQLite relies on locks and shared memory that these do not provide between machines, or between a virtual
# machine and its host.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "9p", "afs", "ceph", "glusterfs"}
    | {"lustre", "gpfs", "beegfs", "davfs", "webdav", "ocfs2", "gfs2", "orangefs", "pvfs2", "coda", "ncpfs"}
    | {"virtiofs", "vboxsf", "vmhgfs", "prl_fs", "drvfs", "fakeowner", "osxfs", "acfs", "wekafs", "panfs"}
    | {"gcsfuse", "juicefs"}
)
LOCAL_FUSE: Final = frozenset({"fuse.fuse-overlayfs"})
"""Of the file systems in user space that of rootless containers alone; ``fuseblk``, a local disk, is none."""
MOUNT_THE_DIRECTORY: Final = (
    "Give all processes the same file in the same directory: mount the directory into containers, not the "
    "file (docker run -v ./data:/data, not -v ./jobs.db:/data/jobs.db)"
)

_OPTIONS: Final = ("synchronous", "busy_timeout", "network_filesystem")
_octal = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Location:
    """A database file and how to use it."""

    path: str
    synchronous: str = "FULL"
    busy_seconds: float = 30.0
    allow_network: bool = False
    create: bool = True  # a file that is not there is a new one; for who has it open already it is missing

    @property
    def wal_path(self) -> str:
        return self.path + "-wal"


def parse_url(url: str) -> Location:
    """``sqlite:///relative.db``, ``sqlite:////absolute.db``, options as a query string."""
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc:
        raise ConfigurationError(
            f"{url!r} has a host name {parts.netloc!r}; a file needs three slashes: sqlite:///{parts.netloc}{path}"
        )
    path = path.removeprefix("/")
    if path in ("", ":memory:"):
        raise ConfigurationError(
            f"{url!r} names no file; use sqlite:///jobs.db, or memory:// to keep nothing"
        )
    if "\x00" in path:
        raise ConfigurationError(f"{url!r} has a NUL character in its path")
    options = {name: values[-1] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    for name in options:
        if name not in _OPTIONS:
            raise ConfigurationError(
                f"{url!r} has the unknown option {name!r}; known are {', '.join(_OPTIONS)}"
            )
    synchronous = options.get("synchronous", "full").upper()
    if synchronous not in ("FULL", "NORMAL"):
        raise ConfigurationError(f"synchronous is {synchronous.lower()!r}; it can be full or normal")
    try:
        busy_seconds = float(options.get("busy_timeout", "30"))
    except ValueError:
        busy_seconds = -1.0
    if not 0 < busy_seconds <= 3600:
        raise ConfigurationError(
            f"busy_timeout is {options['busy_timeout']!r}; 0 to 3600 seconds are possible"
        )
    return Location(
        path=os.path.realpath(path),  # SQLite keeps the log beside the file that a link leads to
        synchronous=synchronous,
        busy_seconds=busy_seconds,
        allow_network=options.get("network_filesystem") == "allow",
    )


def check_location(location: Location) -> None:
    """Refuse places where a SQLite file cannot live, with the reason."""
    path = Path(location.path)
    if path.is_dir():
        raise ConfigurationError(f"{path} is a directory; give the path of a file")
    if not path.parent.is_dir():
        raise ConfigurationError(f"the directory {path.parent} does not exist; create it first")
    refuse_second_name(path)
    kind = file_system_of(path.parent)
    if is_network_file_system(kind) and not location.allow_network:
        raise ConfigurationError(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold; "
            "use a local disk or PostgreSQL (network_filesystem=allow in the URL overrides this)"
        )


def refuse_second_name(path: Path) -> None:
    """Refuse a file with two names: SQLite finds the log by the name, so each name has a log of its own."""
    try:
        status = path.stat()
    except OSError:
        return  # not there yet; or opening it tells what is wrong
    if is_mount_point(path):
        reason = "is a mount point, so it has another name elsewhere"
    elif status.st_nlink > 1:
        reason = (
            f"has {status.st_nlink} hard links, so it can be opened under another name; remove the others "
            f"(`find / -xdev -inum {status.st_ino}` lists them), or make copies of them"
        )
    else:
        return
    raise ConfigurationError(
        f"{path} {reason}. SQLite keeps the log ({path.name}-wal) beside the name that it was opened by: "
        f"processes that use different names overwrite each other's commits. {MOUNT_THE_DIRECTORY}"
    )


def is_network_file_system(kind: str | None) -> bool:
    """Whether locks may not hold there. A file system in user space (FUSE) counts, unless it is known."""
    if kind is None or kind in LOCAL_FUSE:
        return False
    return kind in NETWORK_FILE_SYSTEMS or kind.partition(".")[0] == "fuse"


def is_mount_point(path: Path, mounts: str | None = None) -> bool:
    """Whether a file was mounted by itself, as ``docker run -v file:file`` does."""
    target = os.path.realpath(path)
    found = _mounts(mounts)
    if found is None:
        # A bind mount within one file system cannot be told this way; only Linux has them, and it has /proc.
        return os.stat(target).st_dev != os.stat(os.path.dirname(target)).st_dev
    return any(mount == target for mount, _ in found)


def file_system_of(directory: Path, mounts: str | None = None) -> str | None:
    """The type of file system a directory is on, where the system tells (Linux); None elsewhere."""
    target = os.path.realpath(directory)
    best, kind = "", None
    for mount, found in _mounts(mounts) or ():
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        # '>=': of two mounts on one directory the later one is on top.
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _mounts(text: str | None) -> list[tuple[str, str]] | None:
    """Where something is mounted, and of what type; None where the system does not tell."""
    if text is None:
        try:
            text = Path("/proc/self/mountinfo").read_text("utf-8", errors="surrogateescape")
        except OSError:
            return None
    found = []
    for line in text.split("\n"):
        fields, _, rest = line.partition(" - ")
        columns = fields.split(" ")
        if len(columns) >= 5 and rest:
            mount = _octal.sub(lambda code: chr(int(code[1], 8)), columns[4])  # a space is written as \040
            found.append((mount, rest.split(" ", 1)[0]))
    return found
