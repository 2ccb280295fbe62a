"""The content security policy is in force: what somebody could slip into a page does not run."""

from __future__ import annotations

from playwright.async_api import Page, Route, expect

from tests.browser import on_sqlite
from tests.browser.conftest import OpenPage
from tests.browser.site import Site
from tests.browser.troubles import Troubles

POLICY = {
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'self'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types svelte-trusted-html",
}
SLIPPED_IN = """
<script>window.ran = "a script"</script>
<img src="missing.png" onerror="window.ran = 'a handler'">
<iframe srcdoc="<script>parent.ran = 'a frame'</script>"></iframe>
<a id="slipped" href="javascript:window.ran = 'a link'">a link</a>
<script src="https://example.test/script.js"></script>
"""
REFUSED = (
    "script-src-elem forbids inline",
    "script-src-attr forbids inline",
    "script-src-elem forbids https://example.test",
)


@on_sqlite
async def test_nothing_slipped_into_a_page_runs(open_page: OpenPage, site: Site, troubles: Troubles) -> None:
    """Not even when somebody had a way into the HTML itself; and every attempt is told of."""
    page: Page = await open_page(None)
    policies: list[str] = []

    async def slip_in(route: Route) -> None:
        answer = await route.fetch()
        policies.append(answer.headers["content-security-policy"])
        body = (await answer.text()).replace("</body>", f"{SLIPPED_IN}</body>")
        assert SLIPPED_IN in body
        await route.fulfill(response=answer, body=body)

    await page.route(f"{site.url}workers", slip_in)
    for one in REFUSED:
        troubles.expect(f"policy: {one}")
    troubles.expect("Content Security Policy|request failed|404")
    await page.goto("workers")
    await expect(page.get_by_role("heading", name="Workers", level=1)).to_be_visible()
    await page.locator("#slipped").dispatch_event("click")
    assert await page.evaluate("window.ran") is None
    assert [set(policy.split("; ")) for policy in policies] == [POLICY]
