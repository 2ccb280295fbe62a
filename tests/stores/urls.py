"""The stores every test of this directory runs on. A new one is a line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

STORES: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory://",
    # Without an fsync per commit: verbs are tried here, power cuts elsewhere.
    "sqlite": lambda directory: f"sqlite:///{directory.as_posix()}/jobs.db?synchronous=normal",
}
"""A store's URL in a directory of its own, by name; the reference first."""
