"""chancy on psycopg 3, with its asyncio executor."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

from chancy import Chancy, Queue, Worker, job
from talk import System, serve, tally


@job()
async def run(*, x: str, number: int, called: int) -> None:
    tally.note(number, called)
    if tally.pause:
        await asyncio.sleep(tally.pause)


class ChancySystem(System):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        self.options = options
        quiet = logging.getLogger("quiet")
        quiet.setLevel(logging.ERROR)
        pool = {"max_connection_pool_size": 20} if options["best"] else {}
        self.chancy = Chancy(url, log=quiet, **pool)
        await self.chancy.__aenter__()

    async def setup(self) -> None:
        await self.chancy.migrate()
        best = {"eager_polling": True, "polling_interval": 1} if self.options["best"] else {}
        # Handlers are coroutines, so its default of a process for each job is not for them.
        queue = Queue("default", concurrency=100, executor=Chancy.Executor.Async, **best)
        await self.chancy.declare(queue)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.chancy.push(run.job.with_kwargs(**payload))

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        jobs = [replace(run.job, kwargs=payload) for payload in payloads]
        async for _ in self.chancy.push_many(jobs):
            pass

    async def left(self) -> dict[str, int | None]:
        async with self.chancy.pool.connection() as connection, connection.cursor() as cursor:
            await cursor.execute(
                "SELECT count(*) FILTER (WHERE state NOT IN ('succeeded', 'failed')) AS unfinished,"
                " count(*) FILTER (WHERE state = 'succeeded') AS completed FROM chancy_jobs"
            )
            row: Any = await cursor.fetchone()
        return dict(row) if isinstance(row, dict) else {"unfinished": row[0], "completed": row[1]}

    async def work(self, concurrency: int) -> None:
        worker = Worker(self.chancy, register_signal_handlers=False)
        if self.options["best"]:
            worker.send_outgoing_interval = 0.05
        await worker.start()
        await asyncio.Event().wait()


if __name__ == "__main__":
    serve(ChancySystem())
