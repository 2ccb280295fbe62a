"""``tidewheel superusers``: who may log in."""

from __future__ import annotations

import sys

import click

from tidewheel.access.superusers import Superuser
from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.target_options import Target, cli_caller, target_options
from tidewheel.cli.terminal import Cell, Column, is_terminal, json_option, print_json, print_table
from tidewheel.core.clock import to_microseconds


@click.group(invoke_without_command=True)
@click.pass_context
def superusers(ctx: click.Context) -> None:
    """Make, list and remove those who may log in."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@superusers.command
@click.argument("name")
@target_options
def create(target: Target, name: str) -> None:
    """Make a superuser, or give one another password.

    Another password ends all its sessions.
    The password is asked for, or read from standard input: on a command line everybody would see it.
    """
    if is_terminal(sys.stdin):
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")

    async def make(app: Tidewheel) -> None:
        await app.access.create_superuser(name, password, by=cli_caller())

    target.run(make, create=True)
    click.echo(f"{name} may log in")


@superusers.command("list")
@json_option
@target_options
def list_superusers(target: Target, as_json: bool) -> None:
    """List those that are stored, newest first. The one of the setting superuser is not."""

    async def look(app: Tidewheel) -> tuple[list[Superuser], int]:
        found, cursor = await app.access.superusers(limit=200)
        while cursor is not None:
            more, cursor = await app.access.superusers(limit=200, cursor=cursor)
            found += more
        return found, app.clock.now()

    found, now = target.run(look)
    if as_json:
        print_json(
            [
                {
                    "name": one.name,
                    "created_at": one.created_at.isoformat(),
                    "changed_at": one.changed_at.isoformat(),
                }
                for one in found
            ]
        )
        return
    rows = (
        [
            Cell(one.name),
            Cell(formats.relative_time(to_microseconds(one.created_at), now)),
            Cell(formats.relative_time(to_microseconds(one.changed_at), now)),
        ]
        for one in found
    )
    columns = [Column("name"), Column("made"), Column("password")]
    print_table(columns, rows, empty="nobody yet: tidewheel superusers create NAME")


@superusers.command
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@target_options
def remove(target: Target, names: tuple[str, ...]) -> None:
    """Forget these superusers, which ends their sessions."""

    async def act(app: Tidewheel) -> None:
        for name in names:
            await app.access.remove_superuser(name, by=cli_caller())
            click.echo(f"removed {name}")

    target.run(act)
