"""The last words of the demo."""

from __future__ import annotations

import click

from tidewheel.cli import words
from tidewheel.cli.demo.journal import Journal, Kind
from tidewheel.model import Stats


def print_summary(stats: Stats, journal: Journal, seconds: float, *, left_in: str | None) -> None:
    """What has been seen, and where to go from here."""
    retries, duplicates = journal.counts[Kind.RETRY], journal.counts[Kind.DUPLICATE]
    click.echo()
    click.echo(
        click.style(f"In {words.duration(seconds)}: ", bold=True)
        + f"{words.jobs(stats.completed)} completed, {stats.failed:,} failed for good; "
        f"{words.plural(retries, 'retry', 'retries')}, {words.plural(duplicates, 'duplicate')} refused."
    )
    for name, times in (("Run", stats.run_time), ("Wait", stats.wait_time)):
        click.echo(f"{name} time: p50 {words.duration(times.p50)}, p95 {words.duration(times.p95)}.")
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
