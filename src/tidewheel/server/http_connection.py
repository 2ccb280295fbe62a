"""One HTTP connection: uvicorn's protocol with limits on everything that a client may send or leave unread.

The parser calls back for each part of a request. Headers behind the end of the head (trailers) are dropped.
Bytes that are neither a whole head nor a part of a body are counted, so that endless headers, trailers and
chunk extensions end the connection. Requests that a client sends ahead of the answers are limited in number.

An ASGI application cannot end a connection whose client reads nothing: closing waits until everything
written before has been read. It finds this object among the extensions of its scope instead. Under another
server than ours there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tidewheel.core.log_throttle import ThrottledLog
from tidewheel.server.connection_limits import ConnectionTable
from tidewheel.server.problems import (
    HEADERS_TOO_LARGE,
    MALFORMED_REQUEST,
    MEDIA_TYPE,
    TOO_MANY_CONNECTIONS,
    Problem,
)

if sys.platform == "linux":
    import fcntl
    import termios

SCOPE_EXTENSION: Final = "tidewheel.connection"

TCP_USER_TIMEOUT_SECONDS: Final = 30
"""Seconds without a sign of life from the client's machine before the system ends a connection (on Linux)."""
MAX_HEADERS: Final = 200
"""Max headers of a request."""
MAX_DISCARDED_BYTES: Final = 64 * 1024 * 1024
"""Max bytes of a refused request that are read and discarded, so that its client can read the answer."""
READ_BYTES: Final = 32 * 1024
"""Max bytes that are read at once, and kept of a body that is not asked for: slow clients may be many."""
STREAM_BUFFER_BYTES: Final = 64 * 1024
"""Size of the system's send buffer of a stream: a client that does not read must not cost megabytes."""
_STATUS_LINE_PREFIX: Final = b"HTTP/1.1 "
_HANG_UP: Final = getattr(select, "POLLRDHUP", 0)  # of Linux: the client has closed its side
_LINGER_RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER: closing does not wait for what is unsent

_log = ThrottledLog(logging.getLogger("tidewheel.server"))


