"""Windlass, on whatever store the URL names."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from talk import System, serve, tally

from windlass import Windlass


class WindlassSystem(System):
    bulk = 10_000

    async def open(self, url: str, options: dict[str, Any]) -> None:
        self.app = app = Windlass(url)
        note = tally.note

        if options["kind"] == "sync":

            @app.task(name="job")
            def job(x: str, number: int = 0, called: int = 0) -> None:
                note(number, called)

        elif options["kind"] == "pause":

            @app.task(name="job")
            async def job(x: str, number: int = 0, called: int = 0) -> None:
                note(number, called)
                await asyncio.sleep(tally.pause)

        elif options["kind"] == "flaky":

            @app.task(name="job", retry=[0.05])
            async def job(x: str, number: int = 0, called: int = 0) -> None:
                note(number, called)

        else:

            @app.task(name="job")
            async def job(x: str, number: int = 0, called: int = 0) -> None:
                note(number, called)

        self.job = job
        await app.open()

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.job.enqueue(**payload)

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        await self.job.enqueue_many(payloads)

    async def left(self) -> dict[str, int | None]:
        stats = await self.app.stats()
        return {
            "unfinished": stats.pending + stats.delayed + stats.running,
            "completed": stats.completed,
        }

    async def work(self, concurrency: int) -> None:
        await self.app.run_worker(concurrency=concurrency)

    async def close(self) -> None:
        await self.app.close()


if __name__ == "__main__":
    serve(WindlassSystem())
