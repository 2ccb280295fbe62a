"""A queue at one moment, for whoever shows it live: counts, lanes, what runs, who works."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidewheel.client import visibility
from tidewheel.core.model import JobRecord
from tidewheel.core.reports import Stats, TaskStats

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

SNAPSHOT_WINDOW_SECONDS: Final = 300.0
"""Minutes that are told: enough to see what changed since the last glance, and for times of run and wait."""
MAX_SNAPSHOT_RUNNING: Final = 100


@dataclass(frozen=True, slots=True)
class QueueSnapshot:
    """What was seen. It costs the same at a million jobs, and a few milliseconds."""

    now: int
    """the store's time"""
    stats: Stats
    lanes: Sequence[TaskStats]
    running: Sequence[JobRecord]
    """those claimed longest ago first"""


async def take_queue_snapshot(app: Tidewheel, *, running: int, tenant: str | None = None) -> QueueSnapshot:
    """Look once, at up to ``running`` of the running jobs."""
    store = app.store
    stats = await visibility.visible_stats(store, SNAPSHOT_WINDOW_SECONDS, tenant)
    lanes = await visibility.visible_lanes(store, SNAPSHOT_WINDOW_SECONDS, tenant)
    # Not by a list of running jobs: that has the newest first, and at a thousand a second those say nothing.
    jobs = (
        await store.longest_running(min(running, MAX_SNAPSHOT_RUNNING), tenant=tenant) if running > 0 else []
    )
    return QueueSnapshot(now=await store.now(), stats=stats, lanes=lanes, running=jobs)
