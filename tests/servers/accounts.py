"""Who a server runs as: database servers refuse to run as root."""

from __future__ import annotations

import functools
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Account:
    """The user and group of a server's files and processes; None is whoever we are."""

    user: int | None = None
    group: int | None = None

    def give(self, path: Path) -> None:
        """Make a file or directory the account's own."""
        if self.user is not None and self.group is not None:
            os.chown(path, self.user, self.group)

    def may_pass(self, directory: Path) -> bool:
        """Whether the account can reach what is in ``directory``, as far as permission bits say."""
        if self.user is None:
            return True
        for step in (directory, *directory.parents):
            status = step.stat()
            shift = 6 if status.st_uid == self.user else 3 if status.st_gid == self.group else 0
            if not status.st_mode >> shift & 1:
                return False
        return True

    def make_directory(self, prefix: str) -> Path:
        """A new directory of the account's own, where it can reach it."""
        usual = Path(tempfile.gettempdir()).resolve()
        # Sockets live in it, too, and their paths must stay short.
        for parent in (Path("/tmp"), Path("/var/tmp"), usual):
            if parent.is_dir() and os.access(parent, os.W_OK) and self.may_pass(parent):
                break
        else:
            parent = usual
        directory = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self.give(directory)
        return directory


@functools.cache
def server_account() -> Account:
    """Ourselves, or somebody with fewer rights when we are root."""
    if os.name != "posix" or os.geteuid() != 0:
        return Account()
    import pwd

    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise RuntimeError("running as root, and there is no account 'postgres' or 'nobody' for the servers")
