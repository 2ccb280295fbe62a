"""One stream over HTTP: from the ring to a socket, for as long as there is somebody at its other end."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from starlette.types import Receive, Send

from tidewheel.server.connection import Connection
from tidewheel.server.events.broadcast import Broadcast
from tidewheel.server.events.listener import HEARTBEAT_SECONDS, Listener
from tidewheel.server.transport import SECURITY_HEADERS

WRITE_SECONDS: Final = 10.0
"""How long a client may take to make room for what is sent to it."""
MAX_REQUEST_BYTES: Final = 64 * 1024
"""A body means nothing here. One larger than this ends the stream."""

HEADERS: Final = (
    *SECURITY_HEADERS,
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # proxies that collect answers before they pass them on
)

logger = logging.getLogger(__name__)


class Stalled(Exception):
    """The client takes nothing any more."""


class Stream:
    """Sends a listener what it is to hear."""

    def __init__(self, listener: Listener, send: Send, connection: Connection | None) -> None:
        self._listener = listener
        self._send = send
        self._connection = connection
        if connection is not None:
            connection.carry_a_stream()
            listener.cut = connection.cut

    async def run(self, broadcast: Broadcast, receive: Receive, last_event_id: str | None) -> None:
        """Until the client goes, everything is told, or the server ends."""
        gone = asyncio.create_task(_wait_for_the_end(receive, self._listener), name="tidewheel-events-stream")
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": [*HEADERS]})
            await self._follow(last_event_id)
            if not gone.done():
                await self._write(b"", last=True)
            elif self._connection is not None:
                self._connection.cut()
        except Stalled:
            logger.info("an event stream was ended: its client took nothing for %g s", WRITE_SECONDS)
            if self._connection is not None:
                self._connection.cut()
                await asyncio.wait((gone,), timeout=1.0)  # so that the server has seen it, too
        finally:
            gone.cancel()
            await broadcast.leave(self._listener)

    async def _follow(self, last_event_id: str | None) -> None:
        listener = self._listener
        now = asyncio.get_running_loop().time
        text = listener.begin(last_event_id)
        while True:
            if text:
                await self._write(text)
                listener.heard_at = now()
            text = listener.read()
            if text:
                continue
            if listener.over:
                await self._write(listener.farewell())
                return
            if listener.ending is not None or (self._connection is not None and self._connection.lost):
                await self._write(b": %s\n\n" % (listener.ending or "").encode())
                return
            if now() - listener.heard_at >= HEARTBEAT_SECONDS:
                text = listener.heartbeat()
                continue
            await listener.wait()

    async def _write(self, body: bytes, *, last: bool = False) -> None:
        message: dict[str, Any] = {"type": "http.response.body", "body": body, "more_body": not last}
        try:
            async with asyncio.timeout(WRITE_SECONDS) as limit:
                await self._send(message)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Stalled from None


async def _wait_for_the_end(receive: Receive, listener: Listener) -> None:
    """A server tells that the client has gone as the next message: without this it would go unnoticed."""
    size = 0
    while size <= MAX_REQUEST_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            break
        size += len(message.get("body", b""))
    listener.end("the client has gone")
