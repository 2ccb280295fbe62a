"""Tidewheel, on whatever store the URL names."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import tidewheel_scale
from talk import System, serve, tally

from tidewheel import Retry, Tidewheel


class TidewheelSystem(System):
    bulk = 10_000

    async def open(self, url: str, options: dict[str, Any]) -> None:
        self.url = url
        self.app = app = Tidewheel(url)
        note = tally.note

        async def job(x: str, number: int = 0, called: int = 0) -> None:
            note(number, called)

        async def pausing_job(x: str, number: int = 0, called: int = 0) -> None:
            note(number, called)
            await asyncio.sleep(tally.pause)

        def sync_job(x: str, number: int = 0, called: int = 0) -> None:
            note(number, called)

        match options["kind"]:
            case "sync":
                self.job = app.task(name="job")(sync_job)
            case "pause":
                self.job = app.task(name="job")(pausing_job)
            case "flaky":
                self.job = app.task(name="job", retry=Retry.fixed(0.05, jitter=False))(job)
            case _:
                self.job = app.task(name="job")(job)
        self.topics = options.get("topics", 1)
        for number in range(1, self.topics):
            app.task(name=f"job-{number}")(job)
        await app.open()

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.job.enqueue(**payload)

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        if self.topics == 1:
            await self.job.enqueue_many(payloads)
            return
        for topic in range(self.topics):
            if mine := payloads[topic :: self.topics]:
                await self.app.enqueue_many(f"job-{topic}" if topic else "job", mine)

    async def left(self) -> dict[str, int | None]:
        stats = await self.app.stats()
        return {"unfinished": stats.pending + stats.delayed + stats.running, "completed": stats.completed}

    async def work(self, concurrency: int) -> None:
        await self.app.run_worker(concurrency=concurrency)

    # -- what only Tidewheel is asked ---------------------------------------------------------------------

    async def do_grow(self, finished: int, waiting: int, delayed: int) -> dict[str, Any]:
        await tidewheel_scale.grow(self.app.store, finished, waiting, delayed)
        return {}

    async def do_flat(self, number: int, rounds: int) -> dict[str, Any]:
        return await tidewheel_scale.flat(self.url, number, rounds)

    async def do_urgent(self, number: int, gap: float) -> dict[str, Any]:
        for index in range(number):
            payload = {"x": "y", "number": index, "called": time.monotonic_ns()}
            await self.app.enqueue(self.job, payload, priority=150)
            await asyncio.sleep(gap)
        return {}

    async def do_late(self, number: int, open_seconds: float, backlog: int) -> dict[str, Any]:
        import tidewheel_late  # needs the driver of PostgreSQL

        opened = await tidewheel_late.late(
            self.url, number, open_seconds, lambda: self.do_fill(jobs=backlog, payload=100)
        )
        return {"open": opened, **await self.left()}

    async def do_look(self, rounds: int) -> dict[str, Any]:
        return await tidewheel_scale.look(self.app, rounds)


if __name__ == "__main__":
    serve(TidewheelSystem())
