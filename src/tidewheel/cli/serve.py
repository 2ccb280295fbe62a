"""``tidewheel serve``: the HTTP API and the web UI until stopped."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

import click

from tidewheel.__about__ import __version__
from tidewheel.app import Tidewheel
from tidewheel.cli import error_output, log_formatters
from tidewheel.cli.app_loader import load_app
from tidewheel.cli.target_options import traceback_option
from tidewheel.cli.terminal import examples
from tidewheel.core.open_files import raise_file_limit
from tidewheel.core.urls import redact_url
from tidewheel.server import create_api
from tidewheel.server.api_server import ApiServer, is_loopback, listener_url, open_listener
from tidewheel.server.connection_limits import wanted_connections
from tidewheel.server.ui import built_files
from tidewheel.worker.signals import stop_signals

DEFAULT_PORT: Final = 8080

_log = logging.getLogger("tidewheel.cli")


@click.command(
    epilog=examples(
        "tidewheel serve myproject.jobs:app",
        "tidewheel serve myproject.jobs:app --port 9000 --with-worker",
        "tidewheel serve --url postgresql://localhost/jobs",
    )
)
@click.argument("app_reference", metavar="[MODULE:APP]", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=DEFAULT_PORT,
    show_default=True,
    metavar="NUMBER",
    help="Where to listen; 0 is any that is free.",
)
@click.option("--with-worker", is_flag=True, help="Run the app's jobs in this process, too.")
@click.option(
    "--url",
    metavar="URL",
    help="Serve this store without knowing any tasks. Default: the app's, or as for every command.",
)
@click.option(
    "--log-level",
    type=click.Choice(log_formatters.LEVELS, case_sensitive=False),
    help="Least important log lines to show. Default: info, or as the app sets up logging itself.",
)
@click.option("--log-json", is_flag=True, help="Write log lines as JSON, one object on a line.")
@traceback_option
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    app_reference: str | None,
    host: str,
    port: int,
    with_worker: bool,
    url: str | None,
    log_level: str | None,
    log_json: bool,
) -> None:
    """Serve the HTTP API and the web UI of an app until stopped.

    MODULE:APP is where the app is: myproject.jobs:app. Without it the store of the settings is served with
    no tasks known: for reading and managing jobs, and for enqueueing to allowed_topics.
    The first Ctrl-C (or SIGTERM) lets requests finish, for a second and a half; a second one ends at once.
    """
    if app_reference is not None and url is not None:
        raise click.UsageError("MODULE:APP and --url both name a store; give one of them", ctx)
    if app_reference is None and with_worker:
        raise click.UsageError("--with-worker runs an app's tasks; say which app: MODULE:APP", ctx)
    app = load_app(app_reference) if app_reference is not None else Tidewheel(url)
    log_formatters.configure_logging(log_level, as_json=log_json)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # it tells of its own life what we tell
    with open_listener(host, port) as listener:
        _warn_if_exposed(app, host)
        _raise_file_limit(app)
        asyncio.run(_serve(app, listener, with_worker=with_worker))


async def _serve(app: Tidewheel, listener: socket.socket, *, with_worker: bool) -> None:
    api = create_api(app)
    server = ApiServer(api, listener)
    await api.open()
    try:
        await _first_superuser(app)
        worker = app.worker_thread() if with_worker else None
        if worker is not None:
            await asyncio.to_thread(worker.start)
        _log.info(
            "tidewheel %s serves %s on %s%s",
            __version__,
            redact_url(app.settings.url),
            listener_url(listener),
            " and runs jobs" if with_worker else "",
        )
        if app.settings.http_api and app.settings.ui:
            _print_ui_address(listener_url(listener))
        try:
            await server.run_on_current_loop()
        finally:
            if worker is not None:
                hurried = server.force_exit
                with stop_signals(worker.stop_now, enabled=True):
                    await asyncio.to_thread(worker.stop, now=hurried)
        _log.info("stopped")
    finally:
        await api.close()


def _print_ui_address(url: str) -> None:
    if built_files():
        _log.info("the web UI is at %s/ui/", url)
    else:
        error_output.print_warning(
            "the web UI was not built in this source tree: cd ui && npm ci && npm run build"
        )


async def _first_superuser(app: Tidewheel) -> None:
    """The only time the password is shown: on the terminal, and in no log."""
    password = await app.access.ensure_superuser()
    if password is not None:
        click.echo("The first superuser was made. This is the only time its password is shown:", err=True)
        click.echo(f"  name      admin\n  password  {password}", err=True)


def _raise_file_limit(app: Tidewheel) -> None:
    """Connections are files, of which programs are allowed few unless they ask."""
    wanted = wanted_connections(app.settings)
    room = raise_file_limit(wanted)
    if room < wanted:
        error_output.print_warning(
            f"the system allows this process about {room:,} connections; max_event_streams is "
            f"{app.settings.max_event_streams:,} and others come on top: raise the limit of open files "
            "(ulimit -n, LimitNOFILE=), or lower max_event_streams"
        )


def _warn_if_exposed(app: Tidewheel, host: str) -> None:
    settings = app.settings
    for name in ("enqueue_rule", "manage_rule"):
        if getattr(settings, name).strip() == "true":
            error_output.print_warning(f"{name} is true: whoever reaches this server may, without a key")
    if not is_loopback(host):
        error_output.print_warning(
            f"{host} can be reached from other machines, and this server speaks plain HTTP: put a proxy with "
            "TLS in front of it, or keys and passwords can be read on the way"
        )
