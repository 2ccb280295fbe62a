"""``python -m bench.ui``: the web UI in a real browser, with a million jobs.

For each store: how long every page takes from its address to being usable, filters, a bulk requeue of a
hundred thousand with its progress, what tabs that stay open cost, and what all that does to memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from playwright.async_api import Browser, Page, async_playwright
from tests.browser.chromium import chromium
from tests.browser.tab_visibility import hide

from bench.environments import NotMeasured
from bench.grounds import Grounds, Place
from bench.growing import TOPICS, grow
from bench.http.programs import Served, call, make_key, serving
from bench.machine import load_average, resident_megabytes
from bench.ui.pages import FILTERS, NEWEST, PAGES, SCANS, filtered_after, usable_after
from bench.ui.requeueing import requeue
from bench.ui.watching import Tab, watched

SERVE = ["tidewheel.cli", "serve", "bench.http.served:app"]
PASSWORD = "a password for a benchmark"  # noqa: S105 - of a store that is thrown away
DESKTOP = {"width": 1440, "height": 900}
REPEATS = 3
PAGE_SECONDS = 1.0
SCAN_SECONDS = 1.5
ROUNDS = 5
"""So many times all pages are read again, to see what that does to the server's memory."""
TABS = ("", "jobs", "topics", "tasks", "workers")
RATE = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.ui", description=__doc__)
    parser.add_argument("--grounds", default="sqlite,postgres")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--parts", default="pages,filters,requeue,tabs", help="what to measure")
    parser.add_argument("--seconds", type=float, default=120.0, help="that tabs stay open")
    parser.add_argument("--url", help="a store that was grown before, instead of the grounds; it is changed")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if options.url:
        asyncio.run(measure("store", options.url, parts, options.seconds))
        return 0
    failed = False
    with Grounds() as grounds:
        for ground in options.grounds.split(","):
            try:
                with grounds.place(ground) as place:
                    grown(ground, place, options.jobs, options.topics)
                    asyncio.run(measure(ground, place.url, parts, options.seconds))
            except NotMeasured as error:
                print(f"{ground}: not measured: {error}", file=sys.stderr)
                failed = True
    return int(failed)


def grown(ground: str, place: Place, jobs: int, topics: int) -> None:
    began = time.perf_counter()
    asyncio.run(grow(place.url, jobs, topics))
    place.vacuum()  # as the database does by itself, within minutes
    place.rest()
    print(f"{ground}: {jobs:,} jobs made in {time.perf_counter() - began:.0f} s", flush=True)


async def measure(ground: str, url: str, parts: list[str], seconds: float) -> None:
    make_superuser(url)
    key = make_key(url, "--superuser")
    with serving(SERVE, {"TIDEWHEEL_URL": url}, "/healthz") as served:
        newest = call(served.address, "/api/jobs?limit=1", key)["items"][0]["id"]
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = await browser.new_page(viewport=DESKTOP)  # type: ignore[arg-type]
            await log_in(page, served.address)
            memory = [resident_megabytes(served.pid)]
            if "pages" in parts:
                await read_pages(ground, page, served, newest, REPEATS, told=True)
                memory.append(resident_megabytes(served.pid))
                await read_pages(ground, page, served, newest, ROUNDS, told=False)
                memory.append(resident_megabytes(served.pid))
            if "filters" in parts:
                await read_filters(ground, page, served)
                memory.append(resident_megabytes(served.pid))
            if "requeue" in parts:
                await tell_requeued(ground, page, served)
                memory.append(resident_megabytes(served.pid))
            if "tabs" in parts:
                await keep_open(ground, browser, page, served, url, seconds)
                memory.append(resident_megabytes(served.pid))
            await browser.close()
    print(f"{ground} server memory: {', '.join(f'{value:.0f}' for value in memory)} MB", flush=True)


def make_superuser(url: str) -> None:
    words = [sys.executable, "-m", "tidewheel.cli", "superusers", "create", "bench", "--url", url]
    given = f"{PASSWORD}\n{PASSWORD}\n"
    told = subprocess.run(words, input=given, text=True, capture_output=True, check=False)
    if told.returncode:
        raise NotMeasured(f"no superuser could be made: {told.stderr.strip()}")


async def log_in(page: Page, address: str) -> None:
    await page.goto(f"{address}/ui/")
    await page.get_by_label("Name").fill("bench")
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_role("button", name="Log in").click()
    await page.get_by_role("navigation").first.wait_for()


async def read_pages(
    ground: str, page: Page, served: Served, newest: str, repeats: int, *, told: bool
) -> None:
    for view in PAGES:
        address = f"{served.address}/ui/{view.path.replace(NEWEST, newest)}"
        times = [await usable_after(page, address, view) for _ in range(repeats)]
        if told:
            tell(ground, f"/ui/{view.path}", times, PAGE_SECONDS)


async def read_filters(ground: str, page: Page, served: Served) -> None:
    await page.goto(f"{served.address}/ui/jobs")
    for limit, filters in ((PAGE_SECONDS, FILTERS), (SCAN_SECONDS, SCANS)):
        for where in filters:
            times = [await filtered_after(page, where) for _ in range(REPEATS)]
            tell(ground, f"filter {where}", times, limit)


async def tell_requeued(ground: str, page: Page, served: Served) -> None:
    found = await requeue(page, served.address)
    steps = " ".join(f"{value:.0f}" for value in found.shown)
    print(f"{ground} bulk: {found.offered!r} after {found.preview_seconds:.2f} s", flush=True)
    print(f"{ground} bulk: {found.outcome!r} after {found.seconds:.1f} s; progress {steps} %", flush=True)


async def keep_open(
    ground: str, browser: Browser, page: Page, served: Served, url: str, seconds: float
) -> None:
    """Tabs on several pages, at rest and while jobs run; then as tabs behind another one."""
    state = await page.context.storage_state()
    await page.close()
    context = await browser.new_context(storage_state=state, viewport=DESKTOP)  # type: ignore[arg-type]
    await watched(f"{ground} no tab", [], served.pid, 10, 1)
    tabs = []
    for path in TABS:
        tab = await Tab.watch(await context.new_page())
        await tab.page.goto(f"{served.address}/ui/{path}")
        await tab.page.locator("main h1").wait_for()
        tabs.append(tab)
        if not path:
            await watched(f"{ground} one tab at rest", tabs, served.pid, 10, 1)
    await watched(f"{ground} five tabs at rest", tabs, served.pid, 20, 1)
    with working(url):
        await watched(f"{ground} five tabs, {RATE} jobs/s", tabs, served.pid, seconds)
        for tab in tabs:
            await hide(tab.page)
        await asyncio.sleep(2)
        await watched(f"{ground} five hidden tabs, {RATE} jobs/s", tabs, served.pid, 10, 1)
        for tab in tabs:
            await hide(tab.page, hidden=False)
        await watched(f"{ground} five tabs in sight again", tabs, served.pid, 10, 1)
    await context.close()


@contextlib.contextmanager
def working(url: str) -> Iterator[None]:
    """Jobs come and are run meanwhile, in a process of their own."""
    words = [sys.executable, "-m", "bench.ui.working", url, str(RATE)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def tell(ground: str, what: str, times: list[float], limit: float) -> None:
    late = "" if max(times) < limit else f"  OVER {limit:g} s (load {load_average()})"
    words = " ".join(f"{seconds:.2f}" for seconds in times)
    print(f"{ground} {what}: {words} s{late}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
