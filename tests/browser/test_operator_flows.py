"""What an operator does, from the first look to the last click.

Each test is a whole way through the UI and says at every step what has to be seen; the tasks are the demo's,
slowed down or repaired by the test. What changes does so by itself: no page is loaded anew to see it. Those
that wait for it run on both stores, which tell of changes in ways of their own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import httpx2
import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser import on_sqlite
from tests.browser.conftest import OpenPage
from tests.browser.site import Site
from tests.browser.troubles import Troubles
from tests.patience import PATIENCE
from tidewheel.cli.demo import shop_app
from tidewheel.core.model import ClaimRequest, Failed, JobError, Lane, Retried, Settlement
from tidewheel.errors import JobNotFound


@pytest.fixture
def pages_of_the_report(monkeypatch: pytest.MonkeyPatch) -> asyncio.Semaphore:
    """The demo's reports come to their next page when this is released, and not before."""
    allowed = asyncio.Semaphore(0)

    async def pause(ctx: object, seconds: float) -> None:
        await allowed.acquire()

    monkeypatch.setattr(shop_app, "_pause", pause)
    return allowed


@asynccontextmanager
async def without_loading(page: Page) -> AsyncIterator[None]:
    """Whatever happens inside, happens on the page that is there."""
    await page.evaluate("window.stayed = true")
    yield
    assert await page.evaluate("window.stayed"), "the page was loaded again"


def head(page: Page) -> Locator:
    """The head of a job's page: its name, its state, what can be done to it."""
    return page.locator("main header").first


def toast(page: Page, text: str) -> Locator:
    """What was done, as the corner tells it."""
    return page.get_by_role("status").get_by_text(text)


async def go_to(page: Page, name: str) -> None:
    """By the navigation, as one does."""
    await page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name=name).click()
    await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


async def test_a_job_is_watched_and_another_cancelled(
    visitor: Page, site: Site, pages_of_the_report: asyncio.Semaphore
) -> None:
    """After the login: progress moves and the state ends at completed, and a running job can be stopped."""
    page, report = visitor, site.shop.build_report.options(correlation_id="watched")
    async with site.working():
        job = await report.enqueue(month="May", pages=3)
        await site.log_in(page)
        await go_to(page, "Jobs")
        async with without_loading(page):
            await page.get_by_role("link", name="build_report").click()
            await expect(page).to_have_url(f"{site.url}jobs/{job.id}")
            await expect(head(page).get_by_text("Running", exact=True)).to_be_visible()
            meter = page.get_by_role("progressbar", name="Progress of the job")
            for done in (1, 2):
                pages_of_the_report.release()
                await expect(page.get_by_text(f"page {done} of 3")).to_be_visible()
                await expect(meter).to_have_attribute("aria-valuenow", ("33", "67")[done - 1])
            pages_of_the_report.release()
            await expect(head(page).get_by_text("Completed", exact=True)).to_be_visible()
            await expect(page.get_by_label("Result", exact=True).get_by_text("3")).to_be_visible()
            await expect(head(page).get_by_role("button", name="Cancel")).to_have_count(0)

            other = await report.enqueue(month="June", pages=4)
            await page.keyboard.press("Control+k")
            await page.get_by_role("combobox", name="Search").fill(str(other.id))
            await page.keyboard.press("Enter")
            await expect(page).to_have_url(f"{site.url}jobs/{other.id}")
            await expect(head(page).get_by_text("Running", exact=True)).to_be_visible()
            await head(page).get_by_role("button", name="Cancel").click()
            await page.get_by_role("dialog").get_by_role("button", name="Ask it to stop").click()
            await expect(toast(page, "Its worker has been asked to stop it")).to_be_visible()
            await expect(head(page).get_by_text("Cancelled", exact=True)).to_be_visible()
            await expect(head(page).get_by_role("button", name="Requeue", exact=True)).to_be_visible()


