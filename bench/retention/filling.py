"""Millions of finished jobs whose time is over, as fast as a database takes them: by its own SQL."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from bench.grounds import execute

TOGETHER: Final = 63
"""Jobs that were finished by one statement."""
TOPICS: Final = 20
BODY: Final = '{"user_id": 42, "note": "' + "x" * 100 + '"}'
PART: Final = 100_000

_POSTGRES: Final = (
    """
    INSERT INTO tidewheel.finished_jobs (
        id, number, priority, run_at, created_at, finished_at, prune_at, fence, claimed_at, started_at,
        attempt, max_attempts, reserves, state, format, has_separate_body, topic, task, tenant, worker,
        retention_us, payload, result
    )
    SELECT (lpad(to_hex({since} / 1000 + g), 12, '0') || '70008000' || substr(md5(g::text), 1, 12))::uuid,
           -g, 0, {since}, {since}, {since}, {since} + g / {together}, g, {since}, {since}, 1, 10, 1, 3, 0,
           false, 'old-' || g / 1000 % {topics}, 'work', 'root', 'worker', 1000, '{body}', 'null'
    FROM generate_series({first}, {last}) AS g
    """,
    """
    INSERT INTO tidewheel.retention_queue (prune_at, number, ids)
    SELECT prune_at, min(number), array_agg(id) FROM tidewheel.finished_jobs
    WHERE number BETWEEN -{last} AND -{first} GROUP BY prune_at
    """,
    """
    INSERT INTO tidewheel.counter_deltas (minute, tenant, topic, task, completed)
    SELECT 0, 'root', topic, 'work', count(*) FROM tidewheel.finished_jobs
    WHERE number BETWEEN -{last} AND -{first} GROUP BY topic
    """,
)
_SQLITE: Final = (
    """
    INSERT INTO tidewheel_jobs (
        number, id, state, topic, task, tenant, priority, run_at, created_at, attempt, max_attempts, fence,
        claimed_at, started_at, finished_at, prune_at, retention_us, worker
    )
    WITH RECURSIVE n(g) AS (SELECT {first} UNION ALL SELECT g + 1 FROM n WHERE g < {last})
    SELECT -g, randomblob(16), 3, 'old-' || g / 1000 % {topics}, 'work', 'root', 0, {since}, {since}, 1, 10,
           g, {since}, {since}, {since}, {since} + g / {together}, 1000, 'worker'
    FROM n
    """,
    """
    INSERT INTO tidewheel_bodies (number, format, payload)
    SELECT number, 0, CAST('{body}' AS BLOB) FROM tidewheel_jobs WHERE number BETWEEN -{last} AND -{first}
    """,
    """
    INSERT INTO tidewheel_results (number, result)
    SELECT number, CAST('null' AS BLOB) FROM tidewheel_jobs WHERE number BETWEEN -{last} AND -{first}
    """,
    """
    INSERT INTO tidewheel_job_counts (tenant, topic, task, state, n)
    SELECT 'root', topic, 'work', 3, count(*) FROM tidewheel_jobs WHERE number BETWEEN -{last} AND -{first}
    GROUP BY topic ON CONFLICT DO UPDATE SET n = n + excluded.n
    """,
)


def fill(url: str, jobs: int) -> None:
    """So many jobs that completed a month ago. Their numbers are below zero, in nobody's way."""
    since = int(time.time() - 30 * 86_400) * 1_000_000
    for first in range(1, jobs + 1, PART):
        words = {
            "since": since,
            "first": first,
            "last": min(first + PART - 1, jobs),
            "together": TOGETHER,
            "topics": TOPICS,
            "body": BODY,
        }
        if url.startswith("sqlite"):
            with sqlite3.connect(url.removeprefix("sqlite:///").partition("?")[0]) as connection:
                for statement in _SQLITE:
                    connection.execute(statement.format(**words))
            connection.close()
        else:
            execute(url, *(statement.format(**words) for statement in _POSTGRES))
