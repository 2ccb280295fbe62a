"""``tidewheel jobs list --watch``: the newest jobs that match, again and again."""

from __future__ import annotations

import asyncio
import select
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import failures
from tidewheel.cli.ending import ended_by_signals
from tidewheel.cli.jobs import shape
from tidewheel.cli.jobs.listing import cells, columns, is_wide
from tidewheel.cli.terminal import console, dump_json, is_terminal, make_table, plain_line
from tidewheel.clock import to_datetime
from tidewheel.errors import StoreUnavailable
from tidewheel.filters import JobFilters
from tidewheel.job import Job, JobPage
from tidewheel.wording import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

LINES_BESIDE: Final = 3
"""Of a screen: the title, the head of the table and the last line."""


async def watch_jobs(app: Tidewheel, filters: JobFilters, *, limit: int, every: float, as_json: bool) -> None:
    """Until Ctrl-C, which is how it is meant to end."""
    # Once by itself: what is wrong with a filter is said before a screen is taken.
    await app.jobs(limit=1, **filters)
    try:
        with ended_by_signals():
            if is_terminal() and not as_json:
                await _screen(app, filters, limit, every)
            else:
                await _lines(app, filters, limit, every, as_json=as_json)
    except asyncio.CancelledError:
        # Taken, and told so: or asyncio does not know a second Ctrl-C, while the store is closed, for one.
        if (running := asyncio.current_task()) is not None:
            running.uncancel()


async def _screen(app: Tidewheel, filters: JobFilters, limit: int, every: float) -> None:
    """On the terminal's other screen: what was there before comes back afterwards."""
    from rich.live import Live

    terminal = console()
    page: JobPage[Job[Any]] | None = None
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        while True:
            trouble = None
            try:
                rows = max(1, min(limit, terminal.height - LINES_BESIDE))
                page = await app.jobs(limit=rows, **filters)
            except StoreUnavailable as error:
                trouble = str(error)  # it may come back; what was seen last stays
            live.update(_drawn(page, filters, app.clock.now(), trouble), refresh=True)
            await asyncio.sleep(every)


def _drawn(
    page: JobPage[Job[Any]] | None, filters: JobFilters, now: int, trouble: str | None
) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    title = Text(no_wrap=True, overflow="ellipsis")
    title.append(to_datetime(now).astimezone().strftime("%H:%M:%S"), style="bold")
    if page is not None:
        total = f"{page.total:,}" if page.total_exact else f"more than {page.total:,}"
        title.append(f"  {total} {'job' if page.total == 1 else 'jobs'}")
    said = " ".join(str(value) if name == "where" else f"{name}:{value}" for name, value in filters.items())
    title.append(f"  {printable(said)}" if said else "", style="cyan")
    last = Text(trouble or "Ctrl-C ends", no_wrap=True, overflow="ellipsis")
    last.stylize("red" if trouble else "bright_black")
    if not page:
        return Group(title, Text("no jobs match" if page is not None else ""), last)
    wide = is_wide()
    rows = [list(cells(job, now, wide=wide)) for job in page]
    return Group(title, make_table(columns(wide=wide), rows), last)


async def _lines(app: Tidewheel, filters: JobFilters, limit: int, every: float, *, as_json: bool) -> None:
    """A line for each job there is, and again when it is new or has changed; the oldest first."""
    seen: dict[Any, tuple[object, ...]] = {}
    unreachable = False
    if not as_json:
        click.echo("\t".join(column.title.upper() for column in columns(wide=True)))
    while True:
        _refuse_deserted()
        try:
            page = await app.jobs(limit=limit, **filters)
            unreachable = False
        except StoreUnavailable as error:
            if not unreachable:
                failures.warn(f"{error}; going on when it is back")
            unreachable = True
            await asyncio.sleep(every)
            continue
        now = app.clock.now()
        before, seen = seen, {}
        for job in reversed(page.items):
            seen[job.id] = _news(job, now)
            if before.get(job.id) != seen[job.id]:
                if as_json:
                    click.echo(dump_json(shape.listed(job), indent=None))
                else:
                    click.echo(plain_line(cells(job, now, wide=True)))
        await asyncio.sleep(every)


def _refuse_deserted() -> None:
    """Whoever only writes when there is news would never learn that nobody reads it (``| head -1``)."""
    if not hasattr(select, "poll"):
        return  # Windows
    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        return  # not a file of the system
    poll = select.poll()
    poll.register(output, 0)  # an end that was closed is told without being asked for
    if any(events & select.POLLERR for _, events in poll.poll(0)):
        raise BrokenPipeError


def _news(job: Job[Any], now: int) -> tuple[object, ...]:
    """What makes a job worth another line."""
    progress = job.progress and (job.progress.percent, job.progress.message, job.progress.stage)
    return job.record.shown_state(now), job.attempt, job.record.run_at, job.error_summary, progress
