"""``tidewheel limits``: how much of a topic runs at once, how fast, in which order, for whom."""

from __future__ import annotations

import re
from typing import Any

import click

from tidewheel.admin.filters.times import DURATION, UNITS
from tidewheel.app import Tidewheel
from tidewheel.cli.completion import topic_names
from tidewheel.cli.formats import ParamType
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import Cell, Column, examples, json_option, print_json, print_table
from tidewheel.core.topic_limits import Rate, TopicLimits

_RATE = re.compile(r"(\d{1,9})/(\S+?)(?:\+(\d{1,9}))?")


class RateType(ParamType):
    """``50/s``, ``1000/h``, ``5/30s``; ``50/s+10`` with bursts of ten."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        if isinstance(value, Rate):
            return value
        found = _RATE.fullmatch(value)
        if found is None:
            self.fail(
                f"{value!r} is no rate; give 50/s, 1000/h, 5/30s, or 50/s+10 with bursts of 10", param, ctx
            )
        count, period, burst = found.groups()
        length = DURATION.fullmatch(period if period[0].isdigit() else f"1{period}")
        if length is None:
            self.fail(f"{period!r} is no period; give s, m, h, d, or 30s", param, ctx)
        seconds = float(length[1]) * UNITS[length[2] or "s"]
        return Rate(int(count), seconds, None if burst is None else int(burst))


class WeightType(ParamType):
    """``acme=3``."""

    name = "weight"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        tenant, equals, weight = str(value).rpartition("=")
        if not equals or not weight.isascii() or not weight.isdigit():
            self.fail(f"{value!r} is no weight; give TENANT=NUMBER, for example acme=3", param, ctx)
        return tenant, int(weight[:9])


@click.group(invoke_without_command=True)
@json_option
@target_options
@click.pass_context
def limits(ctx: click.Context, target: Target, as_json: bool) -> None:
    """List, set and remove limits of topics. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        _list(target, as_json=as_json)


@limits.command("list")
@json_option
@target_options
def list_limits(target: Target, as_json: bool) -> None:
    """List every topic that has limits."""
    _list(target, as_json=as_json)


@limits.command(
    "set",
    epilog=examples(
        "tidewheel limits set mail --rate 50/s+10",
        "tidewheel limits set imports --key-concurrency 1 --concurrency 20",
        "tidewheel limits set reports --fair --weight acme=3",
    ),
)
@click.argument("topic", shell_complete=topic_names)
@click.option("--concurrency", type=int, metavar="NUMBER", help="Jobs of the topic that run at once.")
@click.option("--rate", type=RateType(), metavar="RATE", help="Starts of the topic: 50/s, 1000/h, 50/s+10.")
@click.option(
    "--key-concurrency", type=int, metavar="NUMBER", help="Jobs of each limit key that run at once."
)
@click.option("--key-rate", type=RateType(), metavar="RATE", help="Starts of each limit key.")
@click.option("--ordered", is_flag=True, help="Run the jobs of each limit key one by one, in their order.")
@click.option("--fair", is_flag=True, help="Share what runs between tenants, inside one priority.")
@click.option(
    "--weight",
    "weights",
    type=WeightType(),
    metavar="TENANT=NUMBER",
    multiple=True,
    help="How large a tenant's share is, beside 1 for others; with --fair.",
)
@target_options
def set_limits(
    target: Target,
    topic: str,
    concurrency: int | None,
    rate: Rate | None,
    key_concurrency: int | None,
    key_rate: Rate | None,
    ordered: bool,
    fair: bool,
    weights: tuple[tuple[str, int], ...],
) -> None:
    """Limit a topic, for all workers together, in place of the limits it has.

    They stand over what tasks declare, until they are removed. Workers that run obey at once.
    """
    wanted = TopicLimits(
        concurrency=concurrency,
        rate=rate,
        key_concurrency=key_concurrency,
        key_rate=key_rate,
        ordered=ordered,
        fair=fair,
        weights=dict(weights),
    )
    target.run(lambda app: app.limits.set(topic, wanted), create=True)
    click.echo(f"limited {topic}: {wanted}")


@limits.command
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=topic_names)
@target_options
def remove(target: Target, topics: tuple[str, ...]) -> None:
    """Remove the limits of these topics. What tasks declare comes back when a worker with them starts."""

    async def act(app: Tidewheel) -> list[bool]:
        return [await app.limits.remove(topic) for topic in topics]

    for topic, removed in zip(topics, target.run(act), strict=True):
        click.echo(f"removed the limits of {topic}" if removed else f"{topic} has no limits")


def _list(target: Target, *, as_json: bool) -> None:
    found = target.run(lambda app: app.limits.list())
    if as_json:
        print_json([_shape(topic, of_topic) for topic, of_topic in found.items()])
        return
    columns = [Column("topic"), Column("limits"), Column("set by")]
    rows = [[Cell(topic), Cell(str(of_topic)), Cell(of_topic.origin)] for topic, of_topic in found.items()]
    print_table(columns, rows, empty="no topic has limits")


def _shape(topic: str, of_topic: TopicLimits) -> dict[str, Any]:
    def rate(given: Rate | None) -> dict[str, Any] | None:
        return None if given is None else {"count": given.count, "per": given.per, "burst": given.burst}

    return {
        "topic": topic,
        "origin": str(of_topic.origin),
        "concurrency": of_topic.concurrency,
        "rate": rate(of_topic.rate),
        "key_concurrency": of_topic.key_concurrency,
        "key_rate": rate(of_topic.key_rate),
        "ordered": of_topic.ordered,
        "fair": of_topic.fair,
        "weights": dict(of_topic.weights),
    }
