"""The program of the worker's own process."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from typing import Any

from windlass.benchmark.bench_app import make_bench_app


def main() -> None:
    """Read the orders, work until standard input ends."""
    # By number: a thread that waits inside a Python file object would keep the interpreter from ending.
    number = sys.stdin.fileno()
    orders = b""
    while not orders.endswith(b"\n"):
        piece = os.read(number, 65_536)
        if not piece:
            return  # called off before it began
        orders += piece
    asyncio.run(_work(json.loads(orders), number))


async def _work(orders: dict[str, Any], number: int) -> None:
    bench = make_bench_app(orders["url"], orders["poll_interval"])
    async with bench.app as app:
        worker = app.worker(topics=[orders["topic"]], handle_signals=False)

        def listen() -> None:
            while os.read(number, 64):
                pass
            worker.stop(now=True)

        threading.Thread(target=listen, name="windlass-parent", daemon=True).start()
        await worker.run()
