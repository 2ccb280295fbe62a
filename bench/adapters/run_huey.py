"""huey on SQLite, committing with fsync like everybody else here. Takes a job out before it runs it."""

from __future__ import annotations

import logging
import time
from typing import Any

from huey import SqliteHuey
from talk import BlockingSystem, serve, tally


class HueySystem(BlockingSystem):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        logging.disable(logging.INFO)
        self.options = options
        self.huey = huey = SqliteHuey(
            "jobs", filename=url.removeprefix("sqlite:///"), fsync=True, results=False
        )
        note = tally.note

        @huey.task(retries=1 if options["kind"] == "flaky" else 0)
        def job(x: str, number: int, called: int) -> None:
            note(number, called)
            if tally.pause:
                time.sleep(tally.pause)

        self.job = job

    def enqueue_now(self, payload: dict[str, Any]) -> None:
        self.job(**payload)

    async def left(self) -> dict[str, int | None]:
        return {"unfinished": self.huey.pending_count() + self.huey.scheduled_count(), "completed": None}

    async def work(self, concurrency: int) -> None:
        if self.options["best"]:
            workers = concurrency if tally.pause else self.options["workers"]
            delays = {"workers": workers, "initial_delay": 0.001, "max_delay": 0.001}
        else:
            delays = {}
        self.huey.create_consumer(periodic=False, **delays).start()


if __name__ == "__main__":
    serve(HueySystem())
