"""oban for Python, on psycopg 3."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from oban import Oban, worker
from oban.schema import install
from psycopg_pool import AsyncConnectionPool
from talk import System, serve, tally


@worker(queue="default")
class Job:
    async def process(self, job: Any) -> None:
        tally.note(job.args["number"], job.args["called"])
        if tally.pause:
            await asyncio.sleep(tally.pause)


class ObanSystem(System):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        logging.disable(logging.INFO)
        self.options = options
        self.pool = AsyncConnectionPool(
            url, min_size=1, max_size=20, open=False, kwargs={"autocommit": False}
        )
        await self.pool.open()
        self.client = Oban(pool=self.pool, name="client")

    async def setup(self) -> None:
        await install(self.pool)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.client.enqueue(Job.new(payload))

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        await self.client.enqueue_many([Job.new(payload) for payload in payloads])

    async def left(self) -> dict[str, int | None]:
        async with self.pool.connection() as connection:
            cursor = await connection.execute(
                "SELECT count(*) FILTER (WHERE state::text NOT IN ('completed', 'cancelled', 'discarded')),"
                " count(*) FILTER (WHERE state = 'completed') FROM oban_jobs"
            )
            unfinished, completed = await cursor.fetchone() or (0, 0)
        return {"unfinished": unfinished, "completed": completed}

    async def work(self, concurrency: int) -> None:
        queue = {"limit": concurrency}
        if self.options["best"]:
            queue["debounce_interval"] = 0.001
        await Oban(pool=self.pool, queues={"default": queue}).start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    serve(ObanSystem())
