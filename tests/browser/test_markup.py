"""Whatever anybody puts into a job, a name or an address is text on every page: nothing of it ever runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Page, Request, expect

from tests.browser import on_sqlite
from tests.browser.conftest import OpenPage
from tests.browser.planted_markup import (
    CODE,
    MARKUP,
    NAMES,
    SUPERUSER,
    TENANT,
    TOPIC,
    WIRE_TOPIC,
    Planted,
    planted,
    text,
)
from tests.browser.site import Site
from tests.browser.troubles import Troubles

CANARY = "window.ran = () => { window.canary = true; console.error('planted markup ran'); };"
MADE = """() => [...document.querySelectorAll(
    "img[src='x'], [onerror], [onload], script:not([src]), [href^='javascript:' i]"
)].map(one => one.outerHTML.slice(0, 300))"""
"""Elements that nobody but the markup could have made. The policy would keep them from running anything; that
they are not even there is due to the pages alone.
"""
SHOWN = """text => (document.body.innerText + [...document.querySelectorAll("input, textarea")].map(
    one => one.value + one.placeholder
).join()).includes(text)"""


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def jobs(site: Site) -> AsyncIterator[Planted]:
    """With markup in everything."""
    async with planted(site) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def watched(open_page: OpenPage) -> AsyncIterator[Page]:
    """A page in which it would be noticed if anything ran, asked a question, or was fetched."""
    page = await open_page(None)
    noticed: list[str] = []

    def requested(request: Request) -> None:
        if request.url.endswith("/x"):
            noticed.append(f"asked for {request.url}")

    page.on("request", requested)
    page.on("dialog", lambda dialog: noticed.append(f"asked {dialog.message}"))
    await page.add_init_script(CANARY)
    yield page
    assert not noticed


async def shows(page: Page, fields: Sequence[str]) -> None:
    """All of it, letter by letter, and as letters."""
    for field in fields:
        wanted = field if field in NAMES else text(field)
        try:
            await page.wait_for_function(SHOWN, arg=wanted)
        except Exception as error:
            pytest.fail(f"{page.url} does not show what was put into {field!r}: {error}")
    assert await page.evaluate(MADE) == [], f"{page.url} made elements of what is text"
    assert await page.evaluate("window.canary") is None, f"something ran on {page.url}"


@on_sqlite
async def test_markup_in_jobs_is_text(watched: Page, jobs: Planted) -> None:
    """On the pages of jobs: payload, result, checkpoint, progress, steps, errors, names and ids."""
    page = watched
    everywhere = (
        "task",
        TOPIC,
        TENANT,
        "worker",
        "correlation",
        "user",
        "service",
        "payload name",
        "payload",
        "checkpoint name",
        "checkpoint",
        "step",
    )
    await page.goto(f"jobs/{jobs.running.id}")
    await shows(page, [*everywhere, "key run", "message", "stage"])
    await page.goto(f"jobs/{jobs.completed.id}")
    await shows(page, [*everywhere, "key complete", "result name", "result"])
    await page.get_by_role("button", name=text("step")).click()
    await shows(page, ["output name", "output"])
    for label in ("Payload", "Result", f"Output of {text('step')}"):
        async with page.expect_download() as downloading:
            await page.get_by_role("button", name=f"Download {label}", exact=True).click()
        kept = await downloading.value
        assert kept.suggested_filename.removeprefix(str(jobs.completed.id)) in {
            "-payload.json",
            "-result.json",
            "-step.json",
        }
        assert MARKUP in json.dumps(
            json.loads((await kept.path()).read_text("utf-8")), ensure_ascii=False
        ).replace('\\"', '"')
    await page.goto(f"jobs/{jobs.failed.id}")
    await shows(page, [*everywhere, "error", CODE, "detail name", "detail"])
    await page.get_by_role("button", name="Edit and requeue").click()
    await shows(page, ["task"])
    await page.goto(f"jobs/{jobs.broken.id}")
    await expect(page.get_by_label("Traceback of the last attempt")).to_contain_text("LookupError: exception")
    await shows(page, ["exception"])


@on_sqlite
async def test_markup_in_lists_is_text(watched: Page, jobs: Planted) -> None:
    """On all other pages: the overview, lists, groups, tasks with their schemas, workers, keys, the log."""
    page = watched
    await page.goto("")
    await shows(page, ["task", TOPIC, WIRE_TOPIC])
    await page.goto("jobs")
    await shows(page, ["task", TOPIC, "message", CODE])
    await page.goto("failures")
    await page.get_by_role("button", name="error", expanded=False).first.click()
    await shows(page, ["task", TOPIC])
    await page.goto("topics")
    await shows(page, [TOPIC, WIRE_TOPIC])
    await page.get_by_role("button", name=f"Resume {WIRE_TOPIC}").click()
    await expect(page.get_by_text(f"Resumed {WIRE_TOPIC}")).to_be_visible()
    await page.goto("tasks")
    await shows(page, ["task", TOPIC, "description"])
    await page.get_by_role("link", name=text("task"), exact=True).click()
    await shows(page, ["task", TOPIC, "description", "alias", "field", "default", "choice"])
    await page.goto("schedules?open=planted")
    await shows(page, ["schedule payload", "schedule key"])
    await page.goto("workers")
    await shows(page, ["worker", "host", "task", "message"])
    await page.goto("access")
    await shows(page, ["api key", TENANT])
    await page.goto("access?tab=superusers")
    await shows(page, [SUPERUSER])
    await page.goto("audit")
    await shows(page, ["api key", SUPERUSER])
    await expect(page.get_by_role("button", name=SUPERUSER)).to_have_text(SUPERUSER)


@on_sqlite
async def test_markup_in_filters_and_addresses_is_text(
    watched: Page, jobs: Planted, troubles: Troubles
) -> None:
    """What somebody types, saves, or is sent as a link; and filters that are made of hostile names work."""
    page = watched
    troubles.expect("422")
    troubles.expect("404")
    await page.goto(f"jobs/{jobs.failed.id}")
    for name in ("task", "worker", "correlation", "user", "service"):
        await page.get_by_role("link", name=text(name), exact=True).last.click()
        await expect(page.get_by_role("link", name=text("task")).first).to_be_visible()
        await page.go_back()
    await page.get_by_role("link", name="Similar failures").click()
    await page.get_by_role("button", name="Requeue 1 job").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog.get_by_role("status")).to_contain_text("1 job that matches")
    assert await page.evaluate(MADE) == []
    await dialog.get_by_role("button", name="Requeue 1 job").click()
    await expect(page.get_by_text("1 job requeued")).to_be_visible()
    await page.goto("audit")
    await expect(page.get_by_role("listitem").filter(has_text="began a bulk")).to_contain_text("<img src=x")

    quoted = json.dumps(MARKUP, ensure_ascii=False)
    await page.goto(f"jobs?{urlencode({'where': quoted})}")
    await expect(page.locator("tbody tr")).not_to_have_count(0)
    await page.get_by_role("button", name="Views").click()
    await page.get_by_label("Name of the view to save").fill(text("view")[:80])
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Views").click()
    await expect(page.get_by_role("list", name="Saved views")).to_contain_text(text("view")[:80])
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.type("ran()><svg")
    await expect(page.get_by_role("option", name=text("task")).first).to_be_visible()
    assert await page.evaluate(MADE) == []
    for path, query in (
        ("jobs", "where"),
        ("failures", "where"),
        ("topics", "q"),
        ("schedules", "q"),
        ("tasks", "q"),
        ("tasks", "task"),
        ("tasks", "topic"),
        ("workers", "q"),
        ("audit", "actor"),
    ):
        await page.goto(f"{path}?{urlencode({query: text(query)})}")
        await shows(page, [query])
    await page.goto("jobs/javascript:ran()%3Cimg%20src=x%20onerror=ran()%3E")
    await expect(page.get_by_text("There is no such job")).to_be_visible()
    await shows(page, [])
