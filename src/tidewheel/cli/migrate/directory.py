"""The migrations in a directory, read without running them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from tidewheel.cli.migrate.revision import MARK

MOST_FILES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Exported:
    """What migrations of a directory have already."""

    version: int
    rls: bool


class Directory:
    """The Python files of one directory, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        files = sorted(path.glob("*.py"))
        if len(files) > MOST_FILES:
            raise click.UsageError(f"{path} has {len(files):,} files; {MOST_FILES:,} are possible")
        self.modules = {file.stem: _parse(file) for file in files if file.stem != "__init__"}

    def exported(self, place: str) -> Exported:
        """Up to where, for these tables."""
        marks = [mark for tree in self.modules.values() if isinstance(mark := values(tree).get(MARK), dict)]
        mine = [mark[place] for mark in marks if place in mark]
        return Exported(
            version=max((mark["version"] for mark in mine), default=0),
            rls=any(mark["rls"] for mark in mine),
        )

    def last(self, names: Iterable[str], followed: Callable[[str], bool]) -> str | None:
        """The one that no other comes after; None where there are none."""
        heads = [name for name in names if not followed(name)]
        if len(heads) > 1:
            raise click.UsageError(
                f"{self.path} has several last migrations ({', '.join(sorted(heads)[:5])}); name one of them "
                "with --after"
            )
        return heads[0] if heads else None

    def one(self, names: Iterable[str], wanted: str) -> str:
        """The one that is called so, or that alone begins so: a file has to give its whole name.

        In a directory that has none it is taken as it is: the others are in another directory then.
        """
        known = sorted(names)
        found = [name for name in known if name.startswith(wanted)]
        if wanted in found or not known:
            return wanted
        if len(found) != 1:
            raise click.UsageError(
                f"--after is {wanted!r}, and {len(found)} of {len(known)} migrations in {self.path} begin "
                f"so; name one of them ({', '.join((found or known)[-5:])})"
            )
        return found[0]


def values(tree: ast.Module) -> dict[str, Any]:
    """What the names of a module are, as far as that is written there."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name):
                try:
                    found[target.id] = ast.literal_eval(node.value)  # type: ignore[arg-type]
                except (ValueError, TypeError):
                    continue  # something that is computed, and none of what is looked for
    return found


def _parse(file: Path) -> ast.Module:
    try:
        return ast.parse(file.read_bytes())  # which says itself how it is encoded
    except (OSError, SyntaxError, ValueError) as error:
        raise click.UsageError(f"{file} cannot be read as Python: {error}") from error
