"""A claim that waits at the server: how old its answer is."""

from __future__ import annotations

import asyncio
import socket
import time

from tidewheel.core.model import Claim, ClaimRequest, Lane
from tidewheel.stores.http.claim_requests import LOOP_CHECK_SECONDS, LongPoll


class _Answering:
    """A server that answers when something comes over a socket."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line

    async def reserve(self, _request: ClaimRequest, _request_id: str, _wait: float) -> Claim:
        await asyncio.get_running_loop().sock_recv(self._line, 1)
        return Claim(())


async def test_what_came_while_the_loop_was_blocked_came_before_that() -> None:
    """The lease runs from then on. After the block the loop has time for everything else first."""
    loop, answered = asyncio.get_running_loop(), asyncio.Event()
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        request = ClaimRequest("elsewhere", (Lane("mail"),), 1, 60)
        poll = LongPoll(_Answering(here), request, lambda _: answered.set())  # type: ignore[arg-type]
        await asyncio.sleep(2 * LOOP_CHECK_SECONDS)
        blocked_at = loop.time()
        there.send(b"x")
        time.sleep(2 * LOOP_CHECK_SECONDS)  # as some handlers do
        await answered.wait()
        assert poll.answered_no_earlier_than <= blocked_at
