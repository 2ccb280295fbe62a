"""procrastinate on psycopg 3."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from procrastinate import App, PsycopgConnector
from talk import System, serve, tally


class ProcrastinateSystem(System):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        logging.disable(logging.INFO)
        pool = {"max_size": 20} if options["best"] else {}
        self.app = app = App(connector=PsycopgConnector(conninfo=url, **pool))
        note = tally.note

        @app.task(name="job")
        async def job(x: str, number: int, called: int) -> None:
            note(number, called)
            if tally.pause:
                await asyncio.sleep(tally.pause)

        self.job = job
        await app.open_async()

    async def setup(self) -> None:
        await self.app.schema_manager.apply_schema_async()

    async def enqueue_one(self, payload: dict[str, Any]) -> None:
        await self.job.defer_async(**payload)

    async def enqueue_bulk(self, payloads: list[dict[str, Any]]) -> None:
        await self.job.batch_defer_async(*payloads)

    async def left(self) -> dict[str, int | None]:
        row = await self.app.connector.execute_query_one_async(
            "SELECT count(*) FILTER (WHERE status IN ('todo', 'doing')) AS unfinished,"
            " count(*) FILTER (WHERE status = 'succeeded') AS completed FROM procrastinate_jobs"
        )
        return dict(row)

    async def work(self, concurrency: int) -> None:
        await self.app.run_worker_async(concurrency=concurrency, install_signal_handlers=False)


if __name__ == "__main__":
    serve(ProcrastinateSystem())
