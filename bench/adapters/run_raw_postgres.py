"""The limit of the design on PostgreSQL: the schema's own functions in a bare loop on one connection."""

from __future__ import annotations

import json
from collections import Counter
from itertools import accumulate
from typing import Any

from run_raw_store import BATCH, RawStoreSystem
from talk import serve, tally

from tidewheel.core.clock import SystemClock
from tidewheel.core.ids import new_id
from tidewheel.core.model import NewJob
from tidewheel.stores.postgres.claims import ERROR_MESSAGES
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.postgres.enqueue import enqueue_arguments
from tidewheel.stores.postgres.leased_batches import PLACES_PER_BATCH
from tidewheel.stores.postgres.location import parse_url
from tidewheel.stores.sql_files import SqlFile

VERBS = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")
LEASE_US = 60_000_000


class RawPostgresSystem(RawStoreSystem):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        await super().open(url, options)
        self.database = Database(parse_url(url), SystemClock())
        await self.database.open()
        self.connection = await self.database.connect()

    def _statement(self, verb: str) -> str:
        return self.database.qualify(VERBS[verb])

    async def work(self, concurrency: int) -> None:
        claim = await self.connection.prepare(self._statement("claim"))
        complete = await self.connection.prepare(self._statement("complete_batched"))
        urgency = number = None  # where the last claim ended, so that the next does not walk over dead rows
        while True:
            mark = (None, None, None) if number is None else ([urgency], [number], [None])
            rows = await claim.fetch(
                None,
                "raw",
                ["job"],
                ["job"],
                None,
                *mark,
                BATCH,
                LEASE_US,
                None,
                False,
                True,
                ERROR_MESSAGES,
                1,
                1,
                BATCH,
                None,
                True,
            )
            jobs = rows[:-1]  # the last row says what comes next
            if not jobs:
                return
            last = max(jobs, key=lambda row: row["o_number"])
            urgency, number = -last["o_priority"], last["o_number"]
            tally.note_many(len(jobs))
            jobs.sort(key=lambda row: row["o_fence"])
            batches = Counter([row["o_fence"] // PLACES_PER_BATCH for row in jobs])
            await complete.fetch(
                None,
                list(batches),
                [
                    ((1 << jobs_in_batch) - 1 << 1) - (jobs_in_batch == PLACES_PER_BATCH - 1) * 2**64
                    for jobs_in_batch in batches.values()
                ],
                [0, *accumulate(batches.values())][:-1],
                [row["o_id"] for row in jobs],
                [0] * len(jobs),
                None,
            )

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        new = [
            NewJob(id=new_id(), topic="job", task="job", payload=json.dumps(payload).encode())
            for payload in payloads
        ]
        arguments = enqueue_arguments(new, None, again=False)
        await self.connection.fetch(self._statement("enqueue"), *arguments)


if __name__ == "__main__":
    serve(RawPostgresSystem())
