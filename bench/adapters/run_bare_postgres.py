"""What the server gives to the simplest queue: a small table, 500 jobs at a time. No code of Tidewheel.

The yardstick of ``--quick``: it gets faster and slower with the machine, and with nothing else.
"""

from __future__ import annotations

import json
from typing import Any

import asyncpg
from talk import GroupedSystem, serve, tally

BATCH = 500

CLAIM = """
UPDATE jobs SET state = 1, worker = $1
WHERE id = ANY (ARRAY (
    SELECT id FROM jobs WHERE state = 0 AND id > $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
))
RETURNING id, payload
"""

COMPLETE = """
WITH gone AS (DELETE FROM jobs WHERE id = ANY ($1::bigint[]) RETURNING id, payload)
INSERT INTO history (id, payload) SELECT id, payload FROM gone
"""


class BarePostgresSystem(GroupedSystem):
    bulk = 10_000

    async def open(self, url: str, options: dict[str, Any]) -> None:
        self.connection = await asyncpg.connect(url)
        await self.connection.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")

    async def setup(self) -> None:
        await self.connection.execute(
            "CREATE TABLE jobs (id bigserial PRIMARY KEY, state int DEFAULT 0, worker text, payload text);"
            "CREATE INDEX ready ON jobs (id) WHERE state = 0;"
            "CREATE TABLE history (id bigint PRIMARY KEY, finished timestamptz DEFAULT now(), payload text)"
        )

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        await self.connection.execute(
            "INSERT INTO jobs (payload) SELECT unnest($1::text[])",
            [json.dumps(payload) for payload in payloads],
        )

    async def left(self) -> dict[str, int | None]:
        return {
            "unfinished": await self.connection.fetchval("SELECT count(*) FROM jobs"),
            "completed": await self.connection.fetchval("SELECT count(*) FROM history"),
        }

    async def work(self, concurrency: int) -> None:
        position = 0
        while rows := await self.connection.fetch(CLAIM, "bare", position, BATCH):
            numbers = [row["id"] for row in rows]
            position = max(numbers)
            tally.note_many(len(numbers))
            await self.connection.execute(COMPLETE, numbers)


if __name__ == "__main__":
    serve(BarePostgresSystem())
