"""The pages and filters that are measured, and when a page counts as usable."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Final

from playwright.async_api import Page

NEWEST: Final = "newest"
"""Stands for the id of the newest job."""
_WHOLE: Final = 'main:not(:has([aria-label="Loading"], [aria-busy="true"]))'
"""No part of the page is still on its way."""


@dataclass(frozen=True, slots=True)
class View:
    """A page by its path, and what it must show: selectors of CSS, all of which find something."""

    path: str
    shows: tuple[str, ...]


ROWS: Final = ("main tr[data-row]",)
PAGES: Final = (
    # The verdict is known, and every part is there.
    View(
        "",
        (
            "main h1:not(.text-faint)",
            'section[aria-label="Figures"]',
            "main canvas",
            'section[aria-label="Queue depth by topic"] tbody tr',
            'section[aria-label="Busiest tasks"] tbody tr',
        ),
    ),
    View("jobs", ROWS),
    View("jobs?where=state:failed", ROWS),
    View(f"jobs/{NEWEST}", ('section[aria-label="Timeline"] li', 'section[aria-label="Payload"]')),
    View("failures", ("main [data-group]",)),
    View("topics", ("main tbody tr", "main h1 + p")),
    View("tasks", ("main tbody tr", "main h1 + p")),
    View("workers", ("main h1",)),  # nobody works: the page says so
    View("access", ("main tbody tr",)),
    View("access?tab=superusers", ("main tbody tr, main section li",)),
    View("audit", ("main section li",)),
)
FILTERS: Final = (
    *("state:pending", "state:completed", "state:running", "state:delayed", "state:retrying"),
    *("topic:topic-7", "task:job", "task:job state:failed", "state:failed topic:topic-7,topic-8"),
    *("age>1h", "age<10m", "age<1m state:failed", "worker:bench", "priority>0"),
    *("id:00000000-0000-7000-8000-000000000000", "key:nobody", "correlation_id:nobody", "tenant:acme"),
)
SCANS: Final = (
    *('error:"order 995"', 'error:"nothing says this"', "error:TimeoutError topic:topic-6"),
    *("payload.user_id:42", "payload.user_id:5000", "payload.user_id:42 state:failed"),
)
"""What is looked for in payloads and errors: a page, if only a partial one, after a second."""
_SHOWN: Final = "shows => shows.every(one => document.querySelector(one))"
_ANSWERED: Final = (
    f"""() => location.search.includes("where=") && document.querySelector({json.dumps(_WHOLE)})"""
)


async def usable_after(page: Page, address: str, view: View) -> float:
    """Seconds from an address to a page that shows what it is opened for, and answers to a key."""
    began = time.perf_counter()
    await page.goto(address, wait_until="commit")
    await page.wait_for_function(_SHOWN, arg=[_WHOLE, *view.shows])
    return await _answers(page, began)


async def filtered_after(page: Page, where: str) -> float:
    """Seconds from Enter in the filter bar to its first page of jobs, on a page that answers to a key."""
    bar = page.get_by_role("combobox", name="Filter")
    await _apply(page, "topic:nothing-is-here")
    await bar.fill(where)
    began = time.perf_counter()
    await _enter(page)
    return await _answers(page, began)


async def _apply(page: Page, where: str) -> None:
    await page.get_by_role("combobox", name="Filter").fill(where)
    await _enter(page)


async def _enter(page: Page) -> None:
    async with page.expect_response(lambda told: "where=" in told.url and "/api/jobs?" in told.url):
        await page.get_by_role("combobox", name="Filter").press("Enter")
    await page.wait_for_function(_ANSWERED)


async def _answers(page: Page, began: float) -> float:
    """The time until the shortcuts are shown, after a key: what is drawn but stands still is not usable."""
    await page.evaluate("document.activeElement?.blur()")  # in a bar, the key would be a letter
    await page.keyboard.press("?")
    await page.wait_for_function("() => document.querySelector('dialog[open]')")
    seconds = time.perf_counter() - began
    await page.keyboard.press("Escape")
    await page.wait_for_function("() => !document.querySelector('dialog[open]')")
    return seconds
