"""Maxima and limits that every store keeps."""

from __future__ import annotations

from dataclasses import dataclass

from tidewheel.errors import LimitExceeded

MAX_BATCH = 1000
"""Most items a single call of a batch verb may carry, ``enqueue`` aside."""


MAX_ENQUEUE_BATCH = 10_000
"""Most jobs one ``enqueue`` call writes in one transaction."""


MAX_PARENTS = 1000
"""Most jobs that one job may be told to run after."""


MAX_PARENTS_PER_CALL = 100_000
"""Most of them that the jobs of one ``enqueue`` call may name together."""


MAX_RELEASED_DEPENDENTS = 1000
"""Jobs that are let go, or cancelled, in the transaction that ends what they waited for. Those beyond are
dealt with soon after, as many at a time, by whoever ended it or by ``rescue``."""


MAX_DEPENDENTS = 200
"""Most jobs that ``dependents`` tells of one by one."""


MAX_COUNT = 10_000
"""Counting stops here and says so."""


SEARCH_SECONDS = 1.0
"""How long a text or a condition may be looked for before a partial page is returned."""


COLUMN_SEARCH_SECONDS = 0.7
"""The same where columns tell (``uses_only_columns``). People wait a second at most for what looks like any
other filter, and the way to them takes its part of it."""


KEPT_ERRORS_FIRST = 10


KEPT_ERRORS_LAST = 10
"""Of a job's errors the first and the last ten are kept."""


MAX_STEPS = 1000
"""Most steps of a job. Counted by whoever runs it: nobody else can add one while the lease holds."""


MINUTES_KEPT_SECONDS = 48 * 3600.0
"""How far back the minute series and the durations of ``stats`` go."""


LANE_MINUTES_KEPT_SECONDS = 6 * 3600.0
"""How far back the minutes of each lane go. A thousand busy lanes are 360,000 rows in that time, as much as a
queue should carry for its charts; the series of all lanes together goes back further."""


MAX_LANES = 1000
"""Most lanes that are told of: the busiest, then those with the most unfinished jobs."""


MAX_LANE_SERIES = 50
"""Of so many of the busiest lanes the minutes are told one by one."""


MAX_SCANNED_JOBS = 10_000
"""Jobs that ``durations``, ``failures`` and ``repeats`` look at, the newest."""


MAX_GROUPS = 1000
"""Most groups that ``failures`` and ``repeats`` tell of."""


TREND_BUCKETS = 12
"""Into so many parts the window of ``failures`` is divided."""


MAX_COMPARED_PAYLOAD_BYTES = 1000
"""Longer payloads are not compared with each other: to look for repeats must not mean to read gigabytes."""


WORKERS_KEPT_SECONDS = 24 * 3600.0
"""How long a worker that vanished stays listed: somebody should be able to see that it did."""


MAX_WORKERS = 1000
"""Most workers that are listed."""


MAX_DOCUMENT_BYTES = 64 * 1024
"""Largest body of a document."""


MAX_DOCUMENT_NAME = 200
"""Longest kind and longest id of a document."""


MAX_HEALTH_FINDINGS = 50
"""Most ailments that are told of."""


MAX_EXPORT_BYTES = 16 * 1024 * 1024
"""``export_jobs`` ends a page before its jobs, with all that was saved of them, are larger, if it has one."""


MAX_LIMITED_TOPICS = 10_000
"""Most topics with limits: ``set_limits`` refuses one more."""


MAX_SCANNED_PER_LANE = 1000
"""Due jobs of a lane of a limited topic that a claim looks at, best first."""


MAX_SCANNED_KEYS = 1000
"""Keys of such a lane whose first jobs it looks at, when those did not fill it."""


MAX_BLOCKED_TOPICS = 100
"""Topics with limits and due jobs that ``held_back`` looks at, by name."""


MAX_SCANNED_KEYS_PER_TENANT = 50
"""Of one tenant, where tenants share fairly."""


MAX_SUMMARY_LENGTH = 200
"""``error_summary`` is cut to this many characters."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """Limits only the store can check, because they are about what is already there. 0 = unlimited."""

    max_topics: int = 0
    max_jobs_per_topic: int = 0  # pending and running ones


def check_batch(what: str, number: int, limit: int) -> None:
    """Refuse a batch that no store would write in one go."""
    if number > limit:
        raise LimitExceeded(f"{number:,} {what} in one call; the limit is {limit:,}, send them in several")
