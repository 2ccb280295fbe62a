"""Options that select the queue of a command: ``--url``, ``--app``, or the settings.

``cli_caller`` names the user of the command line for the audit log.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack
from urllib.parse import unquote, urlsplit

import click

from tidewheel.access.caller import Caller, CallerKind
from tidewheel.app import Tidewheel
from tidewheel.cli import error_output
from tidewheel.cli.app_loader import load_app
from tidewheel.errors import StoreUnavailable
from tidewheel.settings import SettingOptions

T = TypeVar("T")

_URL: Final = "tidewheel.url"
_APP: Final = "tidewheel.app"


@dataclass(frozen=True, slots=True)
class Target:
    """The queue a command works on, not yet opened."""

    url: str | None = None
    app: str | None = None

    def load(self, **settings: Unpack[SettingOptions]) -> Tidewheel:
        """The user's app, or one without tasks (and with these settings) on the given or configured store."""
        if self.app is not None:
            return load_app(self.app)
        return Tidewheel(self.url, **settings)

    def run(
        self,
        work: Callable[[Tidewheel], Awaitable[T]],
        *,
        create: bool = False,
        **settings: Unpack[SettingOptions],
    ) -> T:
        """Open the queue, do ``work``, close it.

        Unless told to ``create``, a database file that does not exist is an error: who asks in the wrong
        directory wants to hear so, and no empty file left behind.
        """
        app = self.load(**settings)
        if not create:
            _refuse_missing_file(app.settings.url)
        missing = missing_file(app.settings.url)
        done = run_app(app, work)
        if missing is not None:  # or a key for the wrong store is found out about by a 401, much later
            click.secho(f"made the database {missing}", dim=True, err=True)
        return done


def run_app(app: Tidewheel, work: Callable[[Tidewheel], Awaitable[T]]) -> T:
    """Open the app, do ``work``, close it."""

    async def opened() -> T:
        async with app:
            return await work(app)

    return asyncio.run(opened())


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--url``, ``--app`` and ``--traceback``; the command gets a ``target``.

    Options of a group reach its commands: ``tidewheel topics --url … list`` means what it says.
    """

    @click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=functools.partial(_remember, _URL),
        help="The store, for example sqlite:///jobs.db, or a server that has it, http://host:8080, with a "
        "key in $TIDEWHEEL_TOKEN. Default: $TIDEWHEEL_URL, [tool.tidewheel] in pyproject.toml, or "
        "sqlite:///tidewheel.db.",
    )
    @click.option(
        "--app",
        metavar="MODULE:APP",
        expose_value=False,
        callback=functools.partial(_remember, _APP),
        help="Use this app's store, settings and tasks, for example myproject.jobs:app.",
    )
    @traceback_option
    @click.pass_context
    @functools.wraps(command)
    def with_target(ctx: click.Context, /, *args: Any, **kwargs: Any) -> Any:
        target = Target(ctx.meta.get(_URL), ctx.meta.get(_APP))
        if target.url is not None and target.app is not None:
            raise click.UsageError("--url and --app both name a store; give one of them", ctx)
        return ctx.invoke(command, *args, target=target, **kwargs)

    return with_target


def app_for_completion(ctx: click.Context) -> Tidewheel | None:
    """An app on the store a half-typed command means; None where only the user's own code could tell."""
    if ctx.meta.get(_APP) is not None:
        return None
    return Tidewheel(ctx.meta.get(_URL), migrate=False)


def traceback_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--traceback``, for commands that import the user's code."""
    return click.option(
        "--traceback",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=error_output.remember_traceback,
        help="Show where an error came from. TIDEWHEEL_DEBUG=1 does the same for every command.",
    )(command)


def _remember(name: str, ctx: click.Context, param: click.Parameter, value: str | None) -> None:  # noqa: ARG001
    if value is not None:
        ctx.meta[name] = value


def database_file(url: str) -> Path | None:
    """The database file that a URL names, if it names one."""
    parts = urlsplit(url)
    if parts.scheme != "sqlite" or parts.netloc:
        return None  # whatever is wrong with such a URL, the store says it better
    path = unquote(parts.path).removeprefix("/")
    return Path(path).absolute() if path else None


def missing_file(url: str) -> Path | None:
    """The database file that a URL names, where it has not been made yet."""
    file = database_file(url)
    if file is None:
        return None
    # An empty one is none yet: merely opening it would make it one.
    there = file.exists() and (not file.is_file() or file.stat().st_size)
    return None if there else file


def _refuse_missing_file(url: str) -> None:
    path = missing_file(url)
    if path is not None:
        raise missing_database_error(path)


def missing_database_error(path: Path) -> StoreUnavailable:
    """What to say to whoever asks about a file that is not there."""
    return StoreUnavailable(
        f"there is no database {path} yet; enqueue a job or run `tidewheel migrate` to make it, or say where "
        "it is with --url or --app"
    )


def cli_caller() -> Caller:
    """The person, as far as the machine knows."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a number without a name
        user = "unknown"
    return Caller(CallerKind.CLI, f"cli: {user}@{socket.gethostname()}", superuser=True)
