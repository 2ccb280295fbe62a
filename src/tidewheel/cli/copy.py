"""``tidewheel copy``: all jobs of a store into another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from tidewheel.admin.store_transfer import CopyPhase, CopyResult, check_source, copy_store
from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.signals import cancel_on_signals
from tidewheel.cli.target_options import database_file, missing_file, traceback_option
from tidewheel.cli.terminal import examples, json_option, print_json, progress_bar
from tidewheel.core.urls import is_http_url, redact_url
from tidewheel.errors import ConfigurationError, NotOverHttp, StoreUnavailable

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_NEXT_STEP: Final = "next: point your programs and workers at TO, and start no worker on FROM again"


@click.command(
    epilog=examples(
        "tidewheel copy sqlite:///jobs.db postgresql://localhost/shop",
        "tidewheel copy 'postgresql://localhost/shop?schema=old' sqlite:///jobs.db --json",
    )
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--live",
    is_flag=True,
    help="Copy although jobs of FROM are running, to try it out. What changes meanwhile is reported as "
    "different at the end.",
)
@json_option
@traceback_option
def copy(source: str, target: str, live: bool, as_json: bool) -> None:
    """Copy all jobs of a store to another, and verify it.

    FROM and TO are URLs of stores. Jobs in every state come with their ids, numbers, attempts, results,
    progress, steps and keys, topics with their pauses, and schedules (paused, with --live). FROM is not
    changed. TO is made if need be, and must be empty, or hold nothing but an earlier copy of FROM: a copy
    that was stopped, even by a power cut, goes on when the same command is started again. At the end both
    are read once more and compared job by job.

    Stop workers and whoever enqueues first. API keys, superusers, the audit log and the statistics of past
    minutes are not copied.
    """
    context = click.get_current_context()
    for name, url in (("FROM", source), ("TO", target)):
        if url.startswith("memory:"):
            raise click.UsageError(f"{name} is {url}, which lives in one process alone", context)
        if is_http_url(url):  # before anything is said about workers there
            raise NotOverHttp(
                f"{name} is {redact_url(url)}, a server, and copying needs the database itself; give its "
                "sqlite:// or postgresql:// URL"
            )
    if (path := missing_file(source)) is not None:
        raise StoreUnavailable(f"there is no database {path} to copy from; FROM is {redact_url(source)}")
    _refuse_same_file(source, target)
    try:
        copied = asyncio.run(_copy(source, target, live=live))
    except asyncio.CancelledError:
        click.echo("stopped; the same command goes on where this one ended", err=True)
        raise click.Abort from None
    if as_json:
        print_json(_as_json(copied))
    else:
        _print_result(copied, source, target, live=live)


def _refuse_same_file(source: str, target: str) -> None:
    """Before anything is opened: SQLite keeps a log beside each name of a file, and two would ruin it."""
    mine, theirs = database_file(source), database_file(target)
    if mine is not None and theirs is not None and theirs.exists() and mine.samefile(theirs):
        raise ConfigurationError(
            f"FROM and TO are the same file, {mine} and {theirs}; nothing was copied, name another one"
        )


async def _copy(source: str, target: str, *, live: bool) -> CopyResult:
    # The source is only read: what else would be done to it on opening is left to its own programs.
    with cancel_on_signals(), progress_bar() as bar:
        watch = _CopyProgress(bar)
        async with Tidewheel(source, migrate=False) as from_app:
            await check_source(from_app, live=live)
            async with Tidewheel(target, migrate=True) as to_app:
                return await copy_store(from_app, to_app, watch=watch.update, live=live)


class _CopyProgress:
    """A row of the bar for each phase."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._rows: dict[CopyPhase, TaskID] = {}

    def update(self, phase: CopyPhase, done: int, total: int) -> None:
        if phase not in self._rows:
            self._rows[phase] = self._bar.add_task(phase.value, total=total)
        self._bar.update(self._rows[phase], completed=done, total=max(done, total))


def _as_json(copied: CopyResult) -> dict[str, object]:
    return {
        "jobs": copied.jobs,
        "written": copied.written,
        "states": {str(state): number for state, number in sorted(copied.states.items())},
        "paused_topics": list(copied.paused),
        "digest": copied.digest,
        "schedules": list(copied.schedules),
    }


def _print_result(copied: CopyResult, source: str, target: str, *, live: bool) -> None:
    before = copied.jobs - copied.written
    also = f" ({before:,} were there from an earlier run)" if before else ""
    click.echo(
        f"copied {formats.job_count(copied.written)} from {redact_url(source)} to {redact_url(target)}{also}"
    )
    states = ", ".join(f"{number:,} {state}" for state, number in sorted(copied.states.items()))
    click.echo(f"verified {formats.job_count(copied.jobs)} in both{f': {states}' if states else ''}")
    click.echo(f"digest {copied.digest}")
    if copied.paused:
        click.echo(f"paused there, too: {', '.join(copied.paused)}")
    if copied.schedules:
        also = "; they are paused there: resume them when nothing fires them here" if live else ""
        click.echo(f"copied {formats.plural(len(copied.schedules), 'schedule')}{also}")
    click.secho(_NEXT_STEP, dim=True, err=True)
