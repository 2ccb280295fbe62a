"""The limits that are about what is already there, judged the same way by every store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from windlass.errors import LimitExceeded
from windlass.stores.protocol import StoreLimits


def limit_problem(
    limits: StoreLimits,
    added: Mapping[str, int],
    *,
    topics: Callable[[], Set[str]],
    active: Callable[[str], int],
) -> LimitExceeded | None:
    """Whether ``added`` new jobs by topic would pass a limit.

    ``topics`` tells which topics have jobs, ``active`` how many pending and running ones a topic has; each is
    only asked when its limit is set.
    """
    if limits.max_topics:
        known = topics()
        number = len(known | added.keys())
        if number > max(limits.max_topics, len(known)):
            return LimitExceeded(
                f"this would make {number:,} topics; the limit is {limits.max_topics:,} (max_topics); "
                "use an existing topic or raise it"
            )
    if limits.max_jobs_per_topic:
        for topic, more in added.items():
            number = active(topic) + more
            if number > limits.max_jobs_per_topic:
                return LimitExceeded(
                    f"topic {topic!r} would hold {number:,} pending and running jobs; the limit is "
                    f"{limits.max_jobs_per_topic:,} (max_jobs_per_topic); wait for workers or raise it"
                )
    return None
