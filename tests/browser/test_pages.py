"""Every page in every look: accessible, no wider than its window, and without a word in the console."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from tests.browser import on_sqlite
from tests.browser.axe import COLOURS, RULES, accessible
from tests.browser.conftest import DESKTOP, PHONE
from tests.browser.site import Site
from tests.patience import PATIENCE
from tidewheel import Context, Cron, Job, Rate, TopicLimits

LONGEST = ("an-unusually-long-name-of-something-that-nobody-wanted-to-shorten-" * 4)[:200]
"""The most a name may have, without a place to break at."""
PAGES = {
    "": "",
    "jobs": "Jobs",
    "jobs?where=state:failed": "Jobs",
    "jobs/run": LONGEST,
    "jobs/complete": LONGEST,
    "jobs/fail": LONGEST,
    "jobs/steps": "fulfil_order",
    "jobs/blocked": "close_month",
    "jobs/stopped": "close_month",
    "failures": "Failures",
    "topics": "Topics",
    "schedules?open=report:monthly": "Schedules",
    "tasks": "Tasks",
    "tasks?task=charge_card": "charge_card",
    f"tasks?task={LONGEST}": LONGEST,
    "workers": "Workers",
    "access": "Access",
    "access?tab=superusers": "Access",
    "audit": "Audit log",
    "nowhere": "",
}
"""Paths, and the heading of each where it is always the same. What stands for a job is replaced by its id."""

Jobs = dict[str, Job[Any]]


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def jobs(site: Site) -> AsyncIterator[Jobs]:
    """A queue with something of everything, and names as long as they may be."""
    app, shop, enough = site.app, site.shop, asyncio.Event()

    @app.task(name=LONGEST, topic=LONGEST, max_attempts=1)
    async def long(ctx: Context, how: str, about: dict[str, str]) -> dict[str, str]:
        await ctx.step(LONGEST, lambda: LONGEST)
        await ctx.checkpoint({LONGEST: LONGEST})
        await ctx.progress(50, LONGEST * 4, LONGEST)
        if how == "fail":
            raise ValueError(LONGEST * 4)
        if how == "run":
            await enough.wait()
        return about

    marked = long.options(correlation_id=LONGEST, user_id=LONGEST, service_id=LONGEST, tenant=LONGEST)
    await app.access.create_key(LONGEST, tenant=LONGEST)
    await app.access.create_superuser(LONGEST[:100], "a password of some length")
    await shop.remind.options(delay=3600).enqueue(who="ada", about="tea")
    await (await shop.send_email.options(delay=60).enqueue(to="a@example.com")).cancel()
    await app.pause("reminders", 3600)
    first = await shop.send_email.options(delay=3600).enqueue(to="a@example.com")
    made = {"blocked": await shop.close_month.options(after=first).enqueue(month="May")}
    lost = await shop.send_email.options(delay=60).enqueue(to="b@example.com")
    made["stopped"] = await shop.close_month.options(after=lost).enqueue(month="June")
    await lost.cancel()
    await app.limits.set(LONGEST, TopicLimits(concurrency=5, rate=Rate(50, burst=10), fair=True))
    payload = {"how": "later", "about": {LONGEST: LONGEST}}
    await app.schedules.create(LONGEST, LONGEST, Cron("0 3 * * *", zone="Europe/Berlin"), payload)
    await app.schedules.pause(LONGEST)
    async with site.working(LONGEST):
        made |= {
            how: await marked.options(key=f"{how} {LONGEST}").enqueue(how=how, about={LONGEST: LONGEST})
            for how in ("run", "complete", "fail")
        }
        made["steps"] = await shop.fulfil_order.enqueue(order=8, express=True)
        declined = await shop.charge_card.enqueue(order=13, amount=1, card_number="4111")
        for job in (made["complete"], made["fail"], made["steps"], declined):
            with suppress(Exception):  # some are meant to fail
                await job.result(20)
        yield made
        enough.set()


async def fits(page: Page) -> None:
    """Nothing sticks out: a page that scrolls sideways is no page for a phone."""
    # A page follows a new size a moment later. One that stays too wide is described below.
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while await page.evaluate("() => document.documentElement.scrollWidth > innerWidth"):
                await asyncio.sleep(0.05)
    wide = await page.evaluate(
        """() => [document.documentElement.scrollWidth - innerWidth, [...document.querySelectorAll("main *")]
            .filter(one => one.getBoundingClientRect().right > innerWidth + 1).slice(0, 3)
            .map(one => one.outerHTML.slice(0, 150))]"""
    )
    assert wide[0] <= 0, f"{page.url} is {wide[0]} pixels too wide: {wide[1]}"


Look = tuple[dict[str, int], str, Any]
# Other rules than those about colours hold in every theme or in none.
LIGHT_PHONE, DARK_PHONE = (PHONE, "light", RULES), (PHONE, "dark", COLOURS)
LIGHT_DESKTOP, DARK_DESKTOP = (DESKTOP, "light", RULES), (DESKTOP, "dark", COLOURS)
looks = pytest.mark.parametrize(
    "looks",
    [
        pytest.param([LIGHT_PHONE, DARK_DESKTOP], id="some looks"),
        pytest.param([DARK_PHONE, LIGHT_DESKTOP], id="other looks", marks=pytest.mark.extended),
    ],
)


async def looks_well(page: Page, looks: list[Look]) -> None:
    """In these sizes and themes."""
    for size, theme, rules in looks:
        await page.set_viewport_size({"width": size["width"], "height": size["height"]})
        await fits(page)
        await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]  # one of the two
        await accessible(page, rules)


@on_sqlite
@looks
@pytest.mark.parametrize("part", [0, 1])
async def test_every_page_looks_well(page: Page, jobs: Jobs, part: int, looks: list[Look]) -> None:
    """Light and dark, on a desktop and at 390 pixels, with names that are as long as they may be."""
    for path, heading in list(PAGES.items())[part::2]:
        _, _, which = path.partition("jobs/")
        await page.goto(f"jobs/{jobs[which].id}" if which in jobs else path)
        await expect(page.get_by_role("heading", name=heading, level=1)).to_be_attached()
        await expect(page.get_by_role("status", name="Loading")).to_have_count(0)
        await looks_well(page, looks)


@on_sqlite
@looks
async def test_what_opens_above_a_page_looks_well(page: Page, jobs: Jobs, looks: list[Look]) -> None:
    """The palette, the help, menus, dialogs, completions, and what a phone hides behind More."""
    await expect(page.get_by_role("heading", level=1)).to_be_attached()
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.type("an-unusually")
    await expect(page.get_by_role("option").nth(3)).to_be_visible()
    await looks_well(page, looks)
    await page.keyboard.press("Escape")
    await expect(page.locator("dialog input")).to_have_count(0)  # the browser closes it before the page knows
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    await looks_well(page, looks)
    await page.goto("topics")
    await page.get_by_role("button", name="More about reminders").click()
    await expect(page.get_by_role("menu", name="More about reminders")).to_be_visible()
    await accessible(page)
    await page.get_by_role("menuitem", name="Change the pause …").click()
    await expect(page.get_by_role("dialog", name="Pause reminders")).to_be_visible()
    await looks_well(page, looks)
    await page.goto("topics?limit=webhooks")
    await expect(page.get_by_role("dialog", name="Limits of webhooks")).to_be_visible()
    await page.get_by_role("checkbox", name="Fair").check()
    await page.get_by_role("button", name="Weight of a tenant").click()
    await looks_well(page, looks)
    await page.goto("schedules?new=1&task=charge_card")
    await expect(page.get_by_role("textbox", name="card_number")).to_be_visible()
    await looks_well(page, looks)
    await page.goto("failures")
    await page.get_by_role("button", name="Requeue 1 job: ValueError").click()
    await expect(page.get_by_role("dialog").get_by_role("status")).to_contain_text("1 job that matches")
    await looks_well(page, looks)
    await page.goto("jobs?where=state:failed")
    await page.get_by_role("button", name="Views").click()
    await accessible(page)
    await page.get_by_role("combobox", name="Filter jobs").fill("topic:an")
    await expect(page.get_by_role("option", name=LONGEST)).to_be_visible()
    await looks_well(page, looks)
    await page.get_by_role("combobox", name="Filter jobs").press("Escape")
    await page.get_by_label("Select all in sight").check()
    await expect(page.get_by_role("toolbar")).to_be_visible()
    await looks_well(page, looks)
    await page.goto(f"jobs/{jobs['fail'].id}")
    await page.get_by_role("button", name="Edit and requeue").click()
    await expect(page.get_by_role("textbox", name="Payload")).to_be_visible()
    await looks_well(page, looks)
    await page.goto("access?new=key")
    await expect(page.get_by_role("dialog", name="New API key")).to_be_visible()
    await looks_well(page, looks)
    await page.keyboard.press("Escape")
    await page.set_viewport_size({"width": PHONE["width"], "height": PHONE["height"]})
    await page.get_by_role("button", name="More", exact=True).click()
    await expect(page.get_by_role("dialog", name="More")).to_be_visible()
    await accessible(page)
