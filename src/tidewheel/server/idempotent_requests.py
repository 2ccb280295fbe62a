"""Requests that are done once, however often they come.

A client that got no answer cannot know whether its request was done. It repeats it under the same
``Tidewheel-Request-Id``: while the first is at work the repeat waits for it, and then gets the same answer.
Kept in memory, for a while: what has to hold beyond the life of a server is what a job's key is for.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidewheel.server.problems import invalid_input_problem
from tidewheel.server.route import Response

REQUEST_ID_HEADER: Final = b"tidewheel-request-id"
REQUEST_ID_PARAMETER: Final = {
    "Tidewheel-Request-Id": "An id of the client's own: a repeat is not done again, and gets the same answer."
}
"""The header, as a route's parameter."""
KEEP_RESPONSES_SECONDS: Final = 60.0
MAX_RESPONSES: Final = 10_000
MAX_RESPONSE_BYTES: Final = 16 * 1024 * 1024
"""Most answers that are kept, and most bytes of them together; the oldest of whoever has most give way: one
who sends a lot must not make the server forget what others have sent.
"""

_id = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def read_request_id(headers: Mapping[bytes, bytes]) -> str | None:
    """The id of a request, where it has one."""
    given = headers.get(REQUEST_ID_HEADER)
    if given is None:
        return None
    text = given.decode("latin-1")
    if not _id.fullmatch(text):
        raise invalid_input_problem(
            "Tidewheel-Request-Id has to be 1 to 100 characters of A-Z a-z 0-9 _ . : -; a UUID, say"
        )
    return text


@dataclass(slots=True, eq=False)
class _RequestRecord:
    """A request under its id, at work or done."""

    sender: Hashable
    digest: bytes
    work: asyncio.Task[Response]
    until: float = math.inf  # by the loop's clock: how long it is kept, once it is done
    size: int = 0


@dataclass(slots=True, eq=False)
class _SenderUsage:
    """What is kept for one sender, oldest first."""

    names: dict[Hashable, None] = field(default_factory=dict)
    bytes: int = 0


class IdempotentRequests:
    """What was answered lately on one event loop, by caller, path and id."""

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode
        self._records: dict[Hashable, _RequestRecord] = {}  # at work, which is never forgotten, or done
        self._completed: dict[Hashable, _RequestRecord] = {}  # of these, oldest first
        self._usage_by_sender: dict[Hashable, _SenderUsage] = {}  # by sender
        self._bytes = 0

    async def run_once(
        self, sender: Hashable, name: Hashable, body: bytes, work: Callable[[], Awaitable[Response]]
    ) -> Response:
        """What ``work`` answers, or has answered to the same request of this sender before.

        It goes on when its client does not wait any longer; the repeat is told what came of it.
        """
        self._forget_old()
        digest = hashlib.sha256(body).digest()
        done = self._records.get(name)
        if done is None:
            task = asyncio.create_task(self._work(work))
            done = self._records[name] = _RequestRecord(sender, digest, task)
            task.add_done_callback(lambda _: self._ended(name, done))
        elif done.digest != digest:
            raise invalid_input_problem(
                "Tidewheel-Request-Id came with another body before; make a new id for each request"
            )
        return await asyncio.shield(done.work)

    async def _work(self, work: Callable[[], Awaitable[Response]]) -> Response:
        answer = await work()
        body = answer.body
        content = body if type(body) is bytes else b"" if body is None else self._encode(body)
        return Response(content, answer.status, answer.headers, answer.media_type)

    def _ended(self, name: Hashable, done: _RequestRecord) -> None:
        if done.work.cancelled() or done.work.exception() is not None:
            del self._records[name]  # nothing was done: a repeat may have more luck
            return
        done.until = asyncio.get_running_loop().time() + KEEP_RESPONSES_SECONDS
        done.size = len(done.work.result().body)
        self._completed[name] = done
        self._bytes += done.size
        share = self._usage_by_sender.setdefault(done.sender, _SenderUsage())
        share.names[name] = None
        share.bytes += done.size

    def _forget_old(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._completed:
            name, oldest = next(iter(self._completed.items()))
            if oldest.until <= now:
                self._forget(name)
            elif len(self._completed) >= MAX_RESPONSES:
                self._forget_one_of(max(self._usage_by_sender.values(), key=lambda share: len(share.names)))
            elif self._bytes > MAX_RESPONSE_BYTES:
                self._forget_one_of(max(self._usage_by_sender.values(), key=lambda share: share.bytes))
            else:
                break

    def _forget_one_of(self, share: _SenderUsage) -> None:
        self._forget(next(iter(share.names)))

    def _forget(self, name: Hashable) -> None:
        done = self._completed.pop(name)
        del self._records[name]
        self._bytes -= done.size
        share = self._usage_by_sender[done.sender]
        share.bytes -= done.size
        del share.names[name]
        if not share.names:
            del self._usage_by_sender[done.sender]
