"""However a client goes, nothing of it stays."""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.server.events.event_server import Served, served
from tidewheel import SecurityContext, Tidewheel, acting_as
from tidewheel.server import api_server
from tidewheel.server.events import broadcaster
from tidewheel.server.events.ring_buffer import EventKind, TopicSubject
from tidewheel.server.routes import event_routes

REQUEST = b"GET /api/jobs/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer root\r\n\r\n"


def connect(*, receive_buffer: int | None = None) -> socket.socket:
    """A client nobody reads for, unless the test does."""
    client = socket.socket()
    if receive_buffer is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.setblocking(False)
    return client


async def begin(server: Served, client: socket.socket, request: bytes = REQUEST) -> None:
    loop = asyncio.get_running_loop()
    already = len(server.api.event_broadcaster.listeners)
    await loop.sock_connect(client, ("127.0.0.1", server.port))
    await loop.sock_sendall(client, request)
    async with asyncio.timeout(PATIENCE):
        while len(server.api.event_broadcaster.listeners) == already:
            await asyncio.sleep(0.005)


def reset(client: socket.socket) -> None:
    """Close without a word: the other side gets RST."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def flood(server: Served, number: int = 5000) -> None:
    """More events than all buffers between here and a client hold."""
    for index in range(number):
        server.api.event_broadcaster.ring.add(
            TopicSubject(None, f"t{index}"), EventKind.TOPIC, b'"%s"' % (b"x" * 500)
        )
    server.api.event_broadcaster._wake_listeners()


@pytest.mark.parametrize("how", ["close", "reset", "half close"])
async def test_a_client_that_goes_is_noticed_at_once(server: Served, how: str) -> None:
    """Not at the next heartbeat: its stream, its tasks and the watcher end with it."""
    clients = [connect() for _ in range(5)]
    for client in clients:
        await begin(server, client)
    assert server.api.event_broadcaster.is_polling
    for client in clients:
        if how == "reset":
            reset(client)
        elif how == "half close":
            client.shutdown(socket.SHUT_WR)
        else:
            client.close()
    await server.until_nobody_listens()
    for client in clients:
        client.close()


async def test_a_client_that_reads_nothing_is_cut_off(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given time, and then its connection ends whatever it has not taken; others are not held up."""
    monkeypatch.setattr(event_routes, "WRITE_TIMEOUT_SECONDS", 0.3)
    stuck = connect(receive_buffer=4096)
    await begin(server, stuck)
    async with server.listen() as reader:
        flood(server)
        for _ in range(5000):
            await reader.event()
        async with asyncio.timeout(PATIENCE):
            while len(server.api.event_broadcaster.listeners) > 1:
                await asyncio.sleep(0.01)
        assert len(server.server.server_state.connections) == 1
    await server.until_nobody_listens()
    stuck.close()


