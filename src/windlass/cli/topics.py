"""``windlass topics``: the lanes jobs wait in."""

from __future__ import annotations

from collections.abc import Iterator

import click

from windlass.app import Windlass
from windlass.cli import words
from windlass.cli.target import Target, target_options
from windlass.cli.terminal import STATE_STYLES, Cell, Column, json_option, print_json, print_table
from windlass.model import FOREVER, TopicStats

COUNTS = ("pending", "running", "completed", "failed", "cancelled")


@click.group(invoke_without_command=True)
@json_option
@target_options
@click.pass_context
def topics(ctx: click.Context, target: Target, as_json: bool) -> None:
    """List, pause and resume topics. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        _list(target, as_json=as_json)


@topics.command("list")
@json_option
@target_options
def list_topics(target: Target, as_json: bool) -> None:
    """List every topic that has jobs or is paused, with its counts."""
    _list(target, as_json=as_json)


@topics.command
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--for",
    "seconds",
    type=words.Duration(),
    metavar="DURATION",
    help="Resume by itself after this long: seconds, or 90s, 5m, 2h. Default: until resumed.",
)
@target_options
def pause(target: Target, names: tuple[str, ...], seconds: float | None) -> None:
    """Let no worker take jobs of these topics. Jobs that are running go on; new ones can be enqueued."""

    async def act(app: Windlass) -> None:
        for name in names:
            await app.pause(name, seconds)

    target.run(act, create=True)
    end = f" for {words.duration(seconds)}" if seconds is not None else ""
    for name in names:
        click.echo(f"paused {name}{end}")


@topics.command
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@target_options
def resume(target: Target, names: tuple[str, ...]) -> None:
    """Let workers take jobs of these topics again."""

    async def act(app: Windlass) -> None:
        for name in names:
            await app.resume(name)

    target.run(act)
    for name in names:
        click.echo(f"resumed {name}")


def _list(target: Target, *, as_json: bool) -> None:
    async def look(app: Windlass) -> tuple[list[TopicStats], int]:
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
        "paused_until": words.moment(until) if paused and until != FOREVER else None,
    }


def print_topics(found: list[TopicStats], now: int) -> None:
    """The table of topics."""
    columns = [Column("topic"), *(Column(name, "right") for name in COUNTS)]
    paused = any(words.pause_end(topic.paused_until, now) for topic in found)
    columns += [Column("paused")] if paused else []
    rows = (list(_cells(topic, now, paused=paused)) for topic in found)
    print_table(columns, rows, empty="no topics yet: the first job makes one")


def _cells(topic: TopicStats, now: int, *, paused: bool) -> Iterator[Cell]:
    yield Cell(topic.topic)
    for name in COUNTS:
        number = getattr(topic, name)
        yield Cell(f"{number:,}", plain=str(number), style=STATE_STYLES[name] if number else "bright_black")
    if paused:
        yield Cell(words.pause_end(topic.paused_until, now), style="yellow")
