"""``tidewheel access``: find out what a key or a token may do."""

from __future__ import annotations

import sys
from typing import Any

import click

from tidewheel.access.credentials import Explanation
from tidewheel.app import Tidewheel
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import examples, is_terminal, json_option, print_json


@click.group(invoke_without_command=True)
@click.pass_context
def access(ctx: click.Context) -> None:
    """Find out what a key or a token may do."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


@access.command(
    epilog=examples(
        "tidewheel access explain --app myproject.jobs:app",
        "tidewheel access explain - --app myproject.jobs:app < token.txt",
    )
)
@click.argument("token", default="-")
@json_option
@target_options
def explain(target: Target, as_json: bool, token: str) -> None:
    """Say what an API key or a JSON Web Token may do, or why it is rejected.

    Without TOKEN, or with -, it is asked for, or read from standard input: on a command line it would be in
    the shell's history.
    The settings of the server are needed, such as jwt_secret; --app has them, or the environment.
    It exits with 1 if the token is rejected.
    """
    if token == "-":  # noqa: S105 - not a token
        if is_terminal(sys.stdin):
            token = click.prompt("Key or token", hide_input=True, err=True)
        else:
            token = sys.stdin.readline()

    async def look(app: Tidewheel) -> Explanation:
        return await app.access.explain(token.strip())

    found = target.run(look)
    if as_json:
        print_json(_shape(found))
    else:
        for line in _lines(found):
            click.echo(line)
    if found.caller is None:
        sys.exit(1)


def _lines(found: Explanation) -> list[str]:
    caller = found.caller
    if caller is None:
        return [f"rejected: {found.rejected}"]
    whose = "all tenants (superuser)" if caller.superuser else f"tenant {caller.tenant}"
    user = f", user {caller.user_id}" if caller.user_id else ""
    scopes = ", ".join(sorted(caller.scopes)) or "none"
    return [
        f"accepted: {caller.name}, {whose}{user}; scopes: {scopes}",
        *(
            f"  {'may' if ability.allowed else 'may not'} {ability.what}: {ability.why}"
            for ability in found.abilities
        ),
    ]


def _shape(found: Explanation) -> dict[str, Any]:
    caller = found.caller
    if caller is None:
        return {"accepted": False, "rejected": found.rejected}
    return {
        "accepted": True,
        "kind": str(caller.kind),
        "name": caller.name,
        "tenant": None if caller.superuser else caller.tenant,
        "user_id": caller.user_id,
        "superuser": caller.superuser,
        "scopes": sorted(caller.scopes),
        "abilities": [
            {"what": ability.what, "allowed": ability.allowed, "why": ability.why}
            for ability in found.abilities
        ],
    }