async def test_a_request_that_follows_too_early_leaves_nothing_behind(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads nothing more from such a client, so only a write tells that it has gone."""
    for module in (broadcaster, event_routes):
        monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(broadcaster, "HEARTBEAT_CHECK_SECONDS", 0.05)
    client = connect()
    await begin(server, client, REQUEST + b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    client.close()
    await server.until_nobody_listens()


async def test_a_body_without_end_is_not_swallowed(server: Served) -> None:
    """A stream reads nothing from its client; one that goes on sending is let go."""
    client = connect()
    await begin(server, client, REQUEST.replace(b"\r\n\r\n", b"\r\nContent-Length: 10000000\r\n\r\n"))
    loop = asyncio.get_running_loop()
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(loop.sock_sendall(client, b"x" * 10_000_000), PATIENCE)
    await server.until_nobody_listens()
    client.close()


async def test_a_quiet_stream_gets_heartbeats(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the place in the ring, so that it can be resumed from there."""
    for module in (broadcaster, event_routes):
        monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(broadcaster, "HEARTBEAT_CHECK_SECONDS", 0.05)
    async with server.listen({"topic": "mine"}) as client:
        first = client.last_id
        await server.app.enqueue("other")
        async with asyncio.timeout(PATIENCE):
            while client.last_id == first:
                assert await client._block() is None
        assert client.comments[-1] == "still here"


async def test_there_is_a_limit_for_all_and_one_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond it one is told to come back later; who leaves makes room."""
    monkeypatch.setattr(broadcaster, "MAX_PER_CREDENTIAL", 2)
    async with Tidewheel("memory://", max_event_streams=3) as app, served(app) as server:
        server.gate.admit("acme", SecurityContext("acme"))
        async with server.listen(who="acme"), server.listen(who="acme"):
            async with server.listen(who="acme") as refused:
                assert refused.status == 503
                assert refused.problem["code"] == "too_many_streams"
                assert "retry-after: 5" in refused.head
            async with server.listen() as third, server.listen() as fourth:
                assert (third.status, fourth.status) == (200, 503)
                assert "max_event_streams" in fourth.problem["detail"]
        await server.until_nobody_listens()
        async with server.listen(who="acme") as again:
            assert again.status == 200


async def test_one_tenant_leaves_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its streams and the jobs it listens to are counted; a refusal says nothing about other tenants."""
    monkeypatch.setattr(broadcaster, "MAX_TENANT_JOBS", 3)
    settings: dict[str, Any] = {"max_event_streams": 4, "max_tenant_event_streams": 2}
    async with Tidewheel("memory://", **settings) as app, served(app) as server:
        jobs = []
        for name in ("acme", "globex", "initech"):
            server.gate.admit(name, SecurityContext(name))
            with acting_as(SecurityContext(name)):
                jobs.append(",".join([str((await app.enqueue("mine")).id) for _ in range(2)]))
        async with server.listen({"job": jobs[0]}, who="acme"):
            async with server.listen({"job": jobs[0]}, who="acme") as refused:
                assert (refused.status, refused.problem["code"]) == (503, "too_many_streams")
                assert "this tenant listens to 2 jobs; the limit is 3" in refused.problem["detail"]
            async with server.listen(who="acme"), server.listen(who="acme") as refused:
                assert refused.status == 503
                assert "this tenant has 2 event streams open" in refused.problem["detail"]
                async with (
                    server.listen({"job": jobs[1]}, who="globex") as first,
                    server.listen(who="globex") as second,
                    server.listen(who="initech") as third,
                    server.listen() as superuser,
                ):
                    assert (first.status, second.status) == (200, 200)
                    assert (third.status, superuser.status) == (503, 503)
                    told = third.problem["detail"]
                    assert told == "the server has no room for another event stream now; come back later"
                    assert "4 event streams are open" in superuser.problem["detail"]
        await server.until_nobody_listens()
        async with server.listen({"job": jobs[0]}, who="acme") as again:
            assert again.status == 200
        await server.until_nobody_listens()
        counts = server.api.event_broadcaster
        assert [*counts._by_tenant, *counts._jobs_by_tenant, *counts._by_credential] == []


async def test_a_server_that_stops_says_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    """All streams end at once and in order, and one that cannot is cut: nobody is waited for."""
    # So that it is not the server that ends them.
    monkeypatch.setattr(api_server, "SHUTDOWN_GRACE_SECONDS", 60.0)
    async with Tidewheel("memory://") as app:
        async with served(app) as server:
            stuck = connect(receive_buffer=4096)
            await begin(server, stuck)
            clients = [server.listen({"topic": "mine"}) for _ in range(20)]
            for client in clients:
                await client.__aenter__()
            flood(server)
            await asyncio.sleep(0)
            server.server.stop()
            for client in clients:
                assert await client.rest() == []
                assert client.comments == [broadcaster.SHUTDOWN_REASON]
                await client.__aexit__()
            async with asyncio.timeout(PATIENCE):
                while server.api.event_broadcaster.listeners:
                    await asyncio.sleep(0.01)
            assert not server.server.force_exit
        stuck.close()


async def test_asking_for_the_headers_alone_opens_no_stream(server: Served) -> None:
    """HEAD is GET without a body, and a stream is nothing but body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(REQUEST.replace(b"GET", b"HEAD"))
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    assert head.startswith(b"HTTP/1.1 200")
    assert b"text/event-stream" in head
    assert not server.api.event_broadcaster.listeners
    writer.close()
    await writer.wait_closed()