async def test_a_job_is_taken_back_from_a_holder_that_is_gone(page: Page, site: Site) -> None:
    """The job's page asks first, names the holder, and shows the job waiting again; the log tells of it."""
    job = await site.app.queue.put("parcels", b"1", ttr=3600)
    await site.app.store.claim(ClaimRequest("pull:box:1:aaaa", (Lane("parcels"),), 1, 3600))
    await page.goto(f"{site.url}jobs/{job.id}")
    await head(page).get_by_role("button", name="Take back").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_text("Take this job back from pull:box:1:aaaa?")).to_be_visible()
    await dialog.get_by_role("button", name="Take it back").click()
    await expect(toast(page, "Taken back")).to_be_visible()
    await expect(head(page).get_by_text("Pending", exact=True)).to_be_visible()
    await expect(head(page).get_by_role("button", name="Take back")).to_have_count(0)
    await go_to(page, "Audit")
    await expect(page.get_by_text("took back job").first).to_be_visible()


async def test_the_list_follows_and_does_not_jump(
    page: Page, site: Site, pages_of_the_report: asyncio.Semaphore
) -> None:
    """While one points at it, rows change where they are and new ones are counted; otherwise they come."""
    report = site.shop.build_report.options(correlation_id="list")
    rows = page.locator("tbody tr")
    await page.goto("jobs?where=correlation:list")
    await expect(page.get_by_text("No job matches")).to_be_visible()
    async with site.working(), without_loading(page):
        await report.enqueue(month="May", pages=1)
        await expect(rows).to_have_count(1)
        await expect(rows.first.get_by_text("Running")).to_be_visible()
        await rows.first.hover()
        before = await rows.first.bounding_box()
        pages_of_the_report.release()
        await report.enqueue_many([{"month": "June", "pages": 1}, {"month": "July", "pages": 1}])
        shown = page.get_by_role("button", name="2 new jobs — show")
        await expect(shown).to_be_visible()
        await expect(rows.first.get_by_text("Completed")).to_be_visible()
        assert await rows.count() == 1, "new rows came in under the pointer"
        assert await rows.first.bounding_box() == before, "the row moved under the pointer"
        await shown.click()
        await expect(rows).to_have_count(3)
        await expect(shown).to_have_count(0)


