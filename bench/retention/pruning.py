"""``python -m bench.retention.pruning URL``: prunes as a worker does, until its input ends."""

from __future__ import annotations

import asyncio
import sys

from tidewheel import Tidewheel
from tidewheel.worker.store_maintenance import Pruner


async def main(url: str) -> None:
    async with Tidewheel(url) as app:
        pruner = Pruner(app.store, app.clock)
        print("ready", flush=True)
        work = asyncio.create_task(pruner.prune_backlog())
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled() and (error := work.exception()) is not None:
            raise error
        await app.store.remove_document("turn", "prune")
    print(sum(pruner.pruned.values()), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
