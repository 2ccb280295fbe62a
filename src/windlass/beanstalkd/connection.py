"""One client's socket: bytes in, commands answered in their order, bytes out."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from windlass.beanstalkd.parser import NotBeanstalkd, Parser
from windlass.beanstalkd.session import Session

if TYPE_CHECKING:
    from windlass.beanstalkd.server import Server

MAX_UNREAD: Final = 256 * 1024
"""Bytes of commands that are kept while one is being answered; then the client is not listened to."""
MAX_UNSENT: Final = 256 * 1024
"""Bytes of replies that are kept for a client that does not read; then its commands are not answered."""

_WRITTEN_TOGETHER: Final = 64 * 1024
"""Bytes of replies to commands that came together, before they are sent."""
_BLOCKING: Final = frozenset({"reserve", "reserve-with-timeout"})

_log = logging.getLogger("windlass.beanstalkd")


class Connection(asyncio.Protocol):
    """A task of its own reads what the parser has, command by command."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = Parser(server.shared.counters.max_job_size)
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._task: asyncio.Task[None] | None = None
        self._more: asyncio.Future[None] | None = None  # while the task waits to be fed
        self._room: asyncio.Future[None] | None = None  # while the client does not read
        self._replies: list[bytes] = []
        self._ended = False  # nothing more comes in
        self._reading = True

    # -- what asyncio calls -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream's
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNSENT)
        if not self._server.welcome(self):
            transport.abort()
            return
        self._session = Session(self._server.shared)
        self._task = asyncio.get_running_loop().create_task(self._serve(self._session, transport))

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if self._more is not None:
            self._feed()
        elif self._reading and self._parser.buffered > MAX_UNREAD and self._transport is not None:
            self._reading = False
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._end(gone=False)
        return True  # what is still to be answered is sent; then the task closes

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._end(gone=True)
        self.resume_writing()

    def pause_writing(self) -> None:
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    # -- serving ------------------------------------------------------------------------------------------

    def stop(self) -> asyncio.Task[None] | None:
        """End it; what to wait for."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    def _feed(self) -> None:
        more, self._more = self._more, None
        if more is not None and not more.done():
            more.set_result(None)

    def _end(self, *, gone: bool) -> None:
        self._ended = True
        if self._session is not None:
            self._session.hang_up(gone=gone)
        self._feed()

    async def _serve(self, session: Session, transport: asyncio.Transport) -> None:
        try:
            await self._answer_all(session, transport)
            self._flush(transport)
        except NotBeanstalkd as error:
            _log.warning("hung up on a client that speaks HTTP: %s", error)
        except Exception:
            _log.exception("a connection was closed because of an error")
        finally:
            transport.close()
            self._server.farewell(self, session)

    async def _answer_all(self, session: Session, transport: asyncio.Transport) -> None:
        parser, out, unsent = self._parser, self._replies, 0
        while True:
            command = parser.next()
            if command is None:
                self._flush(transport)
                if self._ended:
                    return
                await self._wait_for_more(transport)
            elif command.name == "quit":
                return
            else:
                if out and command.name in _BLOCKING:
                    self._flush(transport)
                reply = await session.answer(command)
                out.append(reply)
                unsent += len(reply)
                if unsent > _WRITTEN_TOGETHER:
                    self._flush(transport)
                    unsent = 0
                if self._room is not None:
                    await self._room

    async def _wait_for_more(self, transport: asyncio.Transport) -> None:
        if not self._reading:
            self._reading = True
            transport.resume_reading()
        self._more = asyncio.get_running_loop().create_future()
        await self._more

    def _flush(self, transport: asyncio.Transport) -> None:
        if self._replies:
            if not transport.is_closing():
                transport.write(b"".join(self._replies))
            self._replies.clear()
