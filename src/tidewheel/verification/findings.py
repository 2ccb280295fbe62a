"""What a doctor finds, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad it is."""

    PROBLEM = "problem"  # something is wrong, and somebody has to do something
    DOUBT = "doubt"  # it works, and promises less than it could
    NOTE = "note"  # good to know


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, in a sentence."""

    level: Level
    text: str
    kind: str = "store"
    """For programs: ``store`` is the store's own check, the others are words that stay the same."""
