"""The limits that are about what is already there, judged the same way by every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

from tidewheel.errors import LimitExceeded
from tidewheel.model import NewJob
from tidewheel.names import shorten
from tidewheel.stores.protocol import MAX_LIMITED_TOPICS, StoreLimits


def added_by_topic(jobs: Iterable[NewJob], taken: Set[tuple[Any, ...]]) -> Counter[str]:
    """How many jobs a call adds to each topic; a duplicate, of one ``taken`` or of its own, adds nothing."""
    added: Counter[str] = Counter()
    seen = set(taken)
    for job in jobs:
        key = (job.tenant, job.task or job.topic, job.key)
        if job.key is not None:
            if key in seen:
                continue
            seen.add(key)
        added[job.topic] += 1
    return added


def check_limited_topics(number: int) -> None:
    """So many topics would have limits on what runs."""
    if number > MAX_LIMITED_TOPICS:
        raise LimitExceeded(
            f"{number:,} topics would have limits; the limit is {MAX_LIMITED_TOPICS:,}; "
            "remove those of others first"
        )


def limit_problem(
    limits: StoreLimits,
    added: Mapping[str, int],
    *,
    topics: Callable[[], Set[str]],
    active: Callable[[str], int],
) -> LimitExceeded | None:
    """Whether ``added`` new jobs by topic would pass a limit.

    ``topics`` tells which topics have jobs, ``active`` how many pending and running ones a topic has; each is
    only asked when its limit is set. What they answer is of all tenants, so it is not repeated to the caller.
    """
    if limits.max_topics:
        known = topics()
        number = len(known | added.keys())
        if number > max(limits.max_topics, len(known)):
            new = ", ".join(shorten(topic) for topic in sorted(added.keys() - known)[:3])
            return LimitExceeded(
                f"there is no room for new topics ({new}); the limit is {limits.max_topics:,} (max_topics); "
                "use an existing topic or raise it"
            )
    if limits.max_jobs_per_topic:
        for topic, more in added.items():
            if active(topic) + more > limits.max_jobs_per_topic:
                return LimitExceeded(
                    f"topic {topic!r} has no room for {more:,} more; the limit is "
                    f"{limits.max_jobs_per_topic:,} pending and running jobs (max_jobs_per_topic); "
                    "wait for workers or raise it"
                )
    return None
