"""What ends while somebody looks: the server, or the session. No page is left broken."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser import on_sqlite
from tests.browser.conftest import OpenPage
from tests.browser.site import Site
from tests.browser.troubles import Troubles


@on_sqlite
async def test_a_server_that_went_away_is_waited_for(page: Page, site: Site, troubles: Troubles) -> None:
    """It is told, what was shown stays, and when the server is back the page goes on by itself."""
    troubles.expect("ERR_CONNECTION_REFUSED")
    await site.shop.remind.options(delay=3600).enqueue(who="ada", about="tea")
    await page.goto("jobs")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(1)
    await page.evaluate("window.stayed = true")
    async with site.away():
        await expect(page.get_by_text("Connecting …")).to_be_visible()
        await page.get_by_role("link", name="Workers").first.click()
        await expect(page.get_by_text("This page could not be loaded")).to_be_visible()
        await page.go_back()
        await expect(page.get_by_role("main").get_by_text("The server cannot be reached")).to_be_visible()
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await site.shop.remind.options(delay=3600).enqueue(who="grace", about="ships")
    await expect(rows).to_have_count(2)
    await expect(page.get_by_text("The server cannot be reached")).to_have_count(0)
    assert await page.evaluate("window.stayed"), "the page was loaded again"


@on_sqlite
async def test_a_session_that_was_ended_elsewhere_leads_to_the_login(
    page: Page, site: Site, open_page: OpenPage, troubles: Troubles
) -> None:
    """And after the login to where one was."""
    troubles.expect("401")
    await page.goto("jobs?where=topic:reminders")
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    other = await open_page("access?tab=superusers")
    await other.get_by_role("button", name="Log out everywhere").click()
    await other.get_by_role("dialog").get_by_role("button", name="Log out everywhere").click()
    await expect(other.get_by_role("heading", name="Log in")).to_be_visible()
    site.forget_logins()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await page.get_by_label("Name").fill(site.login.name)
    await page.get_by_label("Password").fill(site.login.password)
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("combobox", name="Filter jobs")).to_have_value("topic:reminders")
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
