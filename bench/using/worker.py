"""A worker that tells when each job began: ``python -m bench.using.worker URL``."""

from __future__ import annotations

import asyncio
import sys
import time

from tidewheel import Tidewheel


async def main(url: str) -> None:
    app = Tidewheel(url)

    @app.task
    async def notice(number: int) -> None:
        print(number, time.time(), flush=True)

    async with app:
        await app.run_worker(topics=["notice"])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
