"""Which file a ``sqlite:`` URL means, and whether SQLite can be safe there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

from windlass.errors import ConfigurationError

# SQLite relies on locks and shared memory that these do not provide between machines.
NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "afpfs", "9p", "afs", "ceph", "glusterfs"}
    | {"lustre", "gpfs", "beegfs", "davfs", "webdav", "ocfs2", "gfs2", "fuse.glusterfs", "fuse.sshfs"}
    | {"fuse.s3fs", "fuse.rclone", "fuse.davfs2"}
)

_OPTIONS: Final = ("synchronous", "busy_timeout", "network_filesystem")


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
        path=os.path.abspath(path),
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
    kind = file_system_of(path.parent)
    if kind in NETWORK_FILE_SYSTEMS and not location.allow_network:
        raise ConfigurationError(
            f"{path} is on a network file system ({kind}), where SQLite's locks do not hold; "
            "use a local disk or PostgreSQL (network_filesystem=allow in the URL overrides this)"
        )


def file_system_of(directory: Path, mounts: str | None = None) -> str | None:
    """The type of file system a directory is on, where the system tells (Linux); None elsewhere."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", errors="replace")
        except OSError:
            return None
    target = os.path.realpath(directory)
    best, kind = "", None
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        columns = fields.split(" ")
        if len(columns) < 5 or not rest:
            continue
        mount = columns[4].encode().decode("unicode_escape")  # spaces are written as \040
        inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        # '>=': of two mounts on one directory the later one is on top.
        if inside and len(mount) >= len(best):
            best, kind = mount, rest.split(" ", 1)[0]
    return kind
