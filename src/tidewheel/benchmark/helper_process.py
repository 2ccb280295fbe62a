"""The program of the worker's own process."""

from __future__ import annotations

import asyncio
from typing import Any

from tidewheel.benchmark.bench_app import make_bench_app
from tidewheel.orders import read_orders, when_called_off


def main() -> None:
    """Read the orders, work until called off."""
    orders = read_orders()
    if orders is not None:
        asyncio.run(_work(orders))


async def _work(orders: dict[str, Any]) -> None:
    bench = make_bench_app(orders["url"], orders["poll_interval"])
    async with bench.app as app:
        worker = app.worker(topics=[orders["topic"]], handle_signals=False)
        when_called_off(lambda: worker.stop(now=True))
        await worker.run()
