"""dramatiq on Redis; its handlers run on threads."""

from __future__ import annotations

import logging
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from talk import BlockingSystem, serve, tally


class DramatiqSystem(BlockingSystem):
    async def open(self, url: str, options: dict[str, Any]) -> None:
        logging.disable(logging.WARNING)
        self.options = options
        self.broker = RedisBroker(url=url)
        dramatiq.set_broker(self.broker)

        @dramatiq.actor(actor_name="job")
        def job(x: str, number: int, called: int) -> None:
            tally.note(number, called)
            if tally.pause:
                time.sleep(tally.pause)

        self.job = job

    def enqueue_now(self, payload: dict[str, Any]) -> None:
        self.job.send(**payload)

    async def left(self) -> dict[str, int | None]:
        # Messages stay in this table until they are acknowledged.
        return {"unfinished": self.broker.client.hlen("dramatiq:default.msgs"), "completed": None}

    async def work(self, concurrency: int) -> None:
        best = {"worker_timeout": 10} if self.options["best"] else {}
        if tally.pause:
            best["worker_threads"] = concurrency
        dramatiq.Worker(self.broker, **best).start()


if __name__ == "__main__":
    serve(DramatiqSystem())
