"""The oldest versions that pyproject.toml accepts have no known holes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text("utf-8"))["project"]

SAFE = {
    "click": "8.3.3",  # CVE-2026-7246: command injection in click.edit
    "cryptography": "48.0.1",  # GHSA-537c-gmf6-5ccf: the OpenSSL in its wheels
    "django": "5.2.13",  # CVE-2025-64459, CVE-2026-1207: SQL injection
    "flask": "3.1.3",  # CVE-2025-47278, CVE-2026-27205: keys of sessions, caches
    "gunicorn": "23.0.0",  # CVE-2024-6827: request smuggling
    "httptools": "0.8.0",  # URLs longer than 64 KiB were cut; llhttp with CVE-2023-30589 before 0.6
    "pg8000": "1.31.5",  # CVE-2025-61385: SQL injection
    "pyjwt": "2.13.0",  # CVE-2024-53861 in 2.10.0, CVE-2026-32597, GHSA-xgmm-8j9v-c9wx, GHSA-w7vc-732c-9m39
    "starlette": "1.3.1",  # CVE-2024-47874, CVE-2025-62727, CVE-2026-48710, CVE-2026-54283
    # Networks in trusted_proxies are ignored before 0.31. A port in X-Forwarded-For makes each connection
    # another address before 0.45, and of two such headers one or both are ignored before 0.49.
    "uvicorn": "0.49.0",
}
"""The first version without the holes that are known."""
NONE_KNOWN = {
    "argon2-cffi",
    "asyncpg",
    "cronsim",
    "httpx2",
    "msgspec",
    "opentelemetry-api",
    "rich",
    "tzdata",
}
"""Runtime dependencies that were looked at, without a hole in the versions that are accepted."""


def _requirements() -> Iterator[tuple[str, Requirement]]:
    groups = {"": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}
    for group, lines in groups.items():
        for line in lines:
            yield group, Requirement(line)


@pytest.mark.parametrize("name", SAFE)
def test_floors_are_at_least_the_known_safe_versions(name: str) -> None:
    """In every group that names the package; 2.10.0 of PyJWT accepts a wrong issuer."""
    named = [one for _, one in _requirements() if one.name.lower() == name]
    assert named
    for requirement in named:
        floors = [Version(one.version) for one in requirement.specifier if one.operator == ">="]
        assert floors, f"{requirement} has no floor"
        assert max(floors) >= Version(SAFE[name]), f"{requirement} admits versions with known holes"


def test_every_runtime_dependency_was_looked_at() -> None:
    """A new one goes into one of the two tables, after a look at its advisories."""
    names = {one.name.lower() for group, one in _requirements() if group not in {"test", "bench"}} - {
        "tidewheel"
    }
    assert names <= SAFE.keys() | NONE_KNOWN
