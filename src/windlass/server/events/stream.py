"""One stream over HTTP: from the ring to a socket, for as long as there is somebody at its other end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Receive, Send

from windlass.server.events.broadcast import Broadcast
from windlass.server.events.listener import HEARTBEAT_SECONDS, Listener

WRITE_SECONDS: Final = 10.0
"""How long a client may take to make room for what is sent to it."""
MAX_REQUEST_BYTES: Final = 64 * 1024
"""A body means nothing here. One larger than this ends the stream."""

logger = logging.getLogger(__name__)


class Stalled(Exception):
    """The client takes nothing any more."""


class Stream:
    """Sends a listener what it is to hear. ``cut`` ends a connection that would not be drained."""

    def __init__(
        self, broadcast: Broadcast, listener: Listener, send: Send, cut: Callable[[], None] | None
    ) -> None:
        self._broadcast = broadcast
        self._listener = listener
        self._send = send
        self._cut = cut

    async def run(
        self, receive: Receive, headers: list[tuple[bytes, bytes]], last_event_id: str | None
    ) -> None:
        """Until the client goes, or everything is told, or the server ends."""
        listener = self._listener
        gone = asyncio.create_task(_wait_for_the_end(receive, listener), name="windlass-events-stream")
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._follow(last_event_id)
            if not gone.done():
                await self._write(b"", last=True)
        except Stalled:
            logger.info("an event stream was ended: its client took nothing for %g s", WRITE_SECONDS)
            if self._cut is not None:
                self._cut()
                await asyncio.wait((gone,), timeout=1.0)  # so that the server has seen it, too
        finally:
            gone.cancel()
            await self._broadcast.leave(listener)

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
            if listener.ending is not None:
                await self._write(b": %s\n\n" % listener.ending.encode())
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
