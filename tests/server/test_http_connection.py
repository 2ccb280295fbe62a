"""One connection of the server: what goes out together, and that nothing is kept back."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn

from tests.patience import PATIENCE
from tests.server.events.event_server import served
from tidewheel import Tidewheel
from tidewheel.server import create_api
from tidewheel.server.api_server import open_listener
from tidewheel.server.http_connection import HeadCoalescingTransport

LARGEST_HEAD_BYTES = 64 * 1024


class Line:
    """A transport that remembers what became of it."""

    def __init__(self) -> None:
        self.told: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.told


async def test_head_and_body_leave_together_and_nothing_is_kept() -> None:
    """An answer is one write; one without a body leaves in the same turn, or with the end of the line."""
    line: Any = Line()
    together = HeadCoalescingTransport(line)
    together.write(b"HTTP/1.1 200 OK\r\n\r\n")
    together.write(b"body")
    together.write(b"more")
    assert line.told == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more"]
    together.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    await asyncio.sleep(0)
    assert line.told[2:] == [b"HTTP/1.1 204 No Content\r\n\r\n"]
    together.write(b"HTTP/1.1 500 Oh\r\n\r\n")
    together.close()
    await asyncio.sleep(0)
    assert line.told[3:] == [b"HTTP/1.1 500 Oh\r\n\r\n", "closed"]
    assert together.is_closing()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server that waits for a second, not for thirty."""
    async with Tidewheel("memory://", request_seconds=1) as app, served(app) as server:
        yield server.port


async def test_a_head_without_an_end_is_not_kept(port: int) -> None:
    """A header of any number of megabytes costs the server none: it is cut off, with a 431 where that still
    arrives.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ")
    told = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(PATIENCE):
            for _ in range(100):
                writer.write(b"a" * LARGEST_HEAD_BYTES)
                await writer.drain()
                await asyncio.sleep(0)
            told = await reader.read()
    assert told == b"" or told.startswith(b"HTTP/1.1 431 ")
    writer.close()
    assert (await _asked(port, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_large_bodies_and_heads_in_pieces_are_no_heads_without_an_end(port: int) -> None:
    """What is counted is one head: not the bodies before it, nor a slow but honest client's few bytes."""
    body = b" " * (4 * LARGEST_HEAD_BYTES)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in range(3):
        writer.write(b"POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        head = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 10_000 * number
        for place in range(0, len(head), 4000):
            writer.write(head[place : place + 4000])
            await writer.drain()
        writer.write(b"\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        told = b""
        while told.count(b"HTTP/1.1 200 ") < 3:
            told += await reader.read(65536) or pytest.fail(f"hung up: {told!r}")
    writer.close()


async def test_who_does_not_say_what_it_wants_is_hung_up_on(port: int) -> None:
    """Connections of nothing, or of half a request, end after ``request_seconds``, also when a good request
    came before. One whose request is being answered goes on.
    """
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
    (_, nothing), (_, half), (reader, once) = lines
    half.write(b"GET")
    once.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(PATIENCE):
        assert (await reader.read(1000)).startswith(b"HTTP/1.1 200 ")
        once.write(b"GET /he")
        for line, writer in lines:
            with suppress(ConnectionError):
                assert await line.read() == b""
            writer.close()
    assert nothing.is_closing()


async def _asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    async with asyncio.timeout(PATIENCE):
        answer = await reader.read(1000)
    writer.close()
    return answer


async def test_under_uvicorn_with_h11_trailers_are_dropped_too() -> None:
    """Where the API is mounted, the documents ask for h11: a trailer does not authenticate there."""
    content = b'{"action": "delete", "filter": {"where": "state:failed"}, "preview": true}'
    async with Tidewheel("memory://") as app:
        key = b"Authorization: Bearer " + (await app.access.create_key("root", superuser=True)).key.encode()
        with open_listener("127.0.0.1", 0) as listener:
            server = uvicorn.Server(uvicorn.Config(create_api(app), http="h11", log_config=None))
            running = asyncio.create_task(server.serve([listener]))
            while not server.started:
                await asyncio.sleep(0.005)
            statuses = []
            for head, trailer in ((key + b"\r\n", b""), (b"", key + b"\r\n")):
                answer = await _asked(
                    listener.getsockname()[1],
                    b"POST /api/jobs/bulk HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                    b"Transfer-Encoding: chunked\r\n%s\r\n%x\r\n%s\r\n0\r\n%s\r\n"
                    % (head, len(content), content, trailer),
                )
                statuses.append(answer.split()[1])
            server.should_exit = True
            await running
    assert statuses == [b"200", b"401"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
async def test_a_hang_up_behind_a_request_sent_ahead_is_noticed() -> None:
    """A worker that waits for jobs, has sent another request behind, and is gone, is given no job."""
    async with Tidewheel("memory://") as app, served(app) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = "HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer root\r\n"
        body = '{"topics": ["q"]}'
        writer.write(
            f"POST /api/jobs/work/reserve?wait=60 {head}Content-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        connections: Any = server.server.server_state.connections
        async with asyncio.timeout(PATIENCE / 2):  # before the wait is over
            while not any(connection.flow.read_paused for connection in connections):
                writer.write(f"GET /healthz {head}\r\n".encode())  # one that comes early is read over
                await asyncio.sleep(0.2)
            writer.close()
            while connections:
                await asyncio.sleep(0.01)
        await app.queue.put("q", b"work")
        assert (await app.queue.reserve(["q"], timeout=PATIENCE)).body == b"work"
