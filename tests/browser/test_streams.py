"""Event streams of tabs: browsers give all tabs of a server six connections together."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser import on_sqlite
from tests.browser.conftest import OpenPage
from tests.browser.site import Site
from tests.browser.tab_visibility import hide

KNOWN_STREAMS = """
    window.streams = [];
    window.EventSource = class extends EventSource {
        constructor(url) { super(url); streams.push(this); }
    };
"""
OPEN = "streams.filter(one => one.readyState !== EventSource.CLOSED).length"


async def _streams(page: Page, number: int) -> None:
    await page.wait_for_function(f"() => {OPEN} === {number}")


@on_sqlite
async def test_a_tab_that_nobody_looks_at_holds_no_stream(open_page: OpenPage, site: Site) -> None:
    """Or the seventh tab would wait for ever. In sight again, it is told what happened meanwhile."""
    job = await site.shop.remind.options(delay=3600).enqueue(who="ada", about="tea")
    page = await open_page(None)
    await page.clock.install()
    await page.add_init_script(KNOWN_STREAMS)
    await page.goto(f"jobs/{job.id}")
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await _streams(page, 2)  # of all topics, and of this job
    await hide(page)
    await page.clock.fast_forward(6000)  # who only changes tabs for a moment keeps it
    await _streams(page, 0)
    await job.cancel()
    await hide(page, hidden=False)
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await expect(page.locator("main").get_by_text("Cancelled").first).to_be_visible()
    await _streams(page, 1)  # what has ended is not listened to
