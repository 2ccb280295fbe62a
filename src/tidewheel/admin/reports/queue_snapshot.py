"""A queue at one moment, for whoever shows it live: counts, lanes, what runs, who works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidewheel.client import visibility
from tidewheel.core.model import JobRecord, Stats
from tidewheel.core.reports import TaskStats

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

WINDOW_SECONDS: Final = 300.0
"""Minutes that are told: enough to see what changed since the last glance, and for times of run and wait."""
MOST_RUNNING: Final = 100


@dataclass(frozen=True, slots=True)
class Glance:
    """What was seen. It costs the same at a million jobs, and a few milliseconds."""

    now: int
    """the store's time"""
    stats: Stats
    lanes: Sequence[TaskStats]
    running: Sequence[JobRecord]
    """those claimed longest ago first"""


async def take_glance(app: Tidewheel, *, running: int, tenant: str | None = None) -> Glance:
    """Look once, at up to ``running`` of the running jobs."""
    store = app.store
    stats = await visibility.stats(store, WINDOW_SECONDS, tenant)
    lanes = await visibility.lanes(store, WINDOW_SECONDS, tenant)
    # Not by a list of running jobs: that has the newest first, and at a thousand a second those say nothing.
    jobs = await store.longest_running(min(running, MOST_RUNNING), tenant=tenant) if running > 0 else []
    return Glance(now=await store.now(), stats=stats, lanes=lanes, running=jobs)
