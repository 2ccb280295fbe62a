"""``tidewheel keys``: what programs show to get in over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from tidewheel.access.api_keys import ApiKey, NewApiKey
from tidewheel.access.caller import Scope
from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.target_options import Target, cli_caller, target_options
from tidewheel.cli.terminal import Cell, Column, examples, is_terminal, json_option, print_json, print_table
from tidewheel.core.clock import to_microseconds


@click.group(invoke_without_command=True)
@click.pass_context
def keys(ctx: click.Context) -> None:
    """Make, list and revoke API keys."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@keys.command(
    epilog=examples(
        "tidewheel keys create --superuser --app myproject.jobs:app",
        "tidewheel keys create --name billing --tenant acme --scope enqueue --expires 90d",
    )
)
@click.option("--name", default="", help="What it is for, to be recognised by.")
@click.option(
    "--superuser", is_flag=True, help="Good for everything, in all tenants, whatever the rules say."
)
@click.option("--tenant", metavar="TENANT", help="Whose jobs it is for. Default: the root tenant.")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice([scope.value for scope in Scope]),
    multiple=True,
    help="What it is good for at most; can be given several times. Default: all but tracebacks.",
)
@click.option("--user-id", metavar="ID", help="The user its jobs are made for.")
@click.option("--service-id", metavar="ID", help="The service its jobs are made by.")
@click.option(
    "--expires",
    type=formats.DurationType(),
    metavar="DURATION",
    help="When it ends: 12h, 30d. Default: never.",
)
@json_option
@target_options
def create(target: Target, as_json: bool, scopes: tuple[str, ...], **options: Any) -> None:
    """Make an API key, and show it.

    It is shown this once, because only a hash of it is kept.
    """

    async def make(app: Tidewheel) -> NewApiKey:
        return await app.access.create_key(scopes=scopes or None, by=cli_caller(), **options)

    made = target.run(make, create=True)
    if as_json:
        print_json({"key": made.key, **_shape(made.info)})
        return
    click.echo(made.key)
    if is_terminal():
        click.secho(f"Its id is {made.info.id}. Keep the key: it is not shown again.", dim=True, err=True)


@keys.command("list")
@json_option
@target_options
def list_keys(target: Target, as_json: bool) -> None:
    """List the keys, newest first. Those that are revoked or have expired stay listed for a month."""

    async def look(app: Tidewheel) -> tuple[list[ApiKey], int]:
        found, cursor = await app.access.keys(limit=200)
        while cursor is not None:
            more, cursor = await app.access.keys(limit=200, cursor=cursor)
            found += more
        return found, app.clock.now()

    found, now = target.run(look)
    if as_json:
        print_json([_shape(key) for key in found])
        return
    columns = [
        Column("id", keep_readable=True),
        Column("name", shrink_first=True),
        Column("tenant"),
        Column("scopes"),
    ]
    columns += [Column("state"), Column("last used", spare=True), Column("made", spare=True)]
    rows = ([Cell(text) for text in _cells(key, now)] for key in found)
    print_table(columns, rows, empty="no keys yet: tidewheel keys create makes one")


@keys.command
@click.argument("key_ids", metavar="ID...", nargs=-1, required=True)
@target_options
def revoke(target: Target, key_ids: tuple[str, ...]) -> None:
    """End these keys. Servers refuse them within a second. It cannot be undone."""

    async def act(app: Tidewheel) -> None:
        for key_id in key_ids:
            await app.access.revoke_key(key_id, by=cli_caller())
            click.echo(f"revoked {key_id}")

    target.run(act)


def _shape(key: ApiKey) -> dict[str, Any]:
    """A key for programs, without the key."""
    return {
        "id": key.id,
        "name": key.name,
        "tenant": None if key.superuser else key.tenant,
        "superuser": key.superuser,
        "scopes": sorted(key.scopes),
        "user_id": key.user_id,
        "service_id": key.service_id,
        "created_at": _moment(key.created_at),
        "expires_at": _moment(key.expires_at),
        "revoked_at": _moment(key.revoked_at),
        "last_used_at": _moment(key.last_used_at),
    }


def _cells(key: ApiKey, now: int) -> tuple[str, ...]:
    expires_at = None if key.expires_at is None else to_microseconds(key.expires_at)
    if key.revoked_at is not None:
        state = "revoked"
    elif expires_at is None:
        state = "good"
    else:
        state = "expired" if expires_at <= now else f"ends {formats.relative_time(expires_at, now)}"
    used = (
        "never" if key.last_used_at is None else formats.relative_time(to_microseconds(key.last_used_at), now)
    )
    return (
        key.id,
        key.name,
        "all (superuser)" if key.superuser else key.tenant,
        " ".join(sorted(key.scopes)),
        state,
        used,
        formats.relative_time(to_microseconds(key.created_at), now),
    )


def _moment(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
