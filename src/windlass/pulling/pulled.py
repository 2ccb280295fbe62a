"""A job that was claimed for somebody who pulls."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.model import Claimed


@dataclass(frozen=True, slots=True)
class Pulled:
    """A job just claimed. ``granted_at`` is when it was asked for, monotonic: its lease began no earlier."""

    job: Claimed
    granted_at: float
