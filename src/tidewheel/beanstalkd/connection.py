"""One client's socket: bytes in, commands answered in their order, bytes out.

There is no task for it: a command is answered where its bytes arrive, or where what it waited for is told.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tidewheel.beanstalkd.client_session import ClientSession, PendingReply
from tidewheel.beanstalkd.commands import CommandParser, NotBeanstalkd

if TYPE_CHECKING:
    from tidewheel.beanstalkd.server import Server

MAX_UNREAD_BYTES: Final = 256 * 1024
"""Bytes of commands that are kept while one is being answered; then the client is not listened to."""
MAX_UNSENT_BYTES: Final = 256 * 1024
"""Bytes of replies that are kept for a client that does not read; then its commands are not answered."""

UNREAD_SECONDS: Final = 60.0
"""Seconds in which a client with that many unread replies has to read some; then it is cut."""
MIN_READ_BYTES: Final = 64 * 1024
"""Bytes that it has to read in that time."""

_MAX_REPLY_BATCH_BYTES: Final = 64 * 1024
"""Bytes of replies to commands that came together, before they are sent."""
_MAX_COMMANDS_PER_TURN: Final = 100
"""Commands of one client that are answered before others have their turn."""
_BLOCKING: Final = frozenset({"reserve", "reserve-with-timeout"})

_log = logging.getLogger("tidewheel.beanstalkd")


class ClientConnection(asyncio.Protocol):
    """What is to be done next is always in ``_process_commands``; everything else only says that there may be
    more.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._parser = CommandParser(server.state.counters.max_job_size)
        self._transport: asyncio.Transport | None = None
        self._session: ClientSession | None = None  # None before it is welcome, and after it was closed
        self._pending_reply: PendingReply | None = None  # a command that is being answered
        self._turn_ends = False  # others have their turn, and then it goes on
        self._unread = False  # the client does not read its replies
        self._slow_reader_timer: asyncio.TimerHandle | None = None  # unless it reads
        self._replies: list[bytes] = []
        self._unsent = 0
        self._ended = False  # nothing more comes in
        self._stopped = False  # nothing more is answered
        self._listening = True

    # -- what asyncio calls -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream's
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)
        if self._server.add_connection(self):
            self._session = ClientSession(self._server.state)
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        if not self._busy:
            self._process_commands()
        elif self._listening and self._parser.buffered > MAX_UNREAD_BYTES and self._transport is not None:
            self._listening = False
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._end(gone=False)
        return True  # what is still to be answered is sent before it is closed

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._reads()
        self._end(gone=True)

    def pause_writing(self) -> None:
        self._unread = True
        if self._transport is not None:
            self._watch(self._transport)

    def resume_writing(self) -> None:
        self._reads()
        self._process_commands()

    def _reads(self) -> None:
        self._unread = False
        if self._slow_reader_timer is not None:
            self._slow_reader_timer.cancel()
            self._slow_reader_timer = None

    def _watch(self, transport: asyncio.Transport) -> None:
        """Look again after a while, and cut the client if it has not read enough by then."""
        before = transport.get_write_buffer_size()

        def look() -> None:
            if before - transport.get_write_buffer_size() >= MIN_READ_BYTES:
                self._watch(transport)
                return
            self._server.limited_log.write(
                "unread",
                "cut a client that left %s bytes of replies unread for %g s",
                f"{transport.get_write_buffer_size():,}",
                UNREAD_SECONDS,
            )
            transport.abort()

        self._slow_reader_timer = asyncio.get_running_loop().call_later(UNREAD_SECONDS, look)

    # -- serving ------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it, whatever it is doing."""
        self._stopped = True
        if self._session is not None:
            self._session.hang_up(gone=True)
        if self._pending_reply is not None:
            # Unless it is done already: then it may have got a job, which is to be given back.
            self._pending_reply.future.cancel()
        self._process_commands()

    @property
    def _busy(self) -> bool:
        """Whether what comes in has to wait."""
        return self._pending_reply is not None or self._unread or self._turn_ends

    def _end(self, *, gone: bool) -> None:
        self._ended = True
        if self._session is not None:
            self._session.hang_up(gone=gone)
        self._process_commands()

    def _process_commands(self) -> None:
        """Answer what has come in, until something has to be waited for."""
        session = self._session
        if session is None or self._pending_reply is not None:
            return
        if self._stopped:
            self._close()
        if self._stopped or self._busy:
            return
        try:
            self._answer_all(session)
        except NotBeanstalkd as error:
            self._server.state.hung_up_on_stranger(str(error))
            self._close()
        except Exception:
            _log.exception("a connection was closed because of an error")
            self._close()

    def _answer_all(self, session: ClientSession) -> None:
        parser = self._parser
        for _ in range(_MAX_COMMANDS_PER_TURN):
            command = parser.next()
            if command is None:
                self._flush()
                if self._ended:
                    self._close()
                elif not self._listening and self._transport is not None:
                    self._listening = True
                    self._transport.resume_reading()
                return
            if command.name == "quit":
                self._close()
                return
            if self._replies and command.name in _BLOCKING:
                self._flush()
            self._take(session, session.answer(command))
            if self._pending_reply is not None or self._unread:
                return
        self._turn_ends = True
        asyncio.get_running_loop().call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._turn_ends = False
        self._process_commands()

    def _take(self, session: ClientSession, answer: bytes | PendingReply) -> None:
        while isinstance(answer, PendingReply):
            if not answer.future.done():
                self._pending_reply = answer
                answer.future.add_done_callback(self._answered)
                return
            answer = session.finish(answer)
        self._replies.append(answer)
        self._unsent += len(answer)
        if self._unsent > _MAX_REPLY_BATCH_BYTES:
            self._flush()

    def _answered(self, future: asyncio.Future[object]) -> None:
        later, self._pending_reply = self._pending_reply, None
        session = self._session
        if later is not None and session is not None and not future.cancelled():
            self._take(session, session.finish(later))
        self._process_commands()

    def _flush(self) -> None:
        if self._replies:
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(b"".join(self._replies) if len(self._replies) > 1 else self._replies[0])
            self._replies.clear()
            self._unsent = 0

    def _close(self) -> None:
        session, self._session = self._session, None
        self._flush()
        if self._transport is not None:
            self._transport.close()
        if session is not None:
            self._server.remove_connection(self, session)
