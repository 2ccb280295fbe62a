"""The way in and out, and what guards the pages."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.browser import on_sqlite
from tests.browser.axe import accessible
from tests.browser.conftest import PHONE, OpenPage
from tests.browser.site import Site
from tests.browser.troubles import Troubles
from tidewheel.server.asgi import PAGE_POLICY


async def test_a_superuser_logs_in_and_out(visitor: Page, site: Site) -> None:
    """The page asked for is the page shown after the login; after the logout there is nothing to see."""
    await visitor.goto("workers")
    await expect(visitor.get_by_role("heading", name="Log in")).to_be_visible()
    await visitor.get_by_label("Name").fill(site.login.name)
    await visitor.get_by_label("Password").fill(site.login.password)
    await visitor.get_by_label("Password").press("Enter")
    await expect(visitor.get_by_role("heading", name="Workers", level=1)).to_be_visible()
    assert visitor.url == site.url + "workers"
    await visitor.reload()
    await expect(visitor.get_by_role("heading", name="Workers", level=1)).to_be_visible()
    await visitor.get_by_role("button", name="Log out").click()
    await expect(visitor.get_by_role("heading", name="Log in")).to_be_visible()
    await visitor.reload()
    await expect(visitor.get_by_role("heading", name="Log in")).to_be_visible()


async def test_a_wrong_password_is_refused(visitor: Page, site: Site, troubles: Troubles) -> None:
    """In words, on the same page, with the name still there."""
    troubles.expect("401")
    await site.log_in(visitor, "not the password")
    await expect(visitor.get_by_role("alert")).to_be_visible()
    await expect(visitor.get_by_label("Name")).to_have_value(site.login.name)
    await expect(visitor.get_by_role("button", name="Log in")).to_be_enabled()


@on_sqlite
async def test_the_page_is_served_with_its_base_and_its_policy(visitor: Page, site: Site) -> None:
    """As the browser sees it: the root leads to the UI, its base is its own, the policy is in force."""
    answer = await visitor.goto(site.url.removesuffix("ui/"))
    assert answer is not None
    assert visitor.url == site.url
    assert answer.headers["content-security-policy"] == PAGE_POLICY.decode()
    assert await visitor.evaluate("document.baseURI") == site.url


@pytest.mark.parametrize("site", ["sqlite /of the team/queue"], indirect=True, scope="module")
async def test_it_works_inside_another_program(visitor: Page, site: Site) -> None:
    """Below any path: its files, its API, its session and the links between its pages."""
    await site.log_in(visitor)
    await visitor.get_by_role("link", name="Topics").first.click()
    await expect(visitor.get_by_role("heading", name="Topics", level=1)).to_be_visible()
    assert visitor.url.endswith("/of%20the%20team/queue/ui/topics")
    await visitor.reload()
    await expect(visitor.get_by_role("heading", name="Topics", level=1)).to_be_visible()


@on_sqlite
async def test_what_the_policy_forbids_is_heard(page: Page, troubles: Troubles) -> None:
    """The tests are not deaf: scripts and markup from strings, inline styles and other hosts are refused, and
    told of.
    """
    troubles.expect("policy: require-trusted-types-for")
    troubles.expect("policy: style-src-attr")
    troubles.expect("policy: connect-src")
    troubles.expect("Content Security Policy|This document requires 'Trusted")
    await page.evaluate(
        """async () => {
            const script = document.createElement("script");
            script.append("window.ran = true");
            document.body.append(script);
            try { document.body.innerHTML = "<b>markup</b>"; } catch {}
            document.body.setAttribute("style", "color: red");
            try { await fetch("https://example.test/"); } catch {}
        }"""
    )
    assert await page.evaluate("window.ran") is None
    assert await page.locator("b", has_text="markup").count() == 0


@on_sqlite
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
async def test_the_login_is_accessible_and_fits_a_phone(open_page: OpenPage, color_scheme: str) -> None:
    """Axe finds nothing, and the page does not scroll sideways."""
    page = await open_page(logged_in=False, color_scheme=color_scheme, viewport=PHONE)
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    await accessible(page)
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
