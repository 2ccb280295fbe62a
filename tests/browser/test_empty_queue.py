"""The first minutes: nothing has happened yet, and every page says what will be there and how to get it."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser import on_sqlite
from tests.browser.axe import accessible
from tests.browser.conftest import PHONE, OpenPage

EMPTY = {
    "": "enqueue",
    "jobs": "No jobs yet",
    "jobs?where=topic:mail": "No job matches",
    "failures": "No job has failed",
    "failures?where=topic:mail": "No failed job matches",
    "topics": "No topics yet",
    "topics?limited=1": "No topics yet",
    "schedules": "No schedules yet",
    "workers": "tidewheel worker",
    "access": "No API keys yet",
    "audit?actor=nobody": "Nothing yet",
}


@on_sqlite
async def test_empty_pages_teach(open_page: OpenPage) -> None:
    """What the page is for, with a line of code or a way on; readable on a phone."""
    page: Page = await open_page(viewport=PHONE)
    for path, words in EMPTY.items():
        await page.goto(path)
        await expect(page.get_by_role("main").get_by_text(words).first).to_be_visible()
        await accessible(page)
        assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
