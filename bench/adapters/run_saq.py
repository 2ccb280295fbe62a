"""SAQ on Redis."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from saq import Queue, Worker
from saq.job import Job
from talk import System, serve, tally


async def job(_context: Any, *, x: str, number: int, called: int) -> None:
    tally.note(number, called)
    if tally.pause:
        await asyncio.sleep(tally.pause)


class SaqSystem(System):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        logging.disable(logging.INFO)
        self.options = options
        self.queue = Queue.from_url(url)
        await self.queue.connect()

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.queue.enqueue(Job("job", kwargs=payload))

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        await asyncio.gather(*map(self.enqueue_one, payloads))

    async def left(self) -> dict[str, int | None]:
        return {"unfinished": await self.queue.count("incomplete"), "completed": None}

    async def work(self, concurrency: int) -> None:
        best = {"concurrency": concurrency} if self.options["best"] else {}
        await Worker(self.queue, functions=[job], **best).start()


if __name__ == "__main__":
    serve(SaqSystem())
