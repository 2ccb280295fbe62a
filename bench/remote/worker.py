"""``python -m bench.remote.worker KIND LOG``: a worker of ``TIDEWHEEL_URL``, a store or a server.

Every run appends a line to the log when it begins and one when it ends, each in one write.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from tidewheel import Context, Tidewheel

KIND, LOG = sys.argv[1:]
app = Tidewheel(lease=2)
lines = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def say(what: str, n: int, ctx: Context) -> None:
    line = {
        "what": what,
        "kind": KIND,
        "n": n,
        "attempt": ctx.attempt,
        "fence": ctx.fence,
        "pid": os.getpid(),
    }
    os.write(lines, json.dumps(line).encode() + b"\n")


@app.task(max_attempts=100)
async def count(ctx: Context, n: int, seconds: float = 0.0) -> dict[str, object]:
    say("start", n, ctx)
    await asyncio.sleep(seconds)
    say("end", n, ctx)
    return {"kind": KIND, "fence": ctx.fence}


async def main() -> None:
    async with app:
        await app.run_worker(concurrency=20)


if __name__ == "__main__":
    asyncio.run(main())
