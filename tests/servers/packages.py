"""Programs from the distribution's packages, unpacked into a cache directory: no root, nothing installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.patience import PATIENCE
from tests.servers.processes import ServerError

LEVELS = 3
"""How deep dependencies are followed for missing libraries."""


def cache_directory() -> Path:
    """Kept between runs, outside of the repository."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidewheel-tests"


@dataclass(frozen=True, slots=True)
class Package:
    """What is fetched, the file in it that is wanted, and how people install it."""

    name: str
    file: str
    install: str

    def of(self, root: Path) -> Path:
        """Where the file is below an unpacked root; its pattern may leave out the machine's name."""
        return next(root.glob(self.file), root / self.file)


PGBOUNCER = Package(
    "pgbouncer", "usr/sbin/pgbouncer", "apt-get install pgbouncer (macOS: brew install pgbouncer)"
)
BEANSTALKD = Package(
    "beanstalkd", "usr/bin/beanstalkd", "apt-get install beanstalkd (macOS: brew install beanstalkd)"
)
STRACE = Package("strace", "usr/bin/strace", "apt-get install strace")
FAKETIME = Package("libfaketime", "usr/lib/*/faketime/libfaketime.so.1", "apt-get install libfaketime")


def unpacked(package: Package) -> Path:
    """A directory with an unpacked package and the libraries this system lacks for it."""
    kept = cache_directory() / package.name
    if kept.is_dir():
        return kept
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise ServerError(
            f"there is no {package.name} on this system, and no apt-get to fetch it with; {package.install}"
        )
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServerError(
            f"no place to keep {package.name}: {error}; set XDG_CACHE_HOME, or {package.install}"
        ) from error
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        try:
            _fetch(package, Path(scratch), root)
        except (subprocess.SubprocessError, OSError) as error:
            said = getattr(error, "stderr", "") or str(error)
            raise ServerError(
                f"{package.name} could not be fetched ({said.strip()}); {package.install}"
            ) from error
        try:
            root.rename(kept)
        except OSError:  # another run was first
            if not kept.is_dir():
                raise
    return kept


def _fetch(package: Package, scratch: Path, root: Path) -> None:
    apt = _Apt(scratch, package.name)
    apt.unpack([package.name], root)
    packages = [package.name]
    for _ in range(LEVELS):
        if not missing_libraries(root, package):
            return
        packages = apt.libraries_of(packages)
        apt.unpack(packages, root)
    if missing := missing_libraries(root, package):
        raise ServerError(
            f"no package has {', '.join(missing)}, which {package.name} needs; {package.install}"
        )


def missing_libraries(root: Path, package: Package) -> list[str]:
    answer = subprocess.run(
        ["ldd", package.of(root)],
        env=library_path(root),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    return re.findall(r"(\S+) => not found", answer.stdout)


def library_path(root: Path) -> dict[str, str]:
    """The environment in which unpacked libraries are found."""
    places = sorted({str(path.parent) for path in root.rglob("*.so*")})
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(places)} if places else dict(os.environ)


class _Apt:
    """apt-get with directories of its own where the system's package lists are of no use."""

    def __init__(self, scratch: Path, wanted: str) -> None:
        self._options = ["-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User=", "-qq"]
        self._packages = scratch / "packages"
        self._packages.mkdir()
        if "Candidate: (none)" in (answer := self._run("apt-cache", "policy", wanted)) or not answer:
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
