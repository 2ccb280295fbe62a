"""One connection of the server, with what event streams need: it can be cut, and notices a silent end.

An ASGI application cannot end a connection whose client takes nothing: closing waits until everything
written before has been taken. It finds this object among the extensions of its scope instead; under another
server than ours there is none, and such a connection is as that server treats it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION: Final = "windlass.connection"

UNANSWERED_SECONDS: Final = 30
"""After so long without a sign of life from the client's machine the system ends a connection (on Linux)."""
_HEAD: Final = b"HTTP/1.1 "
_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)
LARGEST_HEAD_BYTES: Final = 64 * 1024
"""What may come of a request before its body, in reads after the first. The parser alone would keep any
number of bytes, for whoever sends them.
"""
STREAM_BUFFER_BYTES: Final = 64 * 1024
"""What the system may hold back of a stream: a client that does not read must not cost megabytes."""


class Together:
    """A transport as one answer sees it: its head goes out with its first bytes, not in a packet of its own.

    uvicorn makes a call of the system for each of the two; this makes one. What is held leaves in the same
    turn of the event loop, also when no body follows.
    """

    __slots__ = ("_held", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held = b""

    def write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        elif data.startswith(_HEAD):
            self._held = data
            asyncio.get_running_loop().call_soon(self.flush)
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Let go of what is held."""
        if self._held:
            data, self._held = self._held, b""
            self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class Connection(HttpToolsProtocol):
    """A connection as uvicorn makes it, with a limit on what it reads and two handles on it."""

    _head_bytes = 0  # of a head that did not come whole
    _begun = False  # whether a head began in the read at hand
    _waits_since = 0.0
    _waited_after: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._together: Any = Together(transport)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            self._set(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNANSWERED_SECONDS * 1000)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        scope: Any = self.scope
        if scope is None or "method" in scope:
            return  # as nearly always: the head is whole
        if self._begun:
            self._begun, self._head_bytes = False, 0  # what came before it in this read was something else
            return
        self._head_bytes += len(data)
        if self._head_bytes > LARGEST_HEAD_BYTES and not self.transport.is_closing():
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun = True
        scope: Any = self.scope
        scope["extensions"] = {EXTENSION: self}

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        if self.cycle is not None:  # it answers in a task that has not begun yet
            self.cycle.transport = self._together

    def on_response_complete(self) -> None:
        self._together.flush()  # before anything else can close the connection
        super().on_response_complete()

    def waits(self, now: float) -> float:
        """For how many seconds it has been waiting for the rest of a head, or for the first word.

        Found out by looking now and then, so that requests that come as they should cost nothing. Between
        requests uvicorn's own timer runs.
        """
        cycle = self.cycle
        if self.timeout_keep_alive_task is not None or (cycle is not None and not cycle.response_complete):
            self._waits_since = 0.0
        elif not self._waits_since or self._waited_after is not cycle:
            self._waits_since, self._waited_after = now, cycle
        return now - self._waits_since if self._waits_since else 0.0

    @property
    def lost(self) -> bool:
        """Whether it is over. A request that another one followed too early is not told so."""
        return self.transport.is_closing()

    def carry_a_stream(self) -> None:
        """Let the system hold back less than it would."""
        self._set(socket.SOL_SOCKET, socket.SO_SNDBUF, STREAM_BUFFER_BYTES)

    def cut(self) -> None:
        """End it now, whatever the client has not taken yet."""
        self.transport.abort()

    def _set(self, level: int, option: int, value: int) -> None:
        line = self.transport.get_extra_info("socket")
        if line is not None and line.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):  # it may be over already; then there is nothing to set
                line.setsockopt(level, option, value)
