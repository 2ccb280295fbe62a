"""PgBouncer from the distribution's packages, unpacked into a cache directory: no root, nothing installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.servers.processes import ServerError

INSTALL = "apt-get install pgbouncer (macOS: brew install pgbouncer)"

LEVELS = 3
"""How deep dependencies are followed for missing libraries."""


def cache_directory() -> Path:
    """Kept between runs, outside of the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "windlass-tests"


def unpacked_pgbouncer() -> Path:
    """A directory with an unpacked pgbouncer and the libraries this system lacks for it."""
    kept = cache_directory() / "pgbouncer"
    if kept.is_dir():
        return kept
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise ServerError(f"there is no pgbouncer on this system, and no apt-get to fetch it with; {INSTALL}")
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServerError(f"no place to keep pgbouncer: {error}; set XDG_CACHE_HOME, or {INSTALL}") from error
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        try:
            _fetch(Path(scratch), root)
        except (subprocess.SubprocessError, OSError) as error:
            said = getattr(error, "stderr", "") or str(error)
            raise ServerError(f"pgbouncer could not be fetched ({said.strip()}); {INSTALL}") from error
        try:
            root.rename(kept)
        except OSError:  # another run was first
            if not kept.is_dir():
                raise
    return kept


def _fetch(scratch: Path, root: Path) -> None:
    apt = _Apt(scratch)
    apt.unpack(["pgbouncer"], root)
    packages = ["pgbouncer"]
    for _ in range(LEVELS):
        if not missing_libraries(root):
            return
        packages = apt.libraries_of(packages)
        apt.unpack(packages, root)
    if missing := missing_libraries(root):
        raise ServerError(f"no package has {', '.join(missing)}, which pgbouncer needs; {INSTALL}")


def missing_libraries(root: Path) -> list[str]:
    answer = subprocess.run(
        ["ldd", program(root)], env=library_path(root), capture_output=True, text=True, check=True, timeout=30
    )
    return re.findall(r"(\S+) => not found", answer.stdout)


def program(root: Path) -> Path:
    return root / "usr" / "sbin" / "pgbouncer"


def library_path(root: Path) -> dict[str, str]:
    """The environment in which unpacked libraries are found."""
    places = sorted({str(path.parent) for path in root.rglob("*.so*")})
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(places)} if places else dict(os.environ)


class _Apt:
    """apt-get with directories of its own where the system's package lists are of no use."""

    def __init__(self, scratch: Path) -> None:
        self._options = ["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=", "-qq"]
        self._packages = scratch / "packages"
        self._packages.mkdir()
        if "Candidate: (none)" in (answer := self._run("apt-cache", "policy", "pgbouncer")) or not answer:
            for name in ("lists/partial", "archives/partial"):
                (scratch / name).mkdir(parents=True)
            self._options += ["-o", f"Dir::State::lists={scratch / 'lists'}", "-o", f"Dir::Cache={scratch}"]
            self._run("apt-get", "update")

    def _run(self, command: str, *arguments: str) -> str:
        return subprocess.run(
            [command, *self._options, *arguments],
            cwd=self._packages,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout

    def libraries_of(self, packages: Sequence[str]) -> list[str]:
        """The libraries these depend on, without C's own, which must be the system's."""
        answer = self._run("apt-cache", "depends", "--no-recommends", "--no-suggests", *packages)
        found = re.findall(r"^\s*\|?(?:Pre)?Depends: (lib[^\s<>]+)", answer, re.MULTILINE)
        return [name for name in dict.fromkeys(found) if name != "libc6"]

    def unpack(self, packages: Sequence[str], root: Path) -> None:
        self._run("apt-get", "download", *packages)
        for package in sorted(self._packages.glob("*.deb")):
            subprocess.run(["dpkg", "-x", package, root], check=True, capture_output=True, timeout=60)
            package.unlink()
