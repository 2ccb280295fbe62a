"""A server on one socket, until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

from tidewheel.beanstalkd.connection import Connection
from tidewheel.beanstalkd.listener import BACKLOG
from tidewheel.beanstalkd.server_state import BINLOG_FILE_BYTES, DEFAULT_MAX_JOB_SIZE, Shared
from tidewheel.core.log_throttle import LimitedLog
from tidewheel.core.open_files import report_lack_of_files

if TYPE_CHECKING:
    import socket

    from tidewheel.app import Tidewheel
    from tidewheel.beanstalkd.client_session import Session

DEFAULT_MAX_CONNECTIONS: Final = 10_000
ACCEPTED_TOGETHER: Final = 16
"""Connections accepted in one turn of the event loop, before any of them can be refused."""
_ROOM_AGAIN: Final = 0.9
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
        self.shared = Shared(app, max_job_size=max_job_size, binlog_max_size=binlog_max_size)
        self._max_connections = max_connections
        self._connections: set[Connection] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._somebody_left = asyncio.Event()
        self._full = False
        self.limited_log = LimitedLog(_log)

    async def run(self, listener: socket.socket) -> None:
        """Serve until stopped; then hang up on everybody and give all reserved jobs back."""
        loop = asyncio.get_running_loop()
        rescuing = loop.create_task(self.shared.queue.rescue_forever(), name="tidewheel-rescuing")
        rescuing.add_done_callback(_log_end)
        report_lack_of_files(loop, self.limited_log)
        listening = await loop.create_server(
            lambda: Connection(self), sock=listener, backlog=ACCEPTED_TOGETHER
        )
        listener.listen(BACKLOG)  # asyncio has made it ACCEPTED_TOGETHER
        try:
            await self.shared.stopping.wait()
        finally:
            listening.close()
            rescuing.cancel()
            await self._hang_up()
            await self.shared.close()
            with contextlib.suppress(asyncio.CancelledError):
                await rescuing

    def stop(self) -> None:
        """End ``run`` in order."""
        self.shared.stopping.set()

    def drain(self) -> None:
        """Take no new jobs from now on."""
        if not self.shared.counters.draining:
            self.shared.counters.draining = True
            _log.info("draining: new jobs are refused, all else goes on")

    def welcome(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        if self.shared.stopping.is_set():
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

    def farewell(self, connection: Connection, session: Session) -> None:
        """A connection has ended: its jobs are anybody's."""
        self._connections.discard(connection)
        if len(self._connections) < self._max_connections * _ROOM_AGAIN:
            self._full = False
        leaving = asyncio.get_running_loop().create_task(session.close())
        self._leaving.add(leaving)
        leaving.add_done_callback(self._left)

    def _left(self, leaving: asyncio.Task[None]) -> None:
        self._leaving.discard(leaving)
        self._somebody_left.set()
        if not leaving.cancelled() and (error := leaving.exception()) is not None:
            _log.error("a connection's jobs stay reserved until their time is over", exc_info=error)

    async def _hang_up(self) -> None:
        for connection in list(self._connections):
            connection.stop()
        while self._connections or self._leaving:
            self._somebody_left.clear()
            await self._somebody_left.wait()


def _log_end(rescuing: asyncio.Task[None]) -> None:
    if not rescuing.cancelled() and (error := rescuing.exception()) is not None:
        _log.error("jobs whose time to run is over are not brought back any more", exc_info=error)
