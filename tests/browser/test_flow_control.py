"""What an operator does about schedules, limits, and jobs that run after others. Nothing is loaded anew."""

from __future__ import annotations

from playwright.async_api import Page, expect

from tests.browser import on_sqlite
from tests.browser.site import Site
from tests.browser.test_operator_flows import go_to, head, toast, without_loading
from tests.browser.troubles import Troubles
from tests.patience import PATIENCE


@on_sqlite
async def test_a_schedule_is_made_paused_run_and_deleted(page: Page, site: Site, troubles: Troubles) -> None:
    """What is wrong stands at its field; running it now leads to its job; deleting asks first."""
    troubles.expect("422")
    await go_to(page, "Schedules")
    async with without_loading(page):
        await expect(page.get_by_text("No schedules yet")).to_be_visible()
        await page.get_by_role("button", name="New schedule").click()
        form = page.get_by_role("dialog", name="New schedule")
        await form.get_by_label("Name", exact=True).fill("tea-time")
        await form.get_by_label("Runs", exact=True).select_option("remind")
        await form.get_by_label("who").fill("ada")
        await form.get_by_label("about").fill("tea")
        cron = form.get_by_label("Cron expression")
        await cron.fill("61 16 * * *")
        await form.get_by_label("Time zone").fill("Europe/London")
        await form.get_by_label("Limit key").fill("kettle")
        await form.get_by_role("button", name="Make the schedule").click()
        await expect(cron).to_be_focused()
        await expect(form.get_by_role("alert")).to_contain_text("cannot be read")
        await cron.fill("0 16 * * MON-FRI")
        await expect(form.get_by_text("Monday to Friday at 16:00")).to_be_visible()
        await form.get_by_role("button", name="Make the schedule").click()
        row = page.get_by_role("listitem").filter(has_text="tea-time")
        await expect(row.get_by_text("Monday to Friday at 16:00")).to_be_visible()
        await expect(row.get_by_role("region", name="Next runs").get_by_role("listitem")).to_have_count(5)
        (made,) = await site.app.schedules.all()
        assert (made.task, made.payload) == ("remind", {"who": "ada", "about": "tea"})
        assert made.options["limit_key"] == "kettle"

        await row.get_by_role("button", name="Pause tea-time").click()
        await expect(row.get_by_text("Paused", exact=True)).to_be_visible()
        await toast(page, "Paused tea-time").locator("..").get_by_role("button", name="Undo").click()
        await expect(row.get_by_role("button", name="Pause tea-time")).to_be_visible()
        assert not (await site.app.schedules.get("tea-time")).paused

        await row.get_by_role("button", name="Run tea-time now").click()
        await expect(row.get_by_role("link", name="Last job of tea-time")).to_be_visible()
        await toast(page, "Ran tea-time").locator("..").get_by_role("link", name="Open the job").click()
        await expect(head(page).get_by_role("heading", name="remind")).to_be_visible()
        await expect(page.get_by_role("link", name="kettle")).to_be_visible()
        await page.get_by_role("link", name="tea-time").click()
        await expect(row.get_by_role("region", name="Next runs")).to_be_visible()
        await row.get_by_role("button", name="More about tea-time").click()
        await page.get_by_role("menuitem", name="Delete …").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete the schedule").click()
        await expect(page.get_by_text("No schedules yet")).to_be_visible()
    assert await site.app.schedules.all() == []


@on_sqlite
async def test_limits_are_set_and_removed(page: Page, site: Site) -> None:
    """The topic's row tells them and how much of them is used, and removing can be undone."""
    await site.shop.remind.enqueue(who="ada", about="tea")
    await go_to(page, "Topics")
    async with without_loading(page):
        row = page.get_by_role("row").filter(has_text="reminders")
        await row.get_by_role("button", name="More about reminders").click()
        await page.get_by_role("menuitem", name="Limit …").click()
        form = page.get_by_role("dialog", name="Limits of reminders")
        await form.get_by_role("button", name="Set the limits").click()
        await expect(form.get_by_role("alert")).to_contain_text("Say at least one limit")
        await form.get_by_label("At once", exact=True).fill("5")
        await form.get_by_label("Starts", exact=True).fill("50")
        await form.get_by_label("In order").check()
        await form.get_by_role("button", name="Set the limits").click()
        limits = row.get_by_text("5 at once · 50 per second · in order of each key · by an operator")
        await expect(limits).to_be_visible()
        await expect(row.get_by_role("cell", name="0 / 5")).to_be_visible()
        found = await site.app.limits.get("reminders")
        assert found is not None
        assert (found.concurrency, found.ordered, str(found.rate)) == (5, True, "50 per 1 s")

        await row.get_by_role("button", name="More about reminders").click()
        await page.get_by_role("menuitem", name="Remove the limits").click()
        await expect(limits).to_have_count(0)
        assert await site.app.limits.get("reminders") is None
        removed = toast(page, "Removed the limits of reminders")
        await removed.locator("..").get_by_role("button", name="Undo").click()
        await expect(limits).to_be_visible()
        assert await site.app.limits.get("reminders") == found
    await site.app.limits.remove("reminders")


@on_sqlite
async def test_a_blocked_job_says_for_what_it_waits_and_goes_on_by_itself(page: Page, site: Site) -> None:
    """With ways to those it waits for and back; one whose parent did not complete says so."""
    await site.app.pause("reminders")
    done = await site.shop.send_email.enqueue(to="a@example.com")
    waited = await site.shop.remind.enqueue(who="ada", about="tea")
    closing = await site.shop.close_month.options(after=[done, waited]).enqueue(month="May")
    lost = await site.shop.remind.enqueue(who="alan", about="apples")
    stopped = await site.shop.close_month.options(after=lost).enqueue(month="June")
    await lost.cancel()
    async with site.working():
        await done.result(PATIENCE)
        await page.goto(f"jobs/{closing.id}")
        async with without_loading(page):
            await expect(head(page).get_by_text("Blocked", exact=True)).to_be_visible()
            await expect(head(page)).to_contain_text("waits for 1 of 2 jobs")
            before = page.get_by_role("list", name="Jobs it runs after").get_by_role("listitem")
            await expect(before.first).to_contain_text("remind")
            await expect(before.last).to_contain_text("Completed")
            await before.first.get_by_role("link").click()
            behind = page.get_by_role("list", name="Jobs that run after it").get_by_role("listitem")
            await expect(behind).to_contain_text("waits for it")
            await behind.get_by_role("link", name="close_month").click()
            await expect(head(page)).to_contain_text("waits for 1 of 2 jobs")
            await site.app.resume("reminders")
            await expect(head(page).get_by_text("Completed", exact=True)).to_be_visible()
            await expect(page.get_by_text("all 2 completed")).to_be_visible()
    await page.goto(f"jobs/{stopped.id}")
    await expect(page.get_by_text("a job that it runs after did not complete")).to_be_visible()
    await page.get_by_role("link", name=f"Job {str(lost.id)[-8:]}").click()
    await expect(head(page).get_by_role("heading", name="remind")).to_be_visible()
