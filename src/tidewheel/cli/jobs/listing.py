"""``tidewheel jobs list``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from tidewheel.app import DEFAULT_PAGE, LARGEST_PAGE, Tidewheel
from tidewheel.cli import words
from tidewheel.cli.jobs import shape
from tidewheel.cli.jobs.filtering import filter_options
from tidewheel.cli.target import Target, target_options
from tidewheel.cli.terminal import (
    STATE_STYLES,
    Cell,
    Column,
    console,
    examples,
    is_terminal,
    json_option,
    print_json,
    print_table,
)
from tidewheel.cli.words import Duration
from tidewheel.clock import MICROSECONDS
from tidewheel.filters import JobFilters
from tidewheel.job import Job, JobPage

SHORTEST_EVERY = 0.1
LONGEST_EVERY = 3600.0
WIDE = 110
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
    help=f"At most this many jobs; {LARGEST_PAGE} is the most a page has.",
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
    type=Duration(),
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
        from tidewheel.cli.jobs.watching import watch_jobs

        target.run(lambda app: watch_jobs(app, filters, limit=limit, every=every, as_json=as_json))
        return

    async def look(app: Tidewheel) -> tuple[JobPage[Job[Any]], int]:
        return await app.jobs(limit=limit, offset=offset, cursor=cursor, **filters), app.clock.now()

    page, now = target.run(look)
    if as_json:
        print_json(
            {
                "items": [shape.listed(job) for job in page],
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
    if not SHORTEST_EVERY <= every <= LONGEST_EVERY:
        raise click.UsageError(
            f"--every is {words.duration(every)}; it can be from {words.duration(SHORTEST_EVERY)} "
            f"to {words.duration(LONGEST_EVERY)}",
            context,
        )


def _print_page(page: JobPage[Job[Any]], now: int) -> None:
    wide = is_wide()
    rows = (list(cells(job, now, wide=wide)) for job in page)
    print_table(columns(wide=wide), rows, empty="no jobs match")
    # To stderr: a pipe gets jobs only, the person at the terminal hears that there is more.
    if page.partial and page.searched_back_to is not None:
        click.echo(
            f"searched back to {page.searched_back_to.isoformat()}; go on with --cursor {page.cursor}",
            err=True,
        )
    elif page.cursor is not None:
        total = f"{page.total:,}" if page.total_exact else f"more than {page.total:,}"
        click.echo(f"{len(page):,} of {total}; the next page: --cursor {page.cursor}", err=True)


def is_wide() -> bool:
    """Whether there is room for everything: in a pipe there always is."""
    return not is_terminal() or console().width >= WIDE


def columns(*, wide: bool) -> list[Column]:
    """What is told of each job."""
    told = [Column("id", keep=True), Column("state"), Column("task" if wide else "task or topic")]
    told += [Column("topic")] if wide else []
    told += [Column("tries", "right"), Column("age" if is_terminal() else "created", "right")]
    return told + ([Column("detail")] if wide else [])


def cells(job: Job[Any], now: int, *, wide: bool) -> Iterator[Cell]:
    """One job, in these columns."""
    record = job.record
    state = str(record.shown_state(now))
    yield Cell(str(job.id))
    yield Cell(state, style=STATE_STYLES.get(state, ""))
    yield Cell(job.task or "-", plain=job.task) if wide else Cell(job.task or job.topic)
    if wide:
        yield Cell(job.topic)
    yield Cell(tries(job))
    yield Cell(words.age(record.created_at, now), plain=words.moment(record.created_at))
    if wide:
        yield _detail(job, state, now)


def tries(job: Job[Any]) -> str:
    """Attempts counted, of those it gets."""
    return f"{job.attempt}/{job.max_attempts}" if job.max_attempts is not None else str(job.attempt)


def _detail(job: Job[Any], state: str, now: int) -> Cell:
    """What is worth knowing of a job in this state."""
    record = job.record
    due = words.age(record.run_at, now)
    match state:
        case "failed" | "cancelled":
            return Cell(job.error_summary or "", style="red" if state == "failed" else "")
        case "delayed":
            return Cell(f"due {due}", plain=f"due {words.moment(record.run_at)}")
        case "retrying":
            again = f"again {due}" if record.run_at > now else "due"
            plain = f"again {words.moment(record.run_at)}"
            error = f": {job.error_summary}" if job.error_summary else ""
            return Cell(again + error, plain=plain + error)
        case "running" if job.progress is not None:
            message = f" {job.progress.message}" if job.progress.message else ""
            return Cell(f"{job.progress.percent:g} %{message}")
        case "completed" if record.started_at is not None and record.finished_at is not None:
            seconds = (record.finished_at - record.started_at) / MICROSECONDS
            return Cell(f"took {words.duration(seconds)}")
        case _:
            return Cell("")
