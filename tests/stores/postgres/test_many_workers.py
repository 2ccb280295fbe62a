"""Many workers claim at once: no job is completed twice, and nobody deadlocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.servers import PgBouncer, PostgresServer
from tests.servers.shared import fresh_schema
from tests.stores.postgres.many_workers import crowd_run

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the crowd is stopped with POSIX signals")


async def test_a_crowd_of_workers_completes_every_job_once(postgres: PostgresServer, tmp_path: Path) -> None:
    """Two processes with ten workers each, all claiming while jobs come in."""
    url = postgres.url(schema=fresh_schema())
    books = await crowd_run(postgres, url, tmp_path, jobs=1500, workers=20, processes=2)
    assert books.problems == []
    assert books.runs == 1500


async def test_a_crowd_behind_a_pooler_completes_every_job_once(
    postgres: PostgresServer, pgbouncer: PgBouncer, tmp_path: Path
) -> None:
    """The same through PgBouncer in transaction mode: statements of one worker run on any connection."""
    url = pgbouncer.url(schema=fresh_schema())
    books = await crowd_run(postgres, url, tmp_path, jobs=1500, workers=20, processes=2)
    assert books.problems == []
    assert books.runs == 1500
