"""The directories that tasks may write to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypedDict

from windlass.errors import ConfigurationError
from windlass.names import shorten

Path = str | os.PathLike[str]


class RootOptions(TypedDict, total=False):
    """What may be said about directories."""

    roots: Path | Sequence[Path]


class Roots:
    """Directories as they were configured. A relative path belongs to the first of them."""

    def __init__(self, given: Path | Sequence[Path] = ()) -> None:
        listed = [given] if isinstance(given, str | os.PathLike) else list(given)
        self.paths = tuple(dict.fromkeys(_checked(root) for root in listed))

    def __bool__(self) -> bool:
        return bool(self.paths)


def _checked(root: Path) -> str:
    if not isinstance(root, str | os.PathLike) or not os.fspath(root) or "\0" in os.fspath(root):
        raise ConfigurationError(f"roots holds {shorten(root)}; give paths of directories")
    return os.path.abspath(root)