async def test_a_group_of_failures_is_requeued_once_its_task_is_repaired(
    page: Page, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the figure in the navigation over the traceback to the requeued jobs, which complete."""
    resize = site.shop.resize_image.options(max_attempts=1)
    async with site.working():
        jobs = await resize.enqueue_many([{"file": f"cat-{number}.gif"} for number in range(3)])
        await resize.enqueue(file="scan.tiff")
        async with without_loading(page):
            await expect(
                page.get_by_role("navigation", name="Pages", exact=True).get_by_title("4 failed jobs")
            ).to_be_visible()
            await go_to(page, "Failures")
            group = page.get_by_role("listitem").filter(has_text="KeyError")
            other = page.get_by_role("listitem").filter(has_text="cannot identify image file")
            await group.get_by_role("button", expanded=False).click()
            await expect(group.get_by_label("Traceback of the newest job")).to_contain_text("_decoder_of")
            await group.get_by_role("button", name="Requeue 3 jobs").click()
            dialog = page.get_by_role("dialog", name="Requeue 3 jobs of one error")
            await expect(dialog.get_by_role("status")).to_contain_text(
                "3 jobs that match are failed or cancelled"
            )
            monkeypatch.setattr(shop_app, "_decoder_of", lambda *_: "repaired-")
            await dialog.get_by_role("button", name="Requeue 3 jobs").click()
            await expect(page.get_by_role("dialog").get_by_role("progressbar")).to_be_visible()
            await expect(toast(page, "3 jobs requeued")).to_be_visible()
            await go_to(page, "Topics")
            await go_to(page, "Failures")
            await expect(other).to_have_count(1)
            await expect(group).to_have_count(0)
        assert [await job.result(PATIENCE) for job in jobs] == [
            f"repaired-cat-{number}-640.webp" for number in range(3)
        ]


@on_sqlite
async def test_a_group_of_failures_acts_on_its_own_jobs_only(page: Page, site: Site) -> None:
    """Not on those that met its error in an earlier attempt; a number that has changed is pointed out."""
    app = site.app
    refused, missing = JobError("refused", "port 7 refused"), JobError("missing", "no address")

    async def fail(*errors: JobError) -> None:
        await site.shop.build_report.enqueue(month="May", pages=1)
        for at, error in enumerate(errors, 1):
            [claimed] = (await app.store.claim(ClaimRequest("hand", (Lane("reports"),), 1, 60))).jobs
            outcome = Failed(error) if at == len(errors) else Retried(0, error)
            await app.store.settle([Settlement(claimed.lease, outcome)])

    for _ in range(2):
        await fail(refused)
    for _ in range(3):
        await fail(refused, missing)
    await page.goto("failures")
    group = page.get_by_role("listitem").filter(has_text="refused: port")
    await group.get_by_role("link", name="See the 2 jobs").click()
    await expect(page.locator("tbody tr")).to_have_count(2)
    await page.go_back()
    dialog = page.get_by_role("dialog")
    await group.get_by_role("button", name="Requeue 2 jobs").click()
    await expect(dialog.get_by_role("button", name="Requeue 2 jobs")).to_be_visible()
    await expect(dialog.get_by_text("The page shows")).to_have_count(0)
    await dialog.get_by_role("button", name="Keep as it is").click()
    # From here on the page is not told of changes, as behind a slow network.
    await page.route("**/api/jobs/failures*", lambda _: None)
    await fail(refused)
    await group.get_by_role("button", expanded=False).click()
    await group.get_by_role("button", name="Delete group").click()
    await expect(dialog.get_by_text("The page shows 2 jobs; 3 jobs match now.")).to_be_visible()
    await dialog.get_by_role("button", name="Delete 3 jobs").click()
    await expect(toast(page, "3 jobs deleted")).to_be_visible()
    left = await app.jobs(state="failed", topic="reports")
    assert [job.error_summary for job in left] == ["missing: no address"] * 3
    assert await app.delete_all(state="failed", topic="reports") == 3


@on_sqlite
async def test_the_dialog_says_which_times_are_meant(page: Page, site: Site) -> None:
    """Before jobs are deleted by their age, the moment and the side of it are read in words."""
    job = await site.shop.build_report.options(correlation_id="old").enqueue(month="May", pages=1)
    await page.goto("jobs?where=correlation:old%20age%3C1h")
    await expect(page.locator("tbody tr")).to_have_count(1)
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Search").fill("Delete everything")
    await page.keyboard.press("Enter")
    times = page.get_by_role("dialog").get_by_role("list", name="Times")
    await expect(times).to_contain_text(re.compile(r"age<1h created after .* UTC \(less than 1h ago\)"))
    await job.delete()


@on_sqlite
async def test_a_job_is_enqueued_from_the_form_of_its_task(
    page: Page, site: Site, troubles: Troubles
) -> None:
    """What is wrong stands at its field, also when only the server knows, and the new job can be opened."""

    @site.app.task(topic="parcels")
    async def deliver(parcel: UUID, express: bool = False) -> dict[str, str]:
        """Bring a parcel to somebody."""
        return {"delivered": str(parcel)}

    parcel = "0198c0de-0000-7000-8000-00000000abcd"
    troubles.expect("422")
    async with site.working():
        await go_to(page, "Tasks")
        await page.get_by_role("link", name="deliver", exact=True).click()
        form = page.get_by_role("form", name="Enqueue deliver")
        field = form.get_by_role("textbox", name="parcel")
        await form.get_by_role("button", name="Enqueue").click()
        await expect(form.get_by_role("alert")).to_have_text("Is missing")
        await field.fill("parcel 7")
        await form.get_by_role("button", name="Enqueue").click()
        await expect(field).to_have_attribute("aria-invalid", "true")
        await expect(field).to_be_focused()
        described = await field.get_attribute("aria-describedby")
        assert described is not None
        await expect(page.locator(f"id={described.split()[0]}")).to_contain_text("invalid UUID")
        await field.fill(parcel)
        await form.get_by_role("button", name="Enqueue").click()
        await expect(form.get_by_role("status").get_by_text("Completed")).to_be_visible()
        await form.get_by_role("status").get_by_role("link").click()
        await expect(head(page).get_by_role("heading", name="deliver")).to_be_visible()
        await expect(head(page).get_by_text("Completed", exact=True)).to_be_visible()
        await expect(page.get_by_label("Result", exact=True).get_by_text(parcel)).to_be_visible()


async def test_a_topic_is_paused_and_resumed(page: Page, site: Site) -> None:
    """Nobody takes its jobs meanwhile; both can be undone."""
    await site.shop.remind.enqueue(who="ada", about="tea")
    await go_to(page, "Topics")
    async with site.working(), without_loading(page):
        row = page.get_by_role("row").filter(has_text="reminders")
        pause, resume = (row.get_by_role("button", name=f"{verb} reminders") for verb in ("Pause", "Resume"))
        await pause.click()
        await page.get_by_role("menuitem", name="Until I resume it").click()
        await expect(row.get_by_text("Paused", exact=True)).to_be_visible()
        await expect(resume).to_be_visible()
        job = await site.shop.remind.enqueue(who="grace", about="ships")
        await (
            toast(page, "Paused reminders until it is resumed")
            .locator("..")
            .get_by_role("button", name="Undo")
            .click()
        )
        await expect(pause).to_be_visible()
        await job.result(PATIENCE)
        await pause.click()
        await page.get_by_role("menuitem", name="For an hour").click()
        await expect(
            row.get_by_text("Paused, 1 h left").or_(row.get_by_text("Paused, 59 min"))
        ).to_be_visible()
        waiting = await site.shop.remind.enqueue(who="alan", about="apples")
        await asyncio.sleep(0.5)  # a worker that took it would have done so by now
        assert (await waiting.refresh()).shown_state == "pending"
        await resume.click()
        await expect(pause).to_be_visible()
        await waiting.result(PATIENCE)


@on_sqlite
async def test_a_failed_job_is_edited_and_requeued_with_what_it_hides(page: Page, site: Site) -> None:
    """The number of the card is never shown and goes along; the new job completes, the old one is deleted."""
    async with site.working():
        failed = await site.shop.charge_card.enqueue(order=13, amount=12.5, card_number="4111 1111 1111 1234")
        await page.goto(f"jobs/{failed.id}")
        await expect(head(page).get_by_text("Failed", exact=True)).to_be_visible()
        await expect(page.get_by_label("Error").get_by_text("card_declined")).to_be_visible()
        await head(page).get_by_role("button", name="Edit and requeue").click()
        dialog = page.get_by_role("dialog", name="Edit and requeue")
        editor = dialog.get_by_role("textbox", name="Payload")
        before = await editor.input_value()
        assert '"card_number": "[redacted]"' in before
        assert "4111" not in await page.content()
        await editor.fill(before.replace('"order": 13', '"order": 8'))
        await dialog.get_by_label("Delete this one when the new one is written").check()
        await dialog.get_by_role("button", name="Enqueue with changes").click()
        await expect(toast(page, "Enqueued as a new job")).to_be_visible()
        await expect(page).not_to_have_url(f"{site.url}jobs/{failed.id}")
        await expect(head(page).get_by_text("Completed", exact=True)).to_be_visible()
        made = await site.app.get(page.url.rpartition("/")[2])
        assert made.payload == {"order": 8, "amount": 12.5, "card_number": "4111 1111 1111 1234"}
        assert await made.result() == {"receipt": "receipt-8", "charged": 12.5}
        with pytest.raises(JobNotFound):
            await site.app.get(failed.id)


@on_sqlite
async def test_jobs_are_found_chosen_and_deleted_with_the_keyboard(
    page: Page, site: Site, open_page: OpenPage
) -> None:
    """Completion, rows and actions without a mouse; the view has an address and a name, and how many are
    deleted has to be typed.
    """
    email = site.shop.send_email.options(delay=3600)
    await email.enqueue_many([{"to": f"{number}@example.com"} for number in range(25)])
    await site.shop.remind.options(delay=3600).enqueue(who="ada", about="tea")
    await page.keyboard.press("g")
    await page.keyboard.press("j")
    await expect(page.get_by_role("heading", name="Jobs", level=1)).to_be_visible()
    rows = page.locator("tbody tr")
    bar = page.get_by_role("combobox", name="Filter jobs")

    await page.keyboard.press("/")
    await expect(bar).to_be_focused()
    await page.keyboard.type("sta")
    await expect(page.get_by_role("option").first).to_contain_text("state:")
    await page.keyboard.press("ArrowDown")
    await expect(page.get_by_role("option", selected=True)).to_contain_text("state:")
    await page.keyboard.press("Enter")
    await page.keyboard.type("del")
    await expect(page.get_by_role("option", name="delayed")).to_be_visible()
    await page.keyboard.press("Tab")
    await page.keyboard.type("topic:ma")
    await expect(page.get_by_role("option", name="mail")).to_be_visible()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(bar).to_have_value("state:delayed topic:mail")
    await expect(rows).to_have_count(25)
    await page.keyboard.press("Escape")

    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await page.keyboard.press("k")
    await expect(rows.nth(1)).to_be_focused()
    await page.keyboard.press("x")
    await page.keyboard.press("j")
    await page.keyboard.press("Shift+X")
    tools = page.get_by_role("toolbar", name="With the chosen jobs")
    await expect(tools.get_by_role("status")).to_have_text("2 selected")
    await page.keyboard.press("c")
    await (
        page.get_by_role("dialog", name="Cancel 2 jobs?")
        .get_by_role("button", name="Cancel 2 jobs")
        .press("Enter")
    )
    await expect(toast(page, "2 jobs cancelled")).to_be_visible()
    await expect(page.get_by_role("button", name="Clear the filter")).to_be_visible()

    await page.get_by_role("button", name="Views").press("Enter")
    await page.get_by_label("Name of the view to save").fill("Mail for later")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Views: Mail for later")).to_be_visible()
    other = await open_page(page.url.removeprefix(site.url))
    await expect(other.locator("tbody tr")).to_have_count(23)
    await expect(other.get_by_role("combobox", name="Filter jobs")).to_have_value("state:delayed topic:mail")
    await go_to(page, "Jobs")
    await expect(bar).to_have_value("")
    await page.get_by_role("button", name="Views").press("Enter")
    await page.get_by_role("button", name="Mail for later state:").press("Enter")
    await expect(bar).to_have_value("state:delayed topic:mail")

    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.type("delete everything")
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Delete everything that matches")
    go_on = dialog.get_by_role("button", name="Delete 23 jobs")
    await expect(dialog.get_by_role("status")).to_contain_text("23 jobs that match")
    await expect(go_on).to_be_disabled()
    await dialog.get_by_label("Type 23 to go on").fill("22")
    await expect(go_on).to_be_disabled()
    await dialog.get_by_label("Type 23 to go on").fill("23")
    await page.keyboard.press("Enter")
    await expect(toast(page, "23 jobs deleted")).to_be_visible()
    await expect(page.get_by_text("No job matches")).to_be_visible()
    assert len(await site.app.jobs(topic="mail")) == 2, "those cancelled are not among the delayed"
    assert len(await site.app.jobs(topic="reminders", where="state:delayed")) == 1


@on_sqlite
async def test_a_key_is_made_used_and_revoked_and_the_log_tells(page: Page, site: Site) -> None:
    """A program gets in with it until it is revoked; who did that is written down; then one logs out."""
    await go_to(page, "Access")
    await page.get_by_role("button", name="New key").click()
    form = page.get_by_role("dialog", name="New API key")
    await form.get_by_label("Name").fill("billing service")
    await form.get_by_role("checkbox", name="Superuser").check()
    await form.get_by_role("button", name="Make the key").click()
    shown = page.get_by_role("dialog", name="Your new key")
    key = await shown.locator("[data-secret]").inner_text()
    await shown.get_by_role("button", name="I have copied it").click()
    api = site.url.removesuffix("ui/") + "api/jobs"
    async with httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE) as program:
        assert (await program.get(api)).status_code == 200
        row = page.get_by_role("row").filter(has_text="billing service")
        await expect(row.get_by_text("superuser", exact=True)).to_be_visible()
        await row.get_by_role("button", name="Revoke billing service").click()
        await (
            page.get_by_role("dialog", name="Revoke billing service?")
            .get_by_role("button", name="Revoke the key")
            .click()
        )
        await expect(row.get_by_text("revoked")).to_be_visible()
        assert (await program.get(api)).status_code == 401
    assert key not in await page.content(), "the key is shown once"

    await go_to(page, "Audit log")
    for line in ("demo made API key billing service", "demo revoked API key billing service"):
        await expect(page.get_by_role("listitem").filter(has_text=line)).to_have_count(1)
    await page.get_by_role("searchbox", name="Find in what is loaded").fill("revoked")
    await expect(page.get_by_role("main").get_by_role("listitem")).to_have_count(1)
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_role("heading", name="Log in")).to_be_visible()
