"""Views of the demo: a live screen for terminals, lines for pipes and logs, a final summary."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Sequence
from typing import Final

import click
from rich.console import Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tidewheel.__about__ import __version__
from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.demo.activity_log import ActivityEvent, ActivityKind, ActivityLog
from tidewheel.cli.demo.demo_server import DemoLogin
from tidewheel.cli.demo.shop_app import CONCURRENCY, WORKER_NAMES
from tidewheel.cli.terminal import console
from tidewheel.core.reports import Stats, TopicStats

FRAME_SECONDS: Final = 0.125
LINE_SECONDS: Final = 0.1
WINDOW_SECONDS: Final = 3600.0


async def show_screen(app: Tidewheel, activity_log: ActivityLog, login: DemoLogin) -> None:
    """The live view, on the terminal's other screen: what was there before comes back afterwards."""
    from rich.live import Live

    terminal = console()
    shown = DemoScreen(activity_log, login, __version__, CONCURRENCY * len(WORKER_NAMES))
    with Live(console=terminal, screen=True, auto_refresh=False) as live:
        while True:
            shown.measure(await app.stats(WINDOW_SECONDS))
            live.update(shown.render(terminal.width, terminal.height), refresh=True)
            await asyncio.sleep(FRAME_SECONDS)


async def print_events(app: Tidewheel, activity_log: ActivityLog, login: DemoLogin) -> None:  # noqa: ARG001 - the shape of screen
    """Where the UI is, then one line for each event."""

    def say(events: list[ActivityEvent]) -> None:
        for event in events:
            click.echo(f"{event.at:6.1f}s  {event.kind:9}  {event.topic:9}  {event}")

    click.echo(f"The web UI is at {login.url}")
    click.echo(f"  name      {login.name}\n  password  {login.password}")
    try:
        while True:
            say(activity_log.take_events())
            await asyncio.sleep(LINE_SECONDS)
    finally:
        say(activity_log.take_events(include_open_groups=True))


TOPICS: Final = ("mail", "payments", "webhooks", "reports", "imports", "reminders", "orders", "images")
"""The first ones also where there is little room."""
MIN_TOPIC_ROWS: Final = 6
HEADER_ROWS: Final = 4
"""Lines above the panels."""
SPARK_CHARACTERS: Final = "▁▂▃▄▅▆▇█"
SAMPLE_SECONDS: Final = 0.5
"""How often throughput is measured."""
RATE_SAMPLES: Final = 6
"""The number shown is over this many samples: three seconds."""

ICONS: Final = {
    ActivityKind.DONE: ("✓", "green"),
    ActivityKind.RETRY: ("↻", "yellow"),
    ActivityKind.FAILED: ("✗", "bold red"),
    ActivityKind.DUPLICATE: ("=", "blue"),
    ActivityKind.RESUMED: ("»", "cyan"),
    ActivityKind.PLANNED: ("+", "magenta"),
    ActivityKind.PAUSED: ("‖", "bright_black"),
}
SEGMENTS: Final = (("completed", "green"), ("running", "cyan"), ("pending", "yellow"), ("failed", "red"))


