"""The group ``tidewheel jobs``."""

from __future__ import annotations

import click

from tidewheel.cli.jobs.change import cancel, delete, requeue, take_back
from tidewheel.cli.jobs.listing import list_jobs
from tidewheel.cli.jobs.show import show


@click.group(invoke_without_command=True)
@click.pass_context
def jobs(ctx: click.Context) -> None:
    """List, show, requeue, cancel, take back and delete jobs."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for command in (list_jobs, show, requeue, cancel, take_back, delete):
    jobs.add_command(command)
