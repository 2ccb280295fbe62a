"""``windlass migrate``: the schema, brought up to date by hand."""

from __future__ import annotations

import click

from windlass.app import Windlass
from windlass.cli.target import Target, target_options
from windlass.cli.terminal import json_option, print_json
from windlass.urls import shown_url


@click.command
@click.option(
    "--rls",
    is_flag=True,
    help="Then set up row-level security on PostgreSQL: the roles windlass_owner, windlass_worker and "
    "windlass_api, and policies that show the last one tenant at a time.",
)
@json_option
@target_options
def migrate(target: Target, as_json: bool, rls: bool) -> None:
    """Create the tables, or bring them up to date.

    Apps and workers do this by themselves when they open the store, unless the setting `migrate` is off.
    Running it again is harmless.
    """
    url = target.load().settings.url

    async def take_steps(app: Windlass) -> list[str]:
        return await app.migrate(rls=rls)

    # Opened without migrating, so that the steps taken are seen here.
    steps = Target(url=url).run(take_steps, create=True, migrate=False)
    if as_json:
        print_json({"url": shown_url(url), "steps": steps})
    elif not steps:
        click.echo(f"{shown_url(url)} is up to date")
    else:
        for step in steps:
            click.echo(f"applied {step}")