class DemoScreen:
    """Draws the demo from the store's figures and the journal."""

    def __init__(self, activity_log: ActivityLog, login: DemoLogin, version: str, concurrency: int) -> None:
        self._journal = activity_log
        self._login = login
        self._version = version
        self._concurrency = concurrency
        self._stats: Stats | None = None
        self._samples: deque[tuple[float, int]] = deque(maxlen=200)

    def measure(self, stats: Stats) -> None:
        """New figures from the store."""
        self._stats = stats
        now = self._journal.seconds
        if not self._samples or now - self._samples[-1][0] >= SAMPLE_SECONDS:
            self._samples.append((now, stats.completed + stats.failed))

    @property
    def rate(self) -> float:
        """Jobs finished per second, lately."""
        recent = list(self._samples)[-RATE_SAMPLES - 1 :]
        if len(recent) < 2:
            return 0.0
        return (recent[-1][1] - recent[0][1]) / (recent[-1][0] - recent[0][0])

    def render(self, width: int, height: int) -> RenderableType:
        """The whole screen."""
        layout = Layout()
        topics = TOPICS[: min(len(TOPICS), max(MIN_TOPIC_ROWS, height - HEADER_ROWS - 14))]
        parts = [
            Layout(self._header(width), size=HEADER_ROWS),
            Layout(self._topics(topics, width), size=len(topics) + 2),
        ]
        left = height - HEADER_ROWS - len(topics) - 2
        if left >= 12:
            rows = min(5, max(3, left // 4))
            parts.append(Layout(self._running(rows, width), size=rows + 2))
            left -= rows + 2
        parts.append(Layout(self._events(max(1, left - 2))))
        layout.split_column(*parts)
        return layout

    # -- parts ------------------------------------------------------------------------------------------

    def _header(self, width: int) -> RenderableType:
        stats = self._stats
        title = Table.grid(expand=True)
        title.add_column(no_wrap=True)
        title.add_column(justify="right", no_wrap=True)
        clock = f"{int(self._journal.seconds) // 60:02}:{int(self._journal.seconds) % 60:02}"
        title.add_row(
            Text.assemble(
                (" tidewheel demo ", "bold reverse cyan"),
                ("  one file, two workers", "dim"),
                (
                    f", {self._concurrency} jobs at a time, version {self._version}" if width >= 100 else "",
                    "dim",
                ),
            ),
            Text.assemble((clock, "bold"), ("  Ctrl-C stops ", "dim")),
        )
        if stats is None:
            return Group(title, self._ui_address(width), Text(" starting…", "dim"))
        figures = Text.assemble(
            (f" {self.rate:,.0f}", "bold green"),
            (" jobs/s  ", "dim"),
            (self._sparks(min(40, width - 62)), "green"),
            ("  run ", "dim"),
            _times(stats.run_time.p50, stats.run_time.p95),
            ("  wait ", "dim"),
            _times(stats.wait_time.p50, stats.wait_time.p95),
            no_wrap=True,
            overflow="ellipsis",
        )
        totals = Text.assemble(
            (f" {stats.completed:,}", "bold green"),
            (" completed   ", "dim"),
            (f"{stats.running:,}", "bold cyan"),
            (" running   ", "dim"),
            (f"{stats.pending - stats.delayed:,}", "bold yellow"),
            (" waiting   ", "dim"),
            (f"{stats.delayed:,}", "bold blue"),
            (" later   ", "dim"),
            (f"{self._journal.counts[ActivityKind.RETRY]:,}", "bold magenta"),
            (" retries   ", "dim"),
            (f"{stats.failed:,}", "bold red"),
            (" failed", "dim"),
            no_wrap=True,
            overflow="ellipsis",
        )
        return Group(title, self._ui_address(width), totals, figures)

    def _ui_address(self, width: int) -> Text:
        """Where the UI is and how to get in, in as many words as there is room for."""
        login, wide = self._login, width >= 90
        return Text.assemble(
            (" look at " if wide else " ", "dim"),
            (login.url, "bold underline cyan"),
            ("  log in as " if wide else "  ", "dim"),
            (login.name, "bold"),
            (" with the password " if wide else "  ", "dim"),
            (login.password, "bold"),
            no_wrap=True,
            overflow="ellipsis",
        )

    def _topics(self, names: Sequence[str], width: int) -> RenderableType:
        found = {topic.topic: topic for topic in self._stats.topics} if self._stats is not None else {}
        topics = [found.get(name, TopicStats(name)) for name in names]
        largest = max(1, *(topic.total for topic in topics))
        bar_width = max(10, width - 58)
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=9, no_wrap=True)
        table.add_column(width=bar_width, no_wrap=True)
        for _ in range(4):
            table.add_column(justify="right", no_wrap=True)
        for topic in topics:
            table.add_row(
                Text(topic.topic, "bold"),
                _bar(topic, largest, bar_width),
                _number(topic.completed, "done", "green"),
                _number(topic.running, "running", "cyan"),
                _number(topic.pending, "waiting", "yellow"),
                _number(topic.failed, "failed", "red"),
            )
        return _panel(table, "topics")

    def _running(self, rows: int, width: int) -> RenderableType:
        # Those that tell how far they are first, then the longest at work.
        at_work = sorted(self._journal.running.values(), key=lambda job: (job.percent is None, job.started))
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=9, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        table.add_column(width=max(12, width // 4), no_wrap=True)
        table.add_column(width=15, no_wrap=True, overflow="ellipsis")
        for job in at_work[:rows]:
            bar: RenderableType = Text("")
            if job.percent is not None:
                bar = ProgressBar(100, job.percent, complete_style="cyan", finished_style="cyan")
            table.add_row(Text(job.topic, "bold"), Text(job.title), bar, Text(job.message, "dim"))
        return _panel(table, f"running now: {len(at_work)}")

    def _events(self, rows: int) -> RenderableType:
        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=6, justify="right", no_wrap=True)
        table.add_column(width=1, no_wrap=True)
        table.add_column(width=9, no_wrap=True)
        table.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
        for event in list(self._journal.events)[-rows:]:
            icon, style = ICONS[event.kind]
            quiet = "dim" if event.kind in {ActivityKind.DONE, ActivityKind.PLANNED} else ""
            table.add_row(
                Text(f"{event.at:.1f}s", "dim"),
                Text(icon, style),
                Text(event.topic, "bold"),
                Text(str(event), quiet or style),
            )
        legend = Text("  ").join(
            Text.assemble((icon, style), f" {kind}") for kind, (icon, style) in ICONS.items()
        )
        return _panel(table, "what happens", legend)

    def _sparks(self, width: int) -> str:
        """Throughput of the last samples as a line of bars."""
        samples = list(self._samples)[-width - 1 :] if width > 0 else []
        rates = [max(0, later[1] - earlier[1]) for earlier, later in itertools.pairwise(samples)]
        top = max(rates, default=0) + 1
        return "".join(SPARK_CHARACTERS[rate * len(SPARK_CHARACTERS) // top] for rate in rates)


def _bar(topic: TopicStats, largest: int, width: int) -> Text:
    """One bar of a topic: what is done, runs, waits and failed, against the topic with the most jobs."""
    # Below linear: six quiet topics beside one with hundreds of emails would otherwise show no bar at all.
    length = max(1, round(width * (topic.total / largest) ** 0.5)) if topic.total else 0
    bar = Text()
    drawn = so_far = 0
    for name, style in SEGMENTS:
        so_far += getattr(topic, name)
        end = round(length * so_far / topic.total) if topic.total else 0
        if getattr(topic, name) and end == drawn < length:
            end += 1  # something is never shown as nothing
        bar.append("━" * (end - drawn), style)
        drawn = max(drawn, end)
    bar.append("─" * (width - drawn), "bright_black")
    return bar


def _number(number: int, what: str, style: str) -> Text:
    return Text.assemble((f"{number:,}", f"bold {style}" if number else "dim"), (f" {what}", "dim"))


def _times(p50: float | None, p95: float | None) -> tuple[str, str]:
    return f"p50 {formats.duration(p50)} p95 {formats.duration(p95)}", "bold"


def _panel(content: RenderableType, title: str, subtitle: Text | None = None) -> Panel:
    return Panel(
        content,
        title=Text(title, "bold"),
        title_align="left",
        subtitle=subtitle,
        subtitle_align="right",
        border_style="bright_black",
        padding=(0, 1),
    )


def print_summary(stats: Stats, activity_log: ActivityLog, seconds: float, *, left_in: str | None) -> None:
    """What has been seen, and where to go from here."""
    retries, duplicates = activity_log.counts[ActivityKind.RETRY], activity_log.counts[ActivityKind.DUPLICATE]
    click.echo()
    click.echo(
        click.style(f"In {formats.duration(seconds)}: ", bold=True)
        + f"{formats.job_count(stats.completed)} completed, {stats.failed:,} failed for good; "
        f"{formats.plural(retries, 'retry', 'retries')}, {formats.plural(duplicates, 'duplicate')} refused."
    )
    for name, times in (("Run", stats.run_time), ("Wait", stats.wait_time)):
        click.echo(f"{name} time: p50 {formats.duration(times.p50)}, p95 {formats.duration(times.p95)}.")
    if left_in is None:
        click.echo("The throw-away database is gone.")
    else:
        click.echo(f"The jobs are left in {left_in}.")
    click.echo()
    click.secho("What to do next", bold=True)
    for what, how in (
        ("enqueue by code", 'await send_digest.enqueue(user_id="42")  # an @app.task'),
        ("run a worker", "tidewheel worker myproject.jobs:app"),
        ("API and web UI", "tidewheel serve myproject.jobs:app"),
        ("read on", "README.md, docs/ and tidewheel --help"),
    ):
        click.echo(f"  {click.style(f'{what:17}', fg='cyan')}{how}")
