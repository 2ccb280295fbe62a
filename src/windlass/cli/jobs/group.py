"""The group ``windlass jobs``."""

from __future__ import annotations

import click

from windlass.cli.jobs.change import cancel, delete, requeue
from windlass.cli.jobs.listing import list_jobs
from windlass.cli.jobs.show import show


@click.group(no_args_is_help=True)
def jobs() -> None:
    """List, show, requeue, cancel and delete jobs."""


for command in (list_jobs, show, requeue, cancel, delete):
    jobs.add_command(command)
