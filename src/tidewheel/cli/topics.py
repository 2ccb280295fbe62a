"""``tidewheel topics``: the lanes jobs wait in."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from tidewheel.admin.filters import JobFilters
from tidewheel.app import Tidewheel
from tidewheel.cli import error_output, formats
from tidewheel.cli.completion import topic_names
from tidewheel.cli.jobs.job_actions import DELETE, act_with_bar
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import (
    STATE_STYLES,
    Cell,
    Column,
    examples,
    is_terminal,
    json_option,
    print_json,
    print_table,
)
from tidewheel.core.model import FOREVER
from tidewheel.core.names import shorten, suggest
from tidewheel.core.reports import TopicStats
from tidewheel.errors import InvalidInput

COUNTS = ("pending", "running", "completed", "failed", "cancelled")


@click.group(invoke_without_command=True)
@json_option
@target_options
@click.pass_context
def topics(ctx: click.Context, target: Target, as_json: bool) -> None:
    """List, pause, resume and purge topics. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        _list(target, as_json=as_json)


@topics.command("list")
@json_option
@target_options
def list_topics(target: Target, as_json: bool) -> None:
    """List every topic that has jobs or is paused, with its counts."""
    _list(target, as_json=as_json)


@topics.command
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=topic_names)
@click.option(
    "--for",
    "seconds",
    type=formats.DurationType(),
    metavar="DURATION",
    help="Resume by itself after this long: seconds, or 90s, 5m, 2h. Default: until resumed.",
)
@target_options
def pause(target: Target, names: tuple[str, ...], seconds: float | None) -> None:
    """Let no worker take jobs of these topics. Jobs that are running go on; new ones can be enqueued."""

    async def act(app: Tidewheel) -> None:
        for name in names:
            await app.pause(name, seconds)

    target.run(act, create=True)
    end = f" for {formats.duration(seconds)}" if seconds is not None else ""
    for name in names:
        click.echo(f"paused {name}{end}")


@topics.command
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=topic_names)
@target_options
def resume(target: Target, names: tuple[str, ...]) -> None:
    """Let workers take jobs of these topics again."""

    async def act(app: Tidewheel) -> None:
        for name in names:
            await app.resume(name)

    target.run(act)
    for name in names:
        click.echo(f"resumed {name}")


@topics.command(
    epilog=examples("tidewheel topics purge mail", "tidewheel topics purge mail reports --yes --json")
)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, shell_complete=topic_names)
@click.option("-y", "--yes", is_flag=True, help="Do not ask before deleting.")
@json_option
@target_options
def purge(target: Target, names: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete all jobs of these topics that are not running, finished ones too.

    Of all tenants. Running jobs are left alone: cancel them first, or purge again when they are done; exits 1
    when there are any. Pauses stay, and jobs that come in meanwhile are not touched.
    """
    context = click.get_current_context()
    names = tuple(dict.fromkeys(names))
    # Opened twice: the question is asked while no event loop runs, where Ctrl-C ends it.
    before = target.run(lambda app: _of_topics(app, names))
    number = sum(topic.total - topic.running for topic in before)
    if number and not yes and not _confirmed(names, number, context):
        click.echo("nothing was changed", err=True)
        context.exit(error_output.EXIT_FAILED)
    purged = target.run(lambda app: _purge(app, names))
    if as_json:
        print_json([{"topic": name, "deleted": deleted, "running": left} for name, deleted, left in purged])
    else:
        for name, deleted, left in purged:
            click.echo(
                f"purged {name}: deleted "
                f"{formats.job_count(deleted)}{f', {left:,} still running' if left else ''}"
            )
    if any(left for _, _, left in purged):
        context.exit(error_output.EXIT_FAILED)


async def _of_topics(app: Tidewheel, names: tuple[str, ...]) -> list[TopicStats]:
    """These topics, which all have to be there: a typing error is not an empty topic."""
    found = {topic.topic: topic for topic in await app.topics()}
    for name in names:
        if name not in found:
            raise InvalidInput(
                f"there is no topic {shorten(name)}{suggest(name, found)}; nothing was deleted"
            )
    return [found[name] for name in names]


def _confirmed(names: tuple[str, ...], number: int, context: click.Context) -> bool:
    what = f"delete {formats.job_count(number)} of {', '.join(names)}"
    if not is_terminal(sys.stdin):
        raise click.UsageError(
            f"this would {what}, and there is no terminal to ask on; add --yes to go ahead", context
        )
    return click.confirm(f"{what}?", default=False, err=True)


async def _purge(app: Tidewheel, names: tuple[str, ...]) -> list[tuple[str, int, int]]:
    """Each topic, how many jobs of it were deleted, and how many are running."""
    purged = []
    for name in names:
        filters = JobFilters(topic=name)
        deleted = await act_with_bar(app, DELETE, filters, await app.bulk.matching("delete", filters))
        running = await app.count(topic=name, state="running")
        purged.append((name, deleted, running.total))
    return purged


def _list(target: Target, *, as_json: bool) -> None:
    async def look(app: Tidewheel) -> tuple[list[TopicStats], int]:
        return await app.topics(), app.clock.now()

    found, now = target.run(look)
    if as_json:
        print_json([topic_json(topic, now) for topic in found])
    else:
        print_topics(found, now)


def topic_json(topic: TopicStats, now: int) -> dict[str, object]:
    """A topic for programs. A pause without an end is ``paused`` without ``paused_until``."""
    until = topic.paused_until
    paused = until is not None and until > now
    return {
        "topic": topic.topic,
        **{name: getattr(topic, name) for name in COUNTS},
        "total": topic.total,
        "paused": paused,
        "paused_until": formats.iso_time(until) if paused and until != FOREVER else None,
    }


def print_topics(found: list[TopicStats], now: int) -> None:
    """The table of topics."""
    columns = [Column("topic"), *(Column(name, "right") for name in COUNTS)]
    paused = any(formats.pause_end(topic.paused_until, now) for topic in found)
    columns += [Column("paused")] if paused else []
    rows = (list(_cells(topic, now, paused=paused)) for topic in found)
    print_table(columns, rows, empty="no topics yet: the first job makes one")


def _cells(topic: TopicStats, now: int, *, paused: bool) -> Iterator[Cell]:
    yield Cell(topic.topic)
    for name in COUNTS:
        number = getattr(topic, name)
        yield Cell(
            f"{number:,}", plain_text=str(number), style=STATE_STYLES[name] if number else "bright_black"
        )
    if paused:
        yield Cell(formats.pause_end(topic.paused_until, now), style="yellow")