class RequestRejected(Exception):
    """Raised in a callback of the parser: the request breaks a limit. ``problem`` is the answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class TooManyRequests(Exception):
    """Raised in a callback of the parser: the client has sent too many requests ahead of the answers."""


class HeadCoalescingTransport:
    """The transport that an answer is written to: its head is sent with its first bytes, in one system call.

    An answer without a body is sent in the same turn of the event loop. ``written`` counts bytes.
    """

    __slots__ = ("_close", "_held", "_transport", "written")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None] | None = None) -> None:
        self._transport = transport
        self._close = close or transport.close
        self._held = b""
        self.written = 0

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(_STATUS_LINE_PREFIX):
            self._held = data
            asyncio.get_running_loop().call_soon(self.flush)
            return
        self.written += len(data)
        self._transport.write(data)

    def flush(self) -> None:
        """Send what is held back."""
        if self._held:
            data, self._held = self._held, b""
            self.written += len(data)
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class HttpConnection(HttpToolsProtocol):
    """One connection. ``table`` holds the limits and counts the connections."""

    def __init__(self, table: ConnectionTable, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._table = table
        self._limits = table.limits
        self._current_cycle: Any = None  # the cycle of the request that is being answered
        self._head_complete = False
        self._trailer_bytes = 0
        self._progress = False  # whether the bytes at hand began a request or belonged to a body
        self._framing_bytes = 0  # received since the last progress
        self._complete = True  # whether the end of the last request that began has arrived
        self._head_bytes = 0  # held of the head of a request whose end has not arrived
        self._rejected = False  # nothing more is read from the client
        self._discarding_until = 0.0  # 0: not discarding
        self._discarded_bytes = 0
        self._waiting_since = 0.0
        self._waiting_after_cycle: Any = None
        self._sending_since = 0.0
        self._bytes_taken_before = 0

    # -- what the transport calls -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._coalescing_transport: Any = HeadCoalescingTransport(transport, self._close_after_drain)
        transport.set_write_buffer_limits(high=0)  # an answer goes on when the system has taken its last part
        reads: Any = transport
        if hasattr(reads, "max_size"):  # asyncio's own, which is 256 kB
            reads.max_size = READ_BYTES
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            self._set_socket_option(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, TCP_USER_TIMEOUT_SECONDS * 1000
            )
        reason = self._table.admit(self, self.client[0] if self.client else None)
        if reason:
            _log.write("refused", "refused a connection: %s", reason)
            self._rejected = True
            transport.write(_answer(Problem(TOO_MANY_CONNECTIONS, f"{reason}; try again later")))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.remove(self)
        self._end_requests()
        super().connection_lost(exc)
        # This object is part of reference cycles. Free what it received now, not when they are collected.
        nothing: Any = None
        self.url, self.headers = b"", []
        self.scope = self.cycle = self._current_cycle = nothing

    def data_received(self, data: bytes) -> None:
        if self._rejected:
            self._discarded_bytes += len(data)
            if self._discarded_bytes > MAX_DISCARDED_BYTES:
                self.reset_connection()
            return
        self._unset_keepalive_if_required()
        self._progress = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # There is nothing to upgrade to. The request is answered, and what follows it is not HTTP.
            self._end_after_answers()
        except httptools.HttpParserError as error:
            self._handle_parser_error(error)
        else:
            if self._head_bytes or not self._complete:
                self._count_head(len(data))
            if self._progress:
                self._framing_bytes = 0
                return
            self._framing_bytes += len(data)
            if self._framing_bytes > 2 * self._limits.header_bytes:
                self._reject(self._too_much_framing())

    def _count_head(self, received: int) -> None:
        """Keep the table informed of what an unfinished request holds in memory."""
        if self._complete:
            self._head_bytes = 0
        elif not self._head_complete:
            self._head_bytes += received
        else:
            self._head_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        self._table.holds(self, self._head_bytes)

    # -- what the parser calls ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= self._limits.pipelined_requests:
            raise TooManyRequests
        super().on_message_begin()
        self._progress = True
        self._complete = False
        self._head_complete = False
        self._trailer_bytes = 0
        scope: Any = self.scope
        scope["extensions"] = {SCOPE_EXTENSION: self}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head_complete:  # a trailer: dropped, because the request was decided on by its head
            self._trailer_bytes += len(name) + len(value)
            if self._trailer_bytes > self._limits.trailer_bytes:
                raise RequestRejected(self._too_many_trailers())
            return
        if len(self.headers) >= MAX_HEADERS:
            raise RequestRejected(Problem(HEADERS_TOO_LARGE, f"there are more than {MAX_HEADERS} headers"))
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._head_complete = True
        self._progress = True
        super().on_headers_complete()
        if self.cycle is not None:  # it answers in a task that has not begun yet
            self.cycle.transport = self._coalescing_transport
            if not self.pipeline:
                self._current_cycle = self.cycle

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)
        if len(self.cycle.body) >= READ_BYTES:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        self._complete = True
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()
            self._table.mark_working(self)

    # -- what the application calls -----------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self._coalescing_transport.flush()  # before anything else can close the connection
        if self._current_cycle.body:  # it was not read, and would stay until the next request
            self._current_cycle.body = bytearray()
        self._current_cycle = self.pipeline[-1][0] if self.pipeline else None
        if self._discarding_until:
            self.server_state.total_requests += 1
            return
        if self._current_cycle is None:
            self._table.mark_waiting(self)
        super().on_response_complete()

    @property
    def is_client_gone(self) -> bool:
        """Whether the client is gone, or is not listened to any more."""
        return self._discarding_until > 0 or self.transport.is_closing()

    def shrink_send_buffer(self) -> None:
        """Let the system hold back less than it would."""
        self._set_socket_option(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER_BYTES)

    def reset_connection(self) -> None:
        """End it now, and drop what the client has not read yet, also what the system holds of it."""
        self._set_socket_option(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self.abort_connection()

    def abort_connection(self) -> None:
        """End it now."""
        self._end_requests()
        self.transport.abort()

    # -- what the server calls, once a second -------------------------------------------------------------

    def overdue_reason(self, now: float) -> str:
        """Return why the connection must be cut; an empty text means that it must not.

        Found by looking now and then, so that requests that come as they should cost nothing.
        """
        seconds = self._limits.seconds
        if self._discarding_until and now > self._discarding_until:
            return f"the client of a refused request did not hang up within {seconds:g} s (request_seconds)"
        if self.waiting_seconds(now) > seconds:
            return f"no whole request head arrived within {seconds:g} s (request_seconds)"
        return self._slow_reader_reason(now)

    @property
    def left_unseen(self) -> bool:
        """Whether the client hung up while nothing is read from it, so that asyncio does not notice.

        Nothing is read behind a request that waits for its answer, such as a long poll for a job.
        """
        if not _HANG_UP or not self.flow.read_paused or self.transport.is_closing():
            return False
        line = self.transport.get_extra_info("socket")
        poll = select.poll()
        poll.register(line.fileno(), _HANG_UP)
        return bool(poll.poll(0))

    def waiting_seconds(self, now: float) -> float:
        """For how many seconds it has been waiting for the rest of a head, or for the first byte.

        Between requests uvicorn's own timer runs.
        """
        if self.timeout_keep_alive_task is not None or self._current_cycle is not None:
            self._waiting_since = 0.0
        elif not self._waiting_since or self._waiting_after_cycle is not self.cycle:
            self._waiting_since, self._waiting_after_cycle = now, self.cycle
        return now - self._waiting_since if self._waiting_since else 0.0

    def _slow_reader_reason(self, now: float) -> str:
        unsent = self.transport.get_write_buffer_size()
        if not unsent:
            self._sending_since = 0.0
            return ""
        taken = self._coalescing_transport.written - unsent - self._unread()
        seconds = now - self._sending_since
        if self._sending_since and seconds < self._limits.seconds:
            return ""
        slow = self._sending_since and taken - self._bytes_taken_before < self._limits.send_rate * seconds
        before, self._bytes_taken_before, self._sending_since = self._bytes_taken_before, taken, now
        if not slow:
            return ""
        return (
            f"the client read {max(0, taken - before):,} bytes of an answer in {seconds:.0f} s; the limit is "
            f"{self._limits.send_rate:,} a second (min_send_rate)"
        )

    def _unread(self) -> int:
        """How many bytes the system holds that the client's system has not received, where it says so."""
        line = self.transport.get_extra_info("socket")
        if sys.platform != "linux" or line is None:
            return 0
        try:
            return int.from_bytes(fcntl.ioctl(line.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        except OSError:  # the connection is over
            return 0

    # -- refusals -----------------------------------------------------------------------------------------

    def _handle_parser_error(self, error: httptools.HttpParserError) -> None:
        match error.__context__:
            case TooManyRequests():
                _log.write(
                    "pipelined",
                    "a client sent more than %s requests ahead of the answers (max_pipelined_requests); the "
                    "connection is closed after them",
                    self._limits.pipelined_requests,
                )
                self._end_after_answers()
            case RequestRejected(problem=problem):
                self._reject(problem)
            case _:
                self._reject(Problem(MALFORMED_REQUEST, f"the request is not HTTP/1.1: {error}"[:200]))

    def _reject(self, problem: Problem) -> None:
        """End the connection because of the bytes at hand, with an answer where one is still possible."""
        _log.write(problem.kind.code, "refused a request: %s", problem.detail)
        self._rejected = True
        running = self._current_cycle
        if running is not None and (self.pipeline or not running.more_body):
            # The wrong bytes belong to a later request. The earlier ones are answered first.
            if self.pipeline and self.pipeline[0][0].more_body:
                self.pipeline.popleft()
            self._end_after_answers()
            return
        if running is None or not running.response_started:
            self._coalescing_transport.write(_answer(problem))
        if running is not None:
            running.disconnected = True
            running.message_event.set()
        self._coalescing_transport.close()

    def _end_after_answers(self) -> None:
        """Read no more requests, and close after the last answer."""
        self._rejected = True
        last = self.pipeline[0][0] if self.pipeline else self._current_cycle
        if last is not None:
            last.keep_alive = False
            if not last.response_started:  # only newer versions of uvicorn add this header themselves
                last.default_headers = [*last.default_headers, (b"connection", b"close")]
        else:
            self._coalescing_transport.close()

    def _close_after_drain(self) -> None:
        """Close after the last answer, so that it arrives even if the client is still sending its request.

        Closing a socket with unread bytes resets the connection, and the client loses the answer. So only the
        sending side is closed. What still comes is discarded until the client hangs up or its time is over.
        """
        transport = self.transport
        running = self._current_cycle or self.cycle
        if transport.is_closing() or self._discarding_until:
            return
        if not self._rejected and (running is None or not running.more_body):
            transport.close()
            return
        self._rejected = True
        self._discarding_until = time.monotonic() + self._limits.seconds
        self._table.mark_waiting(self)
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()

    def _end_requests(self) -> None:
        """Tell the requests of this connection that their client is gone."""
        for cycle in (self._current_cycle, *(cycle for cycle, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()

    def _too_much_framing(self) -> Problem:
        if self._head_complete:
            return self._too_many_trailers()
        return Problem(
            HEADERS_TOO_LARGE,
            f"the head of the request is larger than {2 * self._limits.header_bytes:,} bytes; the limit for "
            f"its headers is {self._limits.header_bytes:,} (max_header_bytes)",
        )

    def _too_many_trailers(self) -> Problem:
        return Problem(
            HEADERS_TOO_LARGE,
            "the trailers behind the body, or the extensions of its chunks, are too large; the limit is "
            f"{self._limits.trailer_bytes:,} bytes (max_trailer_bytes)",
        )

    def _set_socket_option(self, level: int, option: int, value: int | bytes) -> None:
        line = self.transport.get_extra_info("socket")
        if line is not None and line.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):  # it may be over already; then there is nothing to set
                line.setsockopt(level, option, value)


def _answer(problem: Problem) -> bytes:
    """A whole answer that ends the connection, for when there is no application to give one."""
    body = problem.document("")
    headers = (
        *problem.headers,
        (b"content-type", MEDIA_TYPE),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    )
    lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return STATUS_LINE[problem.kind.status] + lines + b"\r\n" + body
