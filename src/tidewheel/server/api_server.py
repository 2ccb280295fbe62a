"""Serving the API from a process of its own: a uvicorn that ends when it is told to."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import time
from collections.abc import Generator
from types import FrameType
from typing import Any, Final

import uvicorn

from tidewheel.core.log_throttle import ThrottledLog
from tidewheel.core.open_files import log_file_shortage
from tidewheel.errors import ConfigurationError
from tidewheel.server.api import Api
from tidewheel.server.connection_limits import ConnectionLimits, ConnectionTable
from tidewheel.server.http_connection import HttpConnection

SHUTDOWN_GRACE_SECONDS: Final = 1.5
"""How long requests may finish after a signal to stop; what waits or streams is told to end at once."""
KEEP_ALIVE_SECONDS: Final = 65
"""How long an idle connection is kept: a little longer than load balancers do, so that they close it."""
BACKLOG: Final = 2048
"""Max connections that wait to be accepted."""
MAX_ACCEPTS_PER_TURN: Final = 16
"""Connections accepted in one turn of the event loop, before the table of connections can refuse any."""
SEND_BUFFER_BYTES: Final = 256 * 1024
"""Size of the system's send buffer of a connection: a client that does not read must not cost megabytes."""

_log = ThrottledLog(logging.getLogger("tidewheel.server"))


class ApiServer(uvicorn.Server):
    """One API on one socket. The first signal ends it in order, the second at once; without
    ``handle_signals`` they are its caller's, who has more to end than a server.
    """

    def __init__(self, api: Api, listener: socket.socket, *, handle_signals: bool = True) -> None:
        self._api = api
        self._handle_signals = handle_signals
        self._listener = listener
        self._running_loop: asyncio.AbstractEventLoop | None = None
        limits = ConnectionLimits.from_settings(api.app.settings)
        connect: Any = functools.partial(HttpConnection, ConnectionTable(limits))
        super().__init__(
            uvicorn.Config(
                api,
                http=connect,
                ws="none",
                lifespan="on",
                access_log=False,  # it would write down query strings
                server_header=False,
                log_config=None,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=SHUTDOWN_GRACE_SECONDS,  # type: ignore[arg-type]  # any number of seconds
                backlog=MAX_ACCEPTS_PER_TURN,
                # Other clients are not believed: they could claim any address.
                proxy_headers=bool(limits.trusted_proxies),
                forwarded_allow_ips=list(api.app.settings.trusted_proxies),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Around serving, as uvicorn has it."""
        with super().capture_signals() if self._handle_signals else contextlib.nullcontext():
            yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by a signal. Not remembered: uvicorn would raise it again after an orderly end."""
        del sig, frame
        if self._running_loop is not None:
            self._running_loop.call_soon_threadsafe(self.stop)  # also wakes a loop that sleeps

    def stop(self) -> None:
        """End in order; asked again, at once."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._api.closing.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self._listener.listen(BACKLOG)  # asyncio has made it MAX_ACCEPTS_PER_TURN

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second. Once a second, cut the clients that are gone or too slow."""
        if counter % 10 == 0:
            now = time.monotonic()
            connections: list[Any] = list(self.server_state.connections)  # all of them ours
            for connection in connections:
                if connection.left_unseen:
                    connection.reset_connection()
                elif reason := connection.overdue_reason(now):
                    _log.write("cut", "cut a connection: %s", reason)
                    connection.reset_connection()
        return await super().on_tick(counter)

    async def run_on_current_loop(self) -> None:
        """Serve until stopped, on the running event loop."""
        self._running_loop = asyncio.get_running_loop()
        log_file_shortage(self._running_loop, _log)
        await self.serve(sockets=[self._listener])


def open_listener(host: str, port: int) -> socket.socket:
    """A socket to serve on, taken before anything else is started. Port 0 is any that is free."""
    # With its protocol named, unlike ``socket.create_server``: asyncio turns Nagle's algorithm off for such
    # sockets only, and with it enqueueing at 64 connections was three times slower.
    listener = socket.socket(_family(host), socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":  # elsewhere it would let two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)  # of its connections, too
        listener.bind((host, port))
        listener.listen(BACKLOG)
        return listener
    except OSError as error:
        listener.close()
        raise ConfigurationError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with --host and "
            "--port"
        ) from None


def listener_url(listener: socket.socket) -> str:
    """Where a socket is reached."""
    address: Any = listener.getsockname()
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    return f"http://{host}:{address[1]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
