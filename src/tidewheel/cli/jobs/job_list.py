"""``tidewheel jobs list``: list matching jobs once, or with ``--watch`` repeatedly.

``--watch`` redraws the newest matching jobs on a terminal. In a pipe, it prints a line for each job that is
new or has changed.
"""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import click

from tidewheel.admin.filters import JobFilters
from tidewheel.app import Tidewheel
from tidewheel.cli import error_output, formats
from tidewheel.cli.formats import DurationType
from tidewheel.cli.jobs import job_json
from tidewheel.cli.jobs.filter_options import filter_options
from tidewheel.cli.signals import cancel_on_signals
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import (
    STATE_STYLES,
    Cell,
    Column,
    console,
    dump_json,
    examples,
    is_terminal,
    json_option,
    make_table,
    plain_line,
    print_json,
    print_table,
)
from tidewheel.client.job_handle import Job, JobPage
from tidewheel.core.clock import MICROSECONDS, to_datetime
from tidewheel.core.model import DEFAULT_PAGE, MAX_PAGE
from tidewheel.core.text_format import printable
from tidewheel.errors import StoreUnavailable

if TYPE_CHECKING:
    from rich.console import RenderableType

MIN_EVERY_SECONDS = 0.1
MAX_EVERY_SECONDS = 3600.0
WIDE_COLUMNS = 110
"""From this many columns on a terminal the table has room for the topic and for what is going on."""


