"""Accessibility, as far as a program can tell: axe-core, from the wheel that carries it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from playwright.async_api import Page

SCRIPT = files("axe_playwright_python") / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast"]
"""All that another theme can change of a page that was looked at already."""


async def accessible(page: Page, rules: Sequence[str] = RULES) -> None:
    """No violations in what the page shows right now.

    The script goes in through the debugger, which the page's content security policy does not bind; with the
    policy switched off for it (Playwright's ``bypass_csp``) nobody would hear of violations.
    """
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(SCRIPT.read_text("utf-8"))
    found: list[dict[str, Any]] = await page.evaluate(
        "async rules => (await axe.run(document, "
        "{runOnly: rules, resultTypes: ['violations'], preload: false})).violations",
        list(rules),
    )
    told = [
        f"{one['id']} ({one['impact']}): {one['help']}\n"
        + "\n".join(f"    {node['html'][:200]}\n      {node['failureSummary']}" for node in one["nodes"][:5])
        for one in found
    ]
    assert not told, f"{page.url} has {len(told)} violations:\n" + "\n".join(told)
