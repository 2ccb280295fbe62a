"""A hundred thousand jobs run again, from the page that lists them."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass

from playwright.async_api import Page

LONGEST_SECONDS = 900.0
_BARS = """() => [...document.querySelectorAll("[role=progressbar][aria-valuenow]")].map(
    one => Number(one.getAttribute("aria-valuenow")))"""


@dataclass(frozen=True, slots=True)
class Requeued:
    """What whoever started it saw."""

    preview_seconds: float
    """from the button to how many it would be"""
    offered: str
    """the words of the button that starts it"""
    seconds: float
    shown: tuple[float, ...]
    """the values the bar of progress had, one after the other; empty when there was none"""
    outcome: str


async def requeue(page: Page, address: str) -> Requeued:
    """Everything that failed runs again."""
    await page.goto(f"{address}/ui/jobs?where=state:failed")
    await page.get_by_label("Select all in sight").check()
    await page.get_by_role("button", name=re.compile("^All .* that match$")).click()
    began = time.perf_counter()
    await page.get_by_role("toolbar").get_by_role("button", name="Requeue").click()
    start = page.get_by_role("dialog").get_by_role("button", name=re.compile(r"^Requeue [\d,+]+ jobs"))
    await start.wait_for()
    preview_seconds = time.perf_counter() - began
    offered = await start.inner_text()
    began = time.perf_counter()
    await start.click()
    toast = page.get_by_text(re.compile("jobs requeued"))
    shown: list[float] = []
    while not await toast.count():
        if time.perf_counter() - began > LONGEST_SECONDS:
            raise TimeoutError(f"not requeued within {LONGEST_SECONDS:g} s; progress was {shown[-5:]}")
        shown += [value for value in await page.evaluate(_BARS) if value not in shown]
        await asyncio.sleep(0.1)
    seconds = time.perf_counter() - began
    return Requeued(preview_seconds, offered, seconds, tuple(shown), await toast.first.inner_text())
