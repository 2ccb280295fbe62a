"""``tidewheel jobs``: the group of commands that show jobs and act on them."""

from __future__ import annotations

import click

from tidewheel.cli.jobs.job_actions import cancel, delete, requeue, take_back
from tidewheel.cli.jobs.job_details import show
from tidewheel.cli.jobs.job_list import list_jobs


@click.group(invoke_without_command=True)
@click.pass_context
def jobs(ctx: click.Context) -> None:
    """List, show, requeue, cancel, take back and delete jobs."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for command in (list_jobs, show, requeue, cancel, take_back, delete):
    jobs.add_command(command)
