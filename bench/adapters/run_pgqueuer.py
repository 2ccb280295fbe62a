"""pgqueuer on asyncpg."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, PgQueuer
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from talk import System, serve, tally


class PgQueuerSystem(System):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        self.options = options
        # A pool, so that concurrent callers do not wait for one connection.
        self.pool = await asyncpg.create_pool(url, min_size=1, max_size=options["pool"])
        self.queries = Queries(AsyncpgPoolDriver(self.pool))
        self.connection = await asyncpg.connect(url)

    async def setup(self) -> None:
        await self.queries.install()

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.queries.enqueue("job", json.dumps(payload).encode())

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        number = len(payloads)
        bodies: list[bytes | None] = [json.dumps(payload).encode() for payload in payloads]
        await self.queries.enqueue(["job"] * number, bodies, [0] * number)

    async def left(self) -> dict[str, int | None]:
        unfinished = await self.connection.fetchval("SELECT count(*) FROM pgqueuer")
        completed = await self.connection.fetchval(
            "SELECT count(*) FROM pgqueuer_log WHERE status = 'successful'"
        )
        return {"unfinished": unfinished, "completed": completed}

    async def work(self, concurrency: int) -> None:
        worker = PgQueuer(AsyncpgDriver(self.connection))
        note = tally.note

        def run(payload: dict[str, Any]) -> None:
            note(payload["number"], payload["called"])

        if self.options["kind"] == "sync":

            @worker.entrypoint("job")
            async def job(job: Job) -> None:
                # As its error message recommends: it has no handlers that are plain functions.
                await asyncio.to_thread(run, json.loads(job.payload or b""))
        else:

            @worker.entrypoint("job")
            async def job(job: Job) -> None:
                run(json.loads(job.payload or b""))
                if tally.pause:
                    await asyncio.sleep(tally.pause)

        if self.options["best"]:
            await worker.run(batch_size=concurrency)
        else:
            await worker.run()


if __name__ == "__main__":
    serve(PgQueuerSystem())
