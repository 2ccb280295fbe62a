"""Whether finished jobs are removed when their time is over, told the same way by every store."""

from __future__ import annotations

from typing import Final

from tidewheel.clock import MICROSECONDS
from tidewheel.findings import Ailment, AilmentKind

OVERDUE_SECONDS: Final = 3600.0
"""Workers look every minute, and work off what has gathered: an hour is for more than they can."""


def of_overdue(prune_at: int | None, now: int) -> list[Ailment]:
    """``prune_at``: when the job that is overdue longest should have gone; None when none is."""
    if prune_at is None or (seconds := (now - prune_at) / MICROSECONDS) < OVERDUE_SECONDS:
        return []
    return [Ailment(AilmentKind.UNPRUNED, {"seconds": seconds}, since=prune_at)]
