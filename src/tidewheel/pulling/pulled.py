"""A job that was claimed for somebody who pulls."""

from __future__ import annotations

from msgspec import Struct

from tidewheel.model import Claimed


class Pulled(Struct, frozen=True):
    """A job just claimed. ``granted_at`` is when it was asked for, monotonic: its lease began no earlier."""

    job: Claimed
    granted_at: float
