"""Fixtures for tests in a browser. The package's own words say how to use them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from tests.browser.chromium import ARGUMENTS, chromium
from tests.browser.site import STORES, Site, serving
from tests.browser.troubles import Troubles
from tests.patience import PATIENCE

PATIENCE_MILLISECONDS = 1000 * PATIENCE
HERE = "tests/browser/"
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}

OpenPage = Callable[..., Awaitable[Page]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The browser lives on the session's event loop, and a page can only be used there."""
    for item in items:
        if item.nodeid.startswith(HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One Chromium for everything this process tests."""
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session", params=STORES)
async def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    """A server on each store, shared by the tests of a module; ``sqlite /a/b`` is mounted below a path."""
    store, _, mounted_at = request.param.partition(" ")
    async with serving(store, tmp_path_factory.mktemp("site"), mounted_at=mounted_at) as made:
        yield made


@pytest.fixture
def troubles() -> Troubles:
    """What goes wrong in the pages of a test; to announce what should."""
    return Troubles()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser, site: Site, troubles: Troubles) -> AsyncIterator[OpenPage]:
    """Opens pages, each in a browser profile of its own: ``await open_page("jobs", color_scheme="dark")``."""
    contexts = []

    async def open_page(path: str | None = "", *, logged_in: bool = True, **options: Any) -> Page:
        state = await site.logged_in(browser) if logged_in else None
        given: dict[str, Any] = {"viewport": DESKTOP, "reduced_motion": "reduce", **options}
        context = await browser.new_context(base_url=site.url, storage_state=state, **given)
        contexts.append(context)
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        await troubles.watch(context)
        page = await context.new_page()
        if path is not None:
            await page.goto(path)
        return page

    yield open_page
    for context in contexts:
        await context.close()
    troubles.check()


@pytest_asyncio.fixture(loop_scope="session")
async def page(open_page: OpenPage) -> Page:
    """The overview, logged in, ready for keys."""
    page = await open_page()
    await page.get_by_role("navigation").first.wait_for()
    return page


@pytest_asyncio.fixture(loop_scope="session")
async def visitor(open_page: OpenPage) -> Page:
    """A page of somebody who is not logged in, and has not gone anywhere."""
    return await open_page(None, logged_in=False)
