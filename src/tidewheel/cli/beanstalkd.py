"""``tidewheel beanstalkd``: a server for beanstalkd clients, with the options of beanstalkd itself.

What serving needs is imported when the command line has been read; ``early`` says why, and listens before.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidewheel.__about__ import __version__
from tidewheel.beanstalkd.listener import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    ListenAddress,
    bound_address,
    listen,
    read_address,
    stop_listening,
)
from tidewheel.cli import error_output
from tidewheel.cli.early_listener import take_listener
from tidewheel.cli.terminal import examples
from tidewheel.errors import ConfigurationError

if TYPE_CHECKING:
    import socket

    from tidewheel.app import Tidewheel

DATABASE_NAME: Final = "tidewheel.db"
"""The file in the directory of -b."""
MAX_JOB_BYTES: Final = 2**30
"""As in beanstalkd: the most that -z may say."""
LEVELS: Final = ("debug", "info", "warning", "error")


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if not value or ctx.resilient_parsing:
        return
    from tidewheel.beanstalkd.replies import VERSION

    click.echo(f"beanstalkd {VERSION} (tidewheel {__version__})")
    ctx.exit()


@click.command(
    epilog=examples(
        "tidewheel beanstalkd --url sqlite:////var/lib/queue/jobs.db",
        "tidewheel beanstalkd --listen unix:/run/queue.sock --url postgresql://localhost/jobs",
        "tidewheel beanstalkd -l 127.0.0.1 -p 11300 -b /var/lib/beanstalkd -z 1000000",
    )
)
@click.option(
    "--listen",
    "listen_on",
    metavar="ADDRESS",
    help=f"HOST:PORT or unix:PATH. Default: {DEFAULT_HOST}:{DEFAULT_PORT}.",
)
@click.option(
    "--url", metavar="URL", help="The store. Default: as -b or --app says, or as for every command."
)
@click.option("--app", "app_reference", metavar="MODULE:APP", help="The app whose store and settings to use.")
@click.option("-l", "host", metavar="ADDRESS", help="As beanstalkd: the address alone, or unix:PATH.")
@click.option("-p", "port", type=click.IntRange(0, 65_535), metavar="PORT", help="As beanstalkd: the port.")
@click.option(
    "-z",
    "max_job_size",
    type=click.IntRange(min=0),
    metavar="BYTES",
    help="As beanstalkd: the largest body of a job. Default: 65535.",
)
@click.option(
    "-b",
    "directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help=f"As beanstalkd: where jobs are kept, here in a file {DATABASE_NAME} of SQLite.",
)
@click.option("-u", "user", metavar="USER", help="As beanstalkd: become this user once it listens.")
@click.option(
    "-f", "sync_ms", type=click.IntRange(min=0), metavar="MS", help="Accepted: every write is synced."
)
@click.option("-F", "never_sync", is_flag=True, help="Accepted: every write is synced.")
@click.option(
    "-s", "binlog_max_size", type=click.IntRange(min=0), metavar="BYTES", help="Accepted: shown in stats."
)
@click.option("-c", "-n", "compacting", is_flag=True, help="Accepted, as in beanstalkd: without effect.")
@click.option("-V", "verbosity", count=True, help="As beanstalkd: say more, on stderr. Twice: everything.")
@click.option(
    "-v",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="As beanstalkd: show the version, and exit.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1, 1_000_000),
    default=10_000,
    show_default=True,
    metavar="NUMBER",
    help="Hang up on clients beyond these.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    help="Least important log lines to show. Default: warning.",
)
@click.option("--log-json", is_flag=True, help="Write log lines as JSON, one object on a line.")
@click.pass_context
def beanstalkd(
    ctx: click.Context,
    /,
    listen_on: str | None,
    url: str | None,
    app_reference: str | None,
    host: str | None,
    port: int | None,
    max_job_size: int | None,
    directory: Path | None,
    user: str | None,
    sync_ms: int | None,
    never_sync: bool,
    binlog_max_size: int | None,
    compacting: bool,
    verbosity: int,
    max_connections: int,
    log_level: str | None,
    log_json: bool,
) -> None:
    """Serve beanstalkd clients until stopped.

    Any client of beanstalkd, in any language, puts, reserves and deletes the jobs of this store. It has no
    passwords: whoever reaches the address may do everything, so it listens on this machine only unless told
    otherwise. SIGUSR1 makes it refuse new jobs. Ctrl-C or SIGTERM gives reserved jobs back and ends it; a
    second one ends it at once.
    """
    del sync_ms, never_sync, compacting  # a store writes durably, always, and keeps its file small itself
    if app_reference is not None and url is not None:
        raise click.UsageError("--app and --url both name a store; give one of them", ctx)
    if listen_on is not None and (host is not None or port is not None):
        raise click.UsageError("--listen and -l or -p both say where to listen; give one of them", ctx)
    if max_job_size is not None and max_job_size > MAX_JOB_BYTES:
        error_output.print_warning(
            f"-z is {max_job_size:,}; jobs have at most {MAX_JOB_BYTES:,} bytes, so that is the limit"
        )
        max_job_size = MAX_JOB_BYTES
    address = read_address(host or "", port) if listen_on is None else read_address(listen_on)
    listener = take_listener(address) or listen(address)
    gc.disable()  # until it serves: all that is made meanwhile stays
    try:
        address = bound_address(listener, address)
        if not address.is_local:
            error_output.print_warning(
                f"{address} can be reached from other machines, and the protocol knows no passwords: "
                "whoever reaches it may read, change and delete all jobs of this store"
            )
        _serve(
            _app(app_reference, url, directory),
            listener,
            address,
            user=user,
            log_level=log_level or ("warning", "info", "debug")[min(verbosity, 2)],
            log_json=log_json,
            max_connections=max_connections,
            max_job_size=max_job_size,
            binlog_max_size=binlog_max_size,
        )
    finally:
        gc.enable()
        stop_listening(listener, address)


def _app(reference: str | None, url: str | None, directory: Path | None) -> Tidewheel:
    if reference is not None:
        from tidewheel.cli.app_loader import load_app

        return load_app(reference)
    from tidewheel.app import Tidewheel

    if url is None and directory is not None:
        from urllib.parse import quote

        url = f"sqlite:///{quote((directory.absolute() / DATABASE_NAME).as_posix(), safe='/:')}"
    return Tidewheel(url)


def _serve(
    app: Tidewheel,
    listener: socket.socket,
    address: ListenAddress,
    *,
    user: str | None,
    log_level: str,
    log_json: bool,
    max_connections: int,
    max_job_size: int | None,
    binlog_max_size: int | None,
) -> None:
    import asyncio

    from tidewheel.beanstalkd.server import Server
    from tidewheel.beanstalkd.server_state import BINLOG_FILE_BYTES, DEFAULT_MAX_JOB_SIZE
    from tidewheel.cli import log_formatters
    from tidewheel.core.open_files import RESERVED_FILES, raise_file_limit
    from tidewheel.core.urls import redact_url

    log_formatters.configure_logging(log_level, as_json=log_json)
    room = raise_file_limit(max_connections)
    if room == 0:
        raise ConfigurationError(
            f"the system allows this process too few open files for a single connection beside its own "
            f"{RESERVED_FILES}: raise the limit (ulimit -n, LimitNOFILE=)"
        )
    if room < max_connections:
        error_output.print_warning(
            f"the system allows this process about {room:,} connections, fewer than --max-connections: raise "
            "the limit of open files (ulimit -n, LimitNOFILE=)"
        )

    async def serve() -> None:
        async with app:
            server = Server(
                app,
                max_job_size=DEFAULT_MAX_JOB_SIZE if max_job_size is None else max_job_size,
                max_connections=min(max_connections, room),
                binlog_max_size=BINLOG_FILE_BYTES if binlog_max_size is None else binlog_max_size,
            )
            gc.freeze()
            gc.enable()
            with _signals(server.stop, server.drain):
                click.secho(
                    f"tidewheel serves beanstalkd clients on {address} from {redact_url(app.url)}",
                    dim=True,
                    err=True,
                )
                await server.run(listener)

    if user is not None:
        # As all code, before somebody who may not be able to read it.
        import tidewheel.worker.observers
        import tidewheel.worker.store_maintenance  # noqa: F401

        _switch_user(user)
    asyncio.run(serve())


def _signals(stop: Callable[[], None], drain: Callable[[], None]) -> ExitStack:
    """What signals do while serving. A second one to stop ends the process, as it does to beanstalkd: a
    database that does not answer would keep it for half a minute.
    """
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    stack = ExitStack()
    ending = (signal.SIGINT, signal.SIGTERM)

    def stop_once() -> None:
        stop()
        for number in ending:
            with suppress(NotImplementedError):  # Windows
                loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    actions = dict.fromkeys(ending, stop_once)
    if hasattr(signal, "SIGUSR1"):  # not on Windows
        actions[signal.SIGUSR1] = drain
    for number, action in actions.items():
        try:
            loop.add_signal_handler(number, action)
            stack.callback(loop.remove_signal_handler, number)
        except NotImplementedError:  # Windows
            before = signal.signal(number, lambda *_, act=action: loop.call_soon_threadsafe(act))
            stack.callback(signal.signal, number, before)
    return stack


def _switch_user(name: str) -> None:
    """Another user and its groups, for good."""
    if os.name != "posix":
        raise ConfigurationError("-u is not possible on this system; start it as that user")
    import pwd

    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise ConfigurationError(f"-u is {name!r}; there is no such user") from None
    if entry.pw_uid == os.geteuid():
        return
    try:
        os.initgroups(entry.pw_name, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except PermissionError:
        raise ConfigurationError(f"-u is {name!r}; only root can become another user") from None
