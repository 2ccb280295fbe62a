"""arq on Redis."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from arq import create_pool
from arq.connections import RedisSettings
from arq.constants import default_queue_name
from arq.worker import Worker
from talk import System, serve, tally


async def job(_context: Any, x: str, number: int, called: int) -> None:
    tally.note(number, called)
    if tally.pause:
        await asyncio.sleep(tally.pause)


class ArqSystem(System):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        logging.disable(logging.INFO)
        self.options = options
        self.settings = RedisSettings.from_dsn(url)
        self.redis = await create_pool(self.settings)

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.redis.enqueue_job("job", **payload)

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        await asyncio.gather(*map(self.enqueue_one, payloads))

    async def left(self) -> dict[str, int | None]:
        return {"unfinished": await self.redis.zcard(default_queue_name), "completed": None}

    async def work(self, concurrency: int) -> None:
        best = (
            {"max_jobs": concurrency, "poll_delay": 0.005, "keep_result": 0} if self.options["best"] else {}
        )
        worker = Worker([job], redis_settings=self.settings, handle_signals=False, **best)
        await worker.async_run()


if __name__ == "__main__":
    serve(ArqSystem())
