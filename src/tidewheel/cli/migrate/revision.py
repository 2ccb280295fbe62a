"""A file that runs our SQL as a migration of another tool."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tidewheel.__about__ import __version__
from tidewheel.schema_scripts import Script

MARK: Final = "tidewheel_exported"
"""The name in such a file that says what is in it. Later exports go by it."""


@dataclass(frozen=True, slots=True)
class Revision:
    """Its name and what stands in it."""

    name: str
    content: str


def title(scripts: Iterable[Script]) -> str:
    """What is in it, for people."""
    parts = [
        f"{script.place}, "
        + (f"version {script.since} to {script.version}" if script.since else f"version {script.version}")
        + (" with row-level security" if script.secures else "")
        for script in scripts
    ]
    return f"Tables of Tidewheel {__version__}: {'; '.join(parts)}."


def mark(scripts: Iterable[Script]) -> str:
    """The line that later exports go by."""
    done = {script.place: {"version": script.version, "rls": script.secures} for script in scripts}
    return f"{MARK} = {done!r}  # later exports go by this"


def literal(statements: Sequence[str]) -> str:
    """As Python source that people can read."""
    return "[\n" + "".join(f"{_quoted(statement)},\n" for statement in statements) + "]"


def _quoted(statement: str) -> str:
    if '"""' in statement or "\\" in statement or statement.endswith('"'):
        return repr(statement)
    return f'"""{statement}"""'