@click.command(
    "list",
    epilog=examples(
        "tidewheel jobs list --state failed --topic mail",
        "tidewheel jobs list 'state:failed payload.user_id:42 age>1h'",
        "tidewheel jobs list --created-after 2h --json",
        "tidewheel jobs list 'state:running,retrying' --watch",
        "tidewheel jobs list --state failed -q | xargs tidewheel jobs requeue",
    ),
)
@click.argument("terms", metavar="[FILTER]...", nargs=-1)
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=DEFAULT_PAGE,
    show_default=True,
    help=f"At most this many jobs; {MAX_PAGE} is the most a page has.",
)
@click.option("--cursor", type=click.IntRange(0), help="Continue where an earlier page said it ended.")
@click.option(
    "--offset", type=click.IntRange(0), default=0, show_default=True, help="Skip this many jobs first."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only ids, one on a line: for xargs.")
@click.option(
    "-w",
    "--watch",
    is_flag=True,
    help="Go on until Ctrl-C: redraw the list on a terminal, print jobs as they come and change in a pipe.",
)
@click.option(
    "--every",
    type=DurationType(),
    default="1s",
    show_default=True,
    metavar="DURATION",
    help="How often --watch looks: seconds, or 500ms, 5s, 1m.",
)
@json_option
@target_options
def list_jobs(
    target: Target,
    terms: tuple[str, ...],
    filters: JobFilters,
    limit: int,
    cursor: int | None,
    offset: int,
    quiet: bool,
    watch: bool,
    every: float,
    as_json: bool,
) -> None:
    """List jobs, newest first, all or those that match.

    FILTER is written in the filter language: 'state:failed topic:mail age>1h'.
    """
    if terms and "where" in filters:
        raise click.UsageError("the filter is given twice; say it in one way", click.get_current_context())
    if terms:
        filters = {**filters, "where": " ".join(terms)}
    if watch:
        _check_watch(quiet=quiet, paged=cursor is not None or offset > 0, every=every)

        target.run(lambda app: watch_jobs(app, filters, limit=limit, every=every, as_json=as_json))
        return

    async def look(app: Tidewheel) -> tuple[JobPage[Job[Any]], int]:
        return await app.jobs(limit=limit, offset=offset, cursor=cursor, **filters), app.clock.now()

    page, now = target.run(look)
    if as_json:
        print_json(
            {
                "items": [job_json.job_summary_json(job) for job in page],
                "total": page.total,
                "total_exact": page.total_exact,
                "limit": page.limit,
                "offset": page.offset,
                "cursor": page.cursor,
                "partial": page.partial,
                "searched_back_to": page.searched_back_to and page.searched_back_to.isoformat(),
            }
        )
    elif quiet:
        for job in page:
            click.echo(str(job.id))
    else:
        _print_page(page, now)


def _check_watch(*, quiet: bool, paged: bool, every: float) -> None:
    context = click.get_current_context()
    if quiet:
        raise click.UsageError("--watch shows jobs as they change, which ids alone do not tell", context)
    if paged:
        raise click.UsageError("--watch is about the newest jobs; leave --cursor and --offset out", context)
    if not MIN_EVERY_SECONDS <= every <= MAX_EVERY_SECONDS:
        raise click.UsageError(
            f"--every is {formats.duration(every)}; it can be from {formats.duration(MIN_EVERY_SECONDS)} "
            f"to {formats.duration(MAX_EVERY_SECONDS)}",
            context,
        )


def _print_page(page: JobPage[Job[Any]], now: int) -> None:
    wide = is_output_wide()
    rows = (list(job_cells(job, now, wide=wide)) for job in page)
    print_table(job_columns(wide=wide), rows, empty="no jobs match")
    # To stderr: a pipe gets jobs only, the person at the terminal hears that there is more.
    if page.partial and page.searched_back_to is not None:
        click.echo(
            f"searched back to {page.searched_back_to.isoformat()}; go on with --cursor {page.cursor}",
            err=True,
        )
    elif page.cursor is not None:
        total = f"{page.total:,}" if page.total_exact else f"more than {page.total:,}"
        click.echo(f"{len(page):,} of {total}; the next page: --cursor {page.cursor}", err=True)


def is_output_wide() -> bool:
    """Whether there is room for everything: in a pipe there always is."""
    return not is_terminal() or console().width >= WIDE_COLUMNS


def job_columns(*, wide: bool) -> list[Column]:
    """What is told of each job."""
    told = [Column("id", keep_readable=True), Column("state"), Column("task" if wide else "task or topic")]
    told += [Column("topic")] if wide else []
    told += [Column("tries", "right"), Column("age" if is_terminal() else "created", "right")]
    return told + ([Column("detail")] if wide else [])


def job_cells(job: Job[Any], now: int, *, wide: bool) -> Iterator[Cell]:
    """One job, in these columns."""
    record = job.record
    state = str(record.shown_state(now))
    yield Cell(str(job.id))
    yield Cell(state, style=STATE_STYLES.get(state, ""))
    yield Cell(job.task or "-", plain_text=job.task) if wide else Cell(job.task or job.topic)
    if wide:
        yield Cell(job.topic)
    yield Cell(attempts_text(job))
    yield Cell(formats.relative_time(record.created_at, now), plain_text=formats.iso_time(record.created_at))
    if wide:
        yield _state_detail(job, state, now)


def attempts_text(job: Job[Any]) -> str:
    """Attempts counted, of those it gets."""
    return f"{job.attempt}/{job.max_attempts}" if job.max_attempts is not None else str(job.attempt)


def _state_detail(job: Job[Any], state: str, now: int) -> Cell:
    """What is worth knowing of a job in this state."""
    record = job.record
    due = formats.relative_time(record.run_at, now)
    match state:
        case "failed" | "cancelled":
            return Cell(job.error_summary or "", style="red" if state == "failed" else "")
        case "delayed":
            return Cell(f"due {due}", plain_text=f"due {formats.iso_time(record.run_at)}")
        case "retrying":
            again = f"again {due}" if record.run_at > now else "due"
            plain = f"again {formats.iso_time(record.run_at)}"
            error = f": {job.error_summary}" if job.error_summary else ""
            return Cell(again + error, plain_text=plain + error)
        case "running" if job.progress is not None:
            message = f" {job.progress.message}" if job.progress.message else ""
            return Cell(f"{job.progress.percent:g} %{message}")
        case "completed" if record.started_at is not None and record.finished_at is not None:
            seconds = (record.finished_at - record.started_at) / MICROSECONDS
            return Cell(f"took {formats.duration(seconds)}")
        case _:
            return Cell("")


RESERVED_LINES: Final = 3
"""Of a screen: the title, the head of the table and the last line."""


async def watch_jobs(app: Tidewheel, filters: JobFilters, *, limit: int, every: float, as_json: bool) -> None:
    """Until Ctrl-C, which is how it is meant to end."""
    # Once by itself: what is wrong with a filter is said before a screen is taken.
    await app.jobs(limit=1, **filters)
    try:
        with cancel_on_signals():
            if is_terminal() and not as_json:
                await _watch_on_screen(app, filters, limit, every)
            else:
                await _watch_as_lines(app, filters, limit, every, as_json=as_json)
    except asyncio.CancelledError:
        # Taken, and told so: or asyncio does not know a second Ctrl-C, while the store is closed, for one.
        if (running := asyncio.current_task()) is not None:
            running.uncancel()


async def _watch_on_screen(app: Tidewheel, filters: JobFilters, limit: int, every: float) -> None:
    """On the terminal's other screen: what was there before comes back afterwards."""
    from rich.live import Live

    terminal = console()
    page: JobPage[Job[Any]] | None = None
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        while True:
            trouble = None
            try:
                rows = max(1, min(limit, terminal.height - RESERVED_LINES))
                page = await app.jobs(limit=rows, **filters)
            except StoreUnavailable as error:
                trouble = str(error)  # it may come back; what was seen last stays
            live.update(_render_page(page, filters, app.clock.now(), trouble), refresh=True)
            await asyncio.sleep(every)


def _render_page(
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
    wide = is_output_wide()
    rows = [list(job_cells(job, now, wide=wide)) for job in page]
    return Group(title, make_table(job_columns(wide=wide), rows), last)


async def _watch_as_lines(
    app: Tidewheel, filters: JobFilters, limit: int, every: float, *, as_json: bool
) -> None:
    """A line for each job there is, and again when it is new or has changed; the oldest first."""
    seen: dict[Any, tuple[object, ...]] = {}
    unreachable = False
    if not as_json:
        click.echo("\t".join(column.title.upper() for column in job_columns(wide=True)))
    while True:
        _check_stdout_open()
        try:
            page = await app.jobs(limit=limit, **filters)
            unreachable = False
        except StoreUnavailable as error:
            if not unreachable:
                error_output.print_warning(f"{error}; going on when it is back")
            unreachable = True
            await asyncio.sleep(every)
            continue
        now = app.clock.now()
        before, seen = seen, {}
        for job in reversed(page.items):
            seen[job.id] = _change_key(job, now)
            if before.get(job.id) != seen[job.id]:
                if as_json:
                    click.echo(dump_json(job_json.job_summary_json(job), indent=None))
                else:
                    click.echo(plain_line(job_cells(job, now, wide=True)))
        await asyncio.sleep(every)


def _check_stdout_open() -> None:
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


def _change_key(job: Job[Any], now: int) -> tuple[object, ...]:
    """What makes a job worth another line."""
    progress = job.progress and (job.progress.percent, job.progress.message, job.progress.stage)
    return job.record.shown_state(now), job.attempt, job.record.run_at, job.error_summary, progress
