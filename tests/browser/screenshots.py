"""Pictures of every page of the demo: ``python -m tests.browser.screenshots DIRECTORY``.

Light and dark, on a desktop and on a phone. ``--readme`` makes the pictures of the README instead,
``--only jobs`` a few, ``--wait`` lets the demo run for longer before they are taken.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.async_api import Browser, BrowserContext, Page, StorageState, async_playwright

from tests.browser.chromium import ARGUMENTS, chromium
from tests.docs.pages import ROOT
from tests.patience import PATIENCE

SIZES = {"desktop": (1440, 900), "phone": (390, 844)}
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
README = {"light": ROOT / "docs/images/ui.png", "dark": ROOT / "docs/images/ui-dark.png"}
SETTLE_MILLISECONDS = 900
"""After the page is there: its figures come, and what moves has moved."""

Find = Callable[["Demo", Page], Awaitable[str]]


@dataclass(frozen=True)
class Demo:
    """A running demo, and the browser's memory of a login."""

    url: str
    state: StorageState


def at(path: str) -> Find:
    async def find(demo: Demo, page: Page) -> str:
        del demo, page
        return path

    return find


def job(where: str) -> Find:
    """The page of the newest job that fits, as soon as there is one."""

    async def find(demo: Demo, page: Page) -> str:
        api = demo.url.removesuffix("ui/") + "api/jobs"
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = await page.request.get(api, params={"where": where, "limit": 1})
                if items := (await answer.json())["items"]:
                    return f"jobs/{items[0]['id']}"
                await asyncio.sleep(0.2)

    return find


SHOTS: dict[str, Find] = {
    "overview": at(""),
    "jobs": at("jobs"),
    "jobs-failed": at("jobs?where=state:failed"),
    "job-failed": job("state:failed task:resize_image"),
    "job-running": job("state:running task:build_report"),
    "job-steps": job("state:completed task:fulfil_order"),
    "job-checkpoint": job("state:completed task:import_rows"),
    "job-blocked": job("state:blocked"),
    "failures": at("failures"),
    "topics": at("topics"),
    "tasks": at("tasks"),
    "schedules": at("schedules?open=report:monthly"),
    "workers": at("workers"),
    "access": at("access"),
    "audit": at("audit"),
}
"""What is taken, and where it is."""


@asynccontextmanager
async def demo(browser: Browser) -> AsyncIterator[tuple[Demo, Page]]:
    """The real command, and somebody who logged in there: the login page, before that."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tidewheel.cli", "demo", "--port", "0", "--no-browser"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            head = b"".join([await process.stdout.readline() for _ in range(3)]).decode()
        found = re.search(r"at (\S+)\n\s+name\s+(\S+)\n\s+password\s+(\S+)", head)
        assert found is not None, head
        draining = asyncio.create_task(process.stdout.read())  # a full pipe would stop it
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(found[1])
        await page.get_by_label("Name").fill(found[2])
        await page.get_by_label("Password").fill(found[3])
        await page.get_by_role("button", name="Log in").click()
        await page.get_by_role("navigation").first.wait_for()
        yield Demo(found[1], await context.storage_state()), page
        process.terminate()
        await draining
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def looking(
    browser: Browser, demo: Demo, theme: Literal["light", "dark"], size: str
) -> AsyncIterator[Page]:
    """A page in one theme and size, logged in."""
    width, height = SIZES[size]
    context: BrowserContext = await browser.new_context(
        base_url=demo.url,
        storage_state=demo.state,
        color_scheme=theme,
        viewport={"width": width, "height": height},
        is_mobile=size == "phone",
        has_touch=size == "phone",
        device_scale_factor=2 if size == "phone" else 1,
        reduced_motion="reduce",
    )
    yield await context.new_page()
    await context.close()


async def take(demo: Demo, page: Page, name: str, path: Path) -> None:
    """One picture of what a visitor sees without scrolling."""
    await page.goto(await SHOTS[name](demo, page))
    await page.locator("h1").first.wait_for()
    await page.wait_for_timeout(SETTLE_MILLISECONDS)
    path.parent.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=path)


async def take_all(directory: Path, names: Sequence[str], wait: float) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        async with demo(browser) as (running, _):
            await asyncio.sleep(wait)
            for theme in THEMES:
                for size in SIZES:
                    async with looking(browser, running, theme, size) as page:
                        for name in names:
                            await take(running, page, name, directory / f"{name}-{theme}-{size}.png")
        await browser.close()


async def take_for_readme(wait: float) -> None:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        async with demo(browser) as (running, _):
            await asyncio.sleep(wait)
            for theme in THEMES:
                async with looking(browser, running, theme, "desktop") as page:
                    await take(running, page, "overview", README[theme])
        await browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path, nargs="?", default=Path("screenshots"))
    parser.add_argument("--only", choices=SHOTS, action="append", help="Some pages instead of all.")
    parser.add_argument("--wait", type=float, default=20.0, metavar="SECONDS")
    parser.add_argument("--readme", action="store_true", help="The pictures of the README instead.")
    given = parser.parse_args()
    if given.readme:
        asyncio.run(take_for_readme(given.wait))
    else:
        asyncio.run(take_all(given.directory, given.only or list(SHOTS), given.wait))


if __name__ == "__main__":
    main()
