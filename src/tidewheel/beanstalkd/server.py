"""A server on one socket, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from tidewheel.beanstalkd.connection import ClientConnection
from tidewheel.beanstalkd.listener import BACKLOG
from tidewheel.beanstalkd.server_state import BINLOG_FILE_BYTES, DEFAULT_MAX_JOB_SIZE, ServerState
from tidewheel.core.log_throttle import ThrottledLog
from tidewheel.core.open_files import log_file_shortage

if TYPE_CHECKING:
    import socket

    from tidewheel.app import Tidewheel
    from tidewheel.beanstalkd.client_session import ClientSession

DEFAULT_MAX_CONNECTIONS: Final = 10_000
MAX_ACCEPTS_PER_TURN: Final = 16
"""Connections accepted in one turn of the event loop, before any of them can be refused."""
_FULL_LOG_RESET_SHARE: Final = 0.9
"""Share of the connections below which it is worth saying again that there is no room: clients that were hung
up on come back at once, and one of many leaves every moment."""

_log = logging.getLogger("tidewheel.beanstalkd")


class Server:
    """The connections of one app's queue. The app is open while it runs."""

    def __init__(
        self,
        app: Tidewheel,
        *,
        max_job_size: int = DEFAULT_MAX_JOB_SIZE,
        max_connections: int = DEFAULT_MAX_CONNECTIONS,
        binlog_max_size: int = BINLOG_FILE_BYTES,
    ) -> None:
        self.state = ServerState(app, max_job_size=max_job_size, binlog_max_size=binlog_max_size)
        self._max_connections = max_connections
        self._connections: set[ClientConnection] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._connection_closed = asyncio.Event()
        self._full = False
        self.limited_log = ThrottledLog(_log)

    async def run(self, listener: socket.socket) -> None:
        """Serve until stopped; then hang up on everybody and give all reserved jobs back."""
        loop = asyncio.get_running_loop()
        rescuing = loop.create_task(self.state.queue.run_rescuer(), name="tidewheel-rescuing")
        rescuing.add_done_callback(_log_end)
        log_file_shortage(loop, self.limited_log)
        listening = await loop.create_server(
            lambda: ClientConnection(self), sock=listener, backlog=MAX_ACCEPTS_PER_TURN
        )
        listener.listen(BACKLOG)  # asyncio has made it MAX_ACCEPTS_PER_TURN
        try:
            await self.state.stopping.wait()
        finally:
            listening.close()
            rescuing.cancel()
            await self._close_connections()
            await self.state.close()
            with contextlib.suppress(asyncio.CancelledError):
                await rescuing

    def stop(self) -> None:
        """End ``run`` in order."""
        self.state.stopping.set()

    def drain(self) -> None:
        """Take no new jobs from now on."""
        if not self.state.counters.draining:
            self.state.counters.draining = True
            _log.info("draining: new jobs are refused, all else goes on")

    def add_connection(self, connection: ClientConnection) -> bool:
        """Whether there is room for one more."""
        if self.state.stopping.is_set():
            return False
        if len(self._connections) >= self._max_connections:
            if not self._full:
                self._full = True
                _log.warning(
                    "hung up on a client: there are %s connections, the limit is %s (--max-connections)",
                    f"{len(self._connections):,}",
                    f"{self._max_connections:,}",
                )
            return False
        self._connections.add(connection)
        return True

    def remove_connection(self, connection: ClientConnection, session: ClientSession) -> None:
        """A connection has ended: its jobs are anybody's."""
        self._connections.discard(connection)
        if len(self._connections) < self._max_connections * _FULL_LOG_RESET_SHARE:
            self._full = False
        leaving = asyncio.get_running_loop().create_task(session.close())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._left)

    def _left(self, leaving: asyncio.Task[None]) -> None:
        self._leaving.discard(leaving)
        self._connection_closed.set()
        if not leaving.cancelled() and (error := leaving.exception()) is not None:
            _log.error("a connection's jobs stay reserved until their time is over", exc_info=error)

    async def _close_connections(self) -> None:
        for connection in list(self._connections):
            connection.stop()
        while self._connections or self._leaving:
            self._connection_closed.clear()
            await self._connection_closed.wait()


def _log_end(rescuing: asyncio.Task[None]) -> None:
    if not rescuing.cancelled() and (error := rescuing.exception()) is not None:
        _log.error("jobs whose time to run is over are not brought back any more", exc_info=error)
