"""The program that gets killed: transfers between accounts, run by a worker in a process of its own.

``python -m tests.client.handler_transactions.bank`` with TIDEWHEEL_URL, TIDEWHEEL_LEASE and EVENTS set.
With DIE_AT the process ends with SIGKILL where a run first comes to that point; ``KILL_POINTS`` are
all of them.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from typing import Final

from tests.client.handler_transactions.ledger import ledger_of, mark
from tests.worker.victims import log
from tidewheel import Context, Retry, Tidewheel

KILL_POINTS: Final = (
    "before the first statement",
    "after the first account",
    "after the enqueue",
    "after the second account",
    "after the entry",
    "after a look",
)

app = Tidewheel()
_ledger = ledger_of(app.settings.url)
_die_at = os.environ.get("DIE_AT")


def _reached(ctx: Context, point: str) -> None:
    if point != _die_at:
        return
    try:
        os.close(os.open(os.environ["EVENTS"] + ".died", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return  # once is enough
    log("dies", ctx)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(max_attempts=50)
async def receipt(transfer: str) -> None:
    """Enqueued by each transfer, in its transaction."""


@app.task(max_attempts=50, retry=Retry.fixed(0.1))
async def transfer(ctx: Context, source: int, target: int, amount: int, pause: float = 0.0) -> int:
    first, second = mark(app.settings.url, 1), mark(app.settings.url, 2)
    change = f"UPDATE {_ledger.accounts} SET balance = balance + {first} WHERE id = {second}"
    # In the order of their numbers: two transfers that lock the same accounts must not wait for each other.
    one, other = sorted([(source, -amount), (target, amount)])
    _reached(ctx, KILL_POINTS[0])
    await ctx.transaction.execute(change, one[1], one[0])
    log("inside", ctx)
    _reached(ctx, KILL_POINTS[1])
    await asyncio.sleep(random.uniform(0, pause))
    await receipt.enqueue(transfer=str(ctx.job.id))
    _reached(ctx, KILL_POINTS[2])
    await ctx.transaction.execute(change, other[1], other[0])
    _reached(ctx, KILL_POINTS[3])
    await ctx.transaction.execute(f"INSERT INTO {_ledger.transfers} (job) VALUES ({first})", str(ctx.job.id))
    _reached(ctx, KILL_POINTS[4])
    await asyncio.sleep(random.uniform(0, pause))
    total = await ctx.transaction.fetchval(f"SELECT sum(balance) FROM {_ledger.accounts}")
    _reached(ctx, KILL_POINTS[5])
    log("outside", ctx)
    return int(total)


async def main() -> None:
    async with app:
        worker = app.worker(concurrency=4)
        asyncio.get_running_loop().call_soon(lambda: print("ready", flush=True))
        await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
    sys.exit(0)
