"""A look at the queue, for its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidewheel.security import system_only
from tidewheel.stores.protocol import Store
from tidewheel.telemetry.figures import QueueFigures, TopicFigures, busiest, of_stats

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

MOST_TOPICS: Final = 100
"""Topics a worker tells about, those with the most unfinished jobs; the others are one line, ``other``."""
LONGEST_RUNNING: Final = 100
"""Running jobs that are looked at for leases that have ended."""
_WINDOW_SECONDS: Final = 60.0  # for times, which nobody asks for here


async def look(store: Store, most_topics: int = MOST_TOPICS) -> tuple[QueueFigures, tuple[TopicFigures, ...]]:
    """At all tenants' jobs, from counters, but for the running ones."""
    stats = await store.stats(window_seconds=_WINDOW_SECONDS)
    longest = await store.longest_running(LONGEST_RUNNING)
    return of_stats(stats, longest, await store.now()), busiest(stats.topics, most_topics)


async def look_at(app: Tidewheel, most_topics: int) -> tuple[QueueFigures, tuple[TopicFigures, ...]]:
    """The same for whoever holds an app, and acts for nobody in particular."""
    system_only("metrics")
    return await look(app.store, most_topics)
