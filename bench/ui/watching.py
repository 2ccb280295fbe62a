"""What tabs that stay open cost: the server's time and memory, and the browser's."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import CDPSession, Page

from bench.machine import resident_megabytes, tree_cpu_seconds


@dataclass(frozen=True, slots=True)
class Weight:
    """What a tab holds after its garbage is gone, and how long its main thread has been busy."""

    heap_megabytes: float
    nodes: int
    listeners: int
    busy_seconds: float


class Tab:
    """A page that is watched."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self.page = page
        self._session = session
        self.requests: Counter[str] = Counter()
        page.on("request", lambda request: self.requests.update([urlsplit(request.url).path]))

    @property
    def name(self) -> str:
        return urlsplit(self.page.url).path.removeprefix("/ui/") or "overview"

    @classmethod
    async def watch(cls, page: Page) -> Tab:
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable")
        return cls(page, session)

    async def weigh(self) -> Weight:
        await self._session.send("HeapProfiler.collectGarbage")
        told: dict[str, Any] = await self._session.send("Performance.getMetrics")
        named = {one["name"]: one["value"] for one in told["metrics"]}
        return Weight(
            named["JSHeapUsedSize"] / 1e6,
            int(named["Nodes"]),
            int(named["JSEventListeners"]),
            named["TaskDuration"],
        )


async def watched(name: str, tabs: list[Tab], pid: int, seconds: float, parts: int = 4) -> None:
    """Print what the server and each tab need and hold, part by part of this time."""
    for part in range(parts):
        for tab in tabs:
            tab.requests.clear()
        before = [await tab.weigh() for tab in tabs]
        began, cpu = time.perf_counter(), tree_cpu_seconds(pid)
        await asyncio.sleep(seconds / parts)
        took, used = time.perf_counter() - began, tree_cpu_seconds(pid) - cpu
        asked = sum(tab.requests.total() for tab in tabs) / took
        memory = resident_megabytes(pid)
        server = f"server {memory:.0f} MB {used / took:.1%} of a core, {asked:.1f} requests/s"
        after = [await tab.weigh() for tab in tabs]
        told = [
            f"{tab.name} {now.heap_megabytes:.1f} MB, {now.nodes} nodes, {now.listeners} listeners, "
            f"{(now.busy_seconds - then.busy_seconds) / took:.1%} busy"
            for tab, then, now in zip(tabs, before, after, strict=True)
        ]
        print(f"{name} {part + 1}/{parts}: {'; '.join([server, *told])}", flush=True)
