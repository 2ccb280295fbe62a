"""``tidewheel migrate``: create or update the schema, or write its SQL.

Teams that manage their own DDL print the SQL, or export it as a migration of Django or Alembic.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from tidewheel.admin.migration_scripts import missing_script, write_grants, write_migration_script
from tidewheel.app import Tidewheel
from tidewheel.cli.migration_export import export_migration
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import json_option, print_json
from tidewheel.core.urls import redact_url


@click.command
@click.option(
    "--rls",
    is_flag=True,
    help="Then set up row-level security on PostgreSQL: the roles tidewheel_owner, tidewheel_worker and "
    "tidewheel_api, and policies that show the last one tenant at a time.",
)
@click.option(
    "--print",
    "printing",
    is_flag=True,
    help="Print the SQL instead of running it. The store is looked at for what is missing, and not changed.",
)
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="With --print: from this version of the schema, 0 for none yet. The store is not looked at, and of "
    "--url only the kind of database and the schema matter.",
)
@click.option(
    "--grants",
    metavar="ROLE",
    help="With --print: instead of that, what lets a role of PostgreSQL enqueue in its own transactions.",
)
@click.option(
    "--export",
    type=click.Choice(["alembic", "django"]),
    help="Write the SQL into a migration of this tool instead of running it. What migrations in the "
    "directory have from an earlier export is left out. The store is not looked at.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="With --export: where the tool's migrations are, for example shop/migrations.",
)
@click.option(
    "--after",
    metavar="NAME",
    help="With --export: the migration it comes after, or how its name begins. Default: the last one in the "
    "directory.",
)
@json_option
@target_options
@click.pass_context
def migrate(
    ctx: click.Context,
    target: Target,
    as_json: bool,
    rls: bool,
    printing: bool,
    since: int | None,
    grants: str | None,
    export: str | None,
    directory: Path | None,
    after: str | None,
) -> None:
    """Create the tables, or bring them up to date.

    Apps and workers do this by themselves when they open the store, unless the setting `migrate` is off.
    Running it again is harmless.
    """
    _check_options(ctx, printing=printing, since=since, grants=grants, export=export)
    if (directory is None) != (export is None) or (after is not None and export is None):
        raise click.UsageError("--export needs --directory; --directory and --after need --export", ctx)
    url = target.load().settings.url
    if grants is not None:
        _print_sql(url, write_grants(url, grants, rls=rls), as_json)
    elif printing:
        if since is None:
            script = asyncio.run(missing_script(url, rls=rls))
        else:
            script = write_migration_script(url, since=since, rls=rls)
        _print_sql(url, script.text, as_json, version=script.to_version, steps=list(script.steps))
    elif export is not None and directory is not None:
        written = export_migration(export, url, directory, after=after, rls=rls)
        if as_json:
            print_json({"file": None if written is None else str(written)})
        else:
            click.echo(f"{directory} has all of it already" if written is None else f"wrote {written}")
    else:
        _run_migrations(url, rls, as_json)


def _check_options(
    ctx: click.Context, *, printing: bool, since: int | None, grants: str | None, export: str | None
) -> None:
    if not printing and (since is not None or grants is not None):
        raise click.UsageError("--since and --grants are for what is printed; add --print", ctx)
    if printing and export is not None:
        raise click.UsageError("--print and --export are two ways to the same SQL; give one of them", ctx)
    if since is not None and grants is not None:
        raise click.UsageError("grants have no versions; give --since or --grants", ctx)


def _print_sql(url: str, sql: str, as_json: bool, **more: object) -> None:
    if as_json:
        print_json({"url": redact_url(url), **more, "sql": sql})
    else:
        click.echo(sql, nl=False)


def _run_migrations(url: str, rls: bool, as_json: bool) -> None:
    async def take_steps(app: Tidewheel) -> list[str]:
        return await app.migrate(rls=rls)

    # Opened without migrating, so that the steps taken are seen here.
    steps = Target(url=url).run(take_steps, create=True, migrate=False)
    if as_json:
        print_json({"url": redact_url(url), "steps": steps})
    elif not steps:
        click.echo(f"{redact_url(url)} is up to date")
    else:
        for step in steps:
            click.echo(f"applied {step}")
