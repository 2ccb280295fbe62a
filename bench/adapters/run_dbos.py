"""dbos: each job is a workflow without steps on a queue."""

from __future__ import annotations

import asyncio
from typing import Any

import sqlalchemy
from dbos import DBOS, DBOSClient
from talk import BlockingSystem, serve, tally


@DBOS.workflow(name="job")
async def job(x: str, number: int, called: int) -> None:
    tally.note(number, called)
    if tally.pause:
        await asyncio.sleep(tally.pause)


class DbosSystem(BlockingSystem):
    bulk = 100

    async def open(self, url: str, options: dict[str, Any]) -> None:
        self.url = url
        self.options = options
        self.engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        self.client: DBOSClient | None = None

    def _config(self) -> Any:
        pool = {"sys_db_pool_size": 20} if self.options["best"] else {}
        return {"name": "bench", "system_database_url": self.url, "log_level": "ERROR", **pool}

    async def setup(self) -> None:
        DBOS(config=self._config())
        DBOS.launch()
        interval = {"polling_interval_sec": 0.02} if self.options["best"] else {}
        await DBOS.register_queue_async("jobs", worker_concurrency=100, **interval)
        await asyncio.to_thread(DBOS.destroy)

    def enqueue_now(self, payload: dict[str, Any]) -> None:
        if self.client is None:
            self.client = DBOSClient(system_database_url=self.url, system_database_pool_size=20)
        self.client.enqueue({"queue_name": "jobs", "workflow_name": "job"}, **payload)

    async def left(self) -> dict[str, int | None]:
        statement = (
            "SELECT count(*) FILTER (WHERE status IN ('ENQUEUED', 'PENDING')),"
            " count(*) FILTER (WHERE status = 'SUCCESS') FROM dbos.workflow_status"
        )
        with self.engine.connect() as connection:
            unfinished, completed = connection.execute(sqlalchemy.text(statement)).one()
        return {"unfinished": unfinished, "completed": completed}

    async def work(self, concurrency: int) -> None:
        DBOS(config=self._config())
        DBOS.launch()
        await asyncio.Event().wait()


if __name__ == "__main__":
    serve(DbosSystem())
