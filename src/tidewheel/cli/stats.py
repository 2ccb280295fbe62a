"""``tidewheel stats``: the state of the queue on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import (
    STATE_STYLES,
    Cell,
    Column,
    console,
    is_terminal,
    json_option,
    print_json,
    print_table,
    supports_unicode,
)
from tidewheel.cli.topics import COUNTS, print_topics, topic_json
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.reports import Distribution, Stats

BARS: Final = "▁▂▃▄▅▆▇█"
MAX_BARS: Final = 60
"""Bars of the throughput line; a longer window, or a narrower terminal, is summed up into fewer."""
TEXT_WIDTH: Final = 38
"""What stands to the left of the bars."""


@click.command
@click.option(
    "--window",
    type=formats.DurationType(),
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="Times and throughput over this long: seconds, or 90s, 5m, 2h, 1d.",
)
@click.option("--tenant", metavar="NAME", help="Only jobs of this tenant.")
@json_option
@target_options
def stats(target: Target, window: float, tenant: str | None, as_json: bool) -> None:
    """Show counts, times and throughput of the queue.

    Counts are as of now; times and throughput cover the last hour, or --window.
    """

    async def look(app: Tidewheel) -> tuple[Stats, int]:
        return await app.stats(window, tenant=tenant), app.clock.now()

    found, now = target.run(look)
    if as_json:
        print_json(_as_json(found, now))
    else:
        _print(found, now)


def _as_json(found: Stats, now: int) -> dict[str, Any]:
    return {
        **{name: getattr(found, name) for name in COUNTS},
        "delayed": found.delayed,
        "success_rate": found.success_rate,
        "oldest_due_at": formats.iso_time(found.oldest_due_at) or None,
        "window_seconds": found.window_seconds,
        "run_time": asdict(found.run_time),
        "wait_time": asdict(found.wait_time),
        "topics": [topic_json(topic, now) for topic in found.topics],
        "series": [asdict(minute) | {"minute": formats.iso_time(minute.minute)} for minute in found.series],
    }


def _print(found: Stats, now: int) -> None:
    columns = [Column("state"), Column("jobs", "right"), Column("")]
    notes = {"pending": _pending_note(found, now), "completed": _success_note(found)}
    print_table(
        columns,
        (
            [
                Cell(name, style=STATE_STYLES[name]),
                Cell(f"{getattr(found, name):,}", plain_text=str(getattr(found, name))),
                Cell(notes.get(name, "")),
            ]
            for name in COUNTS
        ),
        empty="",
    )
    click.echo()
    print_table(
        [Column(f"last {formats.duration(found.window_seconds)}"), Column("jobs", "right")]
        + [Column(name, "right") for name in ("average", "p50", "p95", "p99")],
        [_times("wait time", found.wait_time), _times("run time", found.run_time)],
        empty="",
    )
    click.echo()
    if found.topics:
        print_topics(list(found.topics), now)
        click.echo()
    _print_throughput(found)


def _pending_note(found: Stats, now: int) -> str:
    notes = [f"{found.delayed:,} delayed"] if found.delayed else []
    if found.oldest_due_at is not None:
        waited = (now - found.oldest_due_at) / MICROSECONDS
        notes.append(f"the oldest due for {formats.duration(max(0.0, waited))}")
    return ", ".join(notes)


def _success_note(found: Stats) -> str:
    rate = found.success_rate
    return "" if rate is None else f"{rate:.1%} success in the last {formats.duration(found.window_seconds)}"


def _times(name: str, times: Distribution) -> list[Cell]:
    def cell(seconds: float | None) -> Cell:
        return Cell(formats.duration(seconds), plain_text="" if seconds is None else f"{seconds:.6f}")

    return [
        Cell(name),
        Cell(f"{times.count:,}", plain_text=str(times.count)),
        *(cell(seconds) for seconds in (times.average, times.p50, times.p95, times.p99)),
    ]


def _print_throughput(found: Stats) -> None:
    minutes = max(1.0, found.window_seconds / 60)
    for name in ("enqueued", "completed", "retried", "failed", "cancelled"):
        total = sum(getattr(minute, name) for minute in found.series)
        if not total and name not in {"enqueued", "completed"}:
            continue
        line = f"{name:10} {total:>9,}  {total / minutes:>9,.1f}/min"
        if is_terminal() and supports_unicode():
            most = min(MAX_BARS, console().width - TEXT_WIDTH)
            heights = [(m.minute, getattr(m, name)) for m in found.series]
            line += f"  {spark_bars(heights, found.window_seconds, most)}"
        click.echo(line)


def spark_bars(series: Sequence[tuple[int, int]], window: float, most: int) -> str:
    """A line of bars, oldest first, the newest minute at its right end; minutes without entries are blank."""
    if not series or most < 1:
        return ""
    newest = max(minute for minute, _ in series)
    sums = [0] * min(most, max(1, round(window / 60)))
    span = max(60.0, window / len(sums)) * MICROSECONDS
    for minute, number in series:
        place = len(sums) - 1 - int((newest - minute) // span)
        if place >= 0:
            sums[place] += number
    top = max(*sums, 1)
    return "".join(BARS[(value * len(BARS) - 1) // top] if value else " " for value in sums)
