"""A process that runs jobs of limited topics and writes down when each began and ended.

``python -m bench.limits.worker URL FILE CONCURRENCY``. Lines go to the file with one write each, so that
those of several processes do not mix: ``+`` or ``-``, the moment, the process, the tenant and what the job
was given.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from tidewheel import Context, Tidewheel

LEASE_SECONDS = 2.0
"""As short as it may be: this is how long a killed worker's slots stay taken."""


def main() -> None:
    url, file, concurrency = sys.argv[1:]
    journal = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    app = Tidewheel(url, lease=LEASE_SECONDS)

    def note(sign: str, ctx: Context, number: float) -> None:
        os.write(journal, f"{sign} {time.time():.6f} {os.getpid()} {ctx.tenant} {number}\n".encode())

    @app.task
    async def limited(ctx: Context, number: float, seconds: float) -> None:
        note("+", ctx, number)
        await asyncio.sleep(seconds)
        note("-", ctx, number)

    async def run() -> None:
        async with app:
            print("ready", flush=True)
            await app.run_worker(concurrency=int(concurrency))

    asyncio.run(run())


if __name__ == "__main__":
    main()
