"""Part of a crowd: many workers in one process, each with an app and database connections of its own.

``python -m tests.stores.postgres.many_workers_process NUMBER`` with TIDEWHEEL_URL and EVENTS set.
On SIGTERM it ends with a line of JSON: what its workers settled.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict

from tidewheel import Context, Tidewheel
from tidewheel.worker import Worker

_events = os.open(os.environ["EVENTS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def make_app() -> Tidewheel:
    app = Tidewheel()

    @app.task(max_attempts=20)
    async def work(ctx: Context) -> None:
        # One write to a file opened for appending: lines of different processes do not mix.
        os.write(_events, f"{ctx.job.id} {ctx.fence}\n".encode())

    return app


async def main(number: int) -> None:
    async with AsyncExitStack() as stack:
        workers: list[Worker] = []
        for _ in range(number):
            app = await stack.enter_async_context(make_app())
            workers.append(app.worker(handle_signals=False))

        def stop() -> None:
            for worker in workers:
                worker.stop()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
        running = asyncio.gather(*(worker.run() for worker in workers))
        print("ready", flush=True)
        await running
        tallies = [asdict(worker.tally) for worker in workers]
        print(json.dumps({name: sum(tally[name] for tally in tallies) for name in tallies[0]}), flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
