"""Tabs in sight and behind others: without a screen, a browser takes all of them to be in sight."""

from __future__ import annotations

from typing import Final

from playwright.async_api import Page

_HIDE: Final = """hidden => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
    Object.defineProperty(document, "visibilityState", {
        configurable: true, get: () => (hidden ? "hidden" : "visible"),
    });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


async def hide(page: Page, *, hidden: bool = True) -> None:
    """Have a tab believe that another one is in front of it."""
    await page.evaluate(_HIDE, hidden)
