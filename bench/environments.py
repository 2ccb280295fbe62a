"""Where adapters run: a virtual environment, or a directory of node modules, for each set of requirements."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.systems import System

ADAPTERS = Path(__file__).with_name("adapters")

PATIENCE = 600
"""Seconds an installation may take."""


NEWEST_MINOR = 15
"""The newest Python 3 that is looked for."""


class NotMeasured(Exception):
    """A system cannot be measured here; the reason is for the table."""


@dataclass(frozen=True, slots=True)
class Environment:
    """How to run an adapter, and the versions it will run with."""

    command: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


def default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tidewheel-bench"


def prepare(system: System, cache: Path) -> Environment:
    """The environment of a system, made when it is not there. Raises ``NotMeasured`` with the reason."""
    adapter = str(ADAPTERS / system.adapter)
    if not system.requirements:
        variables = {"PATH": path_to(system.program)} if system.program else {}
        return Environment((sys.executable, adapter), variables)
    python = find_python(system.python)
    digest = hashlib.sha256(repr((system.requirements, os.path.realpath(python))).encode()).hexdigest()[:12]
    place = cache / f"{system.family}-{digest}"
    try:
        if system.adapter.endswith(".cjs"):
            return _node(system, place, adapter)
        return _python(system, python, place, adapter)
    except (OSError, subprocess.SubprocessError) as error:
        said = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise NotMeasured(f"could not be installed: {said[-1] if said else error}") from error


def path_to(program: str) -> str:
    """A path on which this is found: where the server comes from, if not ours. Raises ``NotMeasured``."""
    from tests.servers.binaries import find_binaries

    path = os.environ.get("PATH", os.defpath)
    for where in (path, os.pathsep.join((path, str(find_binaries().directory)))):
        if shutil.which(program, path=where) is not None:
            return where
    raise NotMeasured(f"needs {program}")


def find_python(oldest: tuple[int, int]) -> str:
    """Ours when it is new enough, else a newer one on the path. Raises ``NotMeasured`` when there is none."""
    if sys.version_info >= oldest:
        return sys.executable
    for minor in range(oldest[1], NEWEST_MINOR + 1):
        if (found := shutil.which(f"python3.{minor}")) is not None:
            return found
    needed, ours = (".".join(map(str, version[:2])) for version in (oldest, sys.version_info))
    raise NotMeasured(f"needs Python {needed}, this is {ours}")


def _python(system: System, interpreter: str, place: Path, adapter: str) -> Environment:
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        _run(interpreter, "-m", "venv", str(place))
        _run(
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *system.requirements,
        )
        (place / "complete").touch()
    listed = json.loads(
        _run(str(python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check")
    )
    versions = {package["name"].lower(): package["version"] for package in listed}
    for packaging in ("pip", "setuptools"):
        versions.pop(packaging, None)
    return Environment((str(python), adapter), versions=versions)


def _node(system: System, place: Path, adapter: str) -> Environment:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise NotMeasured("needs node and npm")
    if not (place / "complete").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        _run(npm, "install", "--prefix", str(place), "--no-audit", "--no-fund", *system.requirements)
        (place / "complete").touch()
    versions = {"node": _run(node, "--version").strip().removeprefix("v")}
    for requirement in system.requirements:
        name = requirement.rpartition("@")[0]
        package = json.loads((place / "node_modules" / name / "package.json").read_text())
        versions[name] = package["version"]
    return Environment((node, adapter), {"NODE_PATH": str(place / "node_modules")}, versions)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE).stdout
