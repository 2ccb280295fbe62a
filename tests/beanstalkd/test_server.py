"""The server on a real socket: order, portions, limits, hanging up, stopping."""

from __future__ import annotations

import asyncio
import contextlib
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidewheel import ConfigurationError, Tidewheel
from tidewheel.beanstalkd import connection
from tidewheel.beanstalkd.connection import MAX_UNREAD_BYTES, MAX_UNSENT_BYTES
from tidewheel.beanstalkd.listener import (
    ListenAddress,
    bound_address,
    listen,
    read_address,
    stop_listening,
)
from tidewheel.beanstalkd.server import Server


class Client:
    """Bytes out, lines in."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes, lines: int = 1) -> bytes:
        self.writer.write(data)
        await self.writer.drain()
        return b"".join([await self.reader.readline() for _ in range(lines)])

    async def end(self) -> bytes:
        """What comes until the server hangs up."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""


class Serving:
    """A server and its clients."""

    def __init__(self, app: Tidewheel, server: Server, port: int) -> None:
        self.app = app
        self.server = server
        self.port = port
        self._writers: list[asyncio.StreamWriter] = []

    async def client(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**22)
        self._writers.append(writer)
        return Client(reader, writer)

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def serving(max_connections: int = 100, max_job_size: int = 65_535) -> AsyncIterator[Serving]:
    async with Tidewheel("memory://") as app:
        server = Server(app, max_connections=max_connections, max_job_size=max_job_size)
        listener = listen(ListenAddress(port=0))
        running = asyncio.create_task(server.run(listener))
        there = Serving(app, server, bound_address(listener, ListenAddress()).port)
        try:
            async with asyncio.timeout(60):
                yield there
        finally:
            server.stop()
            await running
            there.close()


async def test_commands_that_come_together_are_answered_in_their_order() -> None:
    """However they are cut up, and with some that wait for the store between others that do not."""
    talk = (
        b"use a\r\nput 0 0 60 5\r\nhello\r\nwatch a\r\nreserve\r\nnonsense\r\n"
        b"list-tube-used\r\nput 0 0 60 1\r\nxy\r\ndelete 1\r\n"
    )
    expected = (
        b"USING a\r\nINSERTED 1\r\nWATCHING 2\r\nRESERVED 1 5\r\nhello\r\nUNKNOWN_COMMAND\r\n"
        b"USING a\r\nEXPECTED_CRLF\r\n"
    )
    async with serving() as there:
        whole = await there.client()
        assert await whole.say(talk[:-10], 8) == expected
        assert await whole.say(b"delete 1\r\n") == b"UNKNOWN_COMMAND\r\n"  # the y was no end of the body
        assert await whole.say(b"delete 1\r\n") == b"DELETED\r\n"
        single = await there.client()
        for byte in b"put 0 0 60 5\r\nhello\r":
            single.writer.write(bytes([byte]))
            await single.writer.drain()
        assert await single.say(b"\n") == b"INSERTED 2\r\n"


async def test_a_thousand_pipelined_puts_are_all_answered() -> None:
    """In order, and with one id each."""
    async with serving() as there:
        client = await there.client()
        replies = await client.say(b"put 0 0 60 3\r\nabc\r\n" * 1000, 1000)
        assert replies == b"".join(b"INSERTED %d\r\n" % number for number in range(1, 1001))


async def test_quit_hangs_up_and_what_follows_is_not_done() -> None:
    """Replies to what came before are sent."""
    async with serving() as there:
        client = await there.client()
        client.writer.write(b"use a\r\nquit\r\nput 0 0 60 1\r\nx\r\n")
        assert await client.end() == b"USING a\r\n"
        assert (await there.app.queue.stats()).ready == 0


async def test_a_client_that_closed_its_side_gets_all_its_replies() -> None:
    """``printf … | nc -N`` works, and who waits is told TIMED_OUT."""
    async with serving() as there:
        client = await there.client()
        client.writer.write(b"put 0 0 60 1\r\nx\r\nreserve\r\nreserve\r\nstats-tube nowhere\r\n")
        client.writer.write_eof()
        assert await client.end() == b"INSERTED 1\r\nRESERVED 1 1\r\nx\r\nTIMED_OUT\r\nNOT_FOUND\r\n"
        other = await there.client()
        assert await other.say(b"reserve\r\n", 2) == b"RESERVED 1 1\r\nx\r\n"


async def test_a_client_that_waits_and_vanishes_gets_no_job() -> None:
    """The next job goes to somebody who is there."""
    async with serving() as there:
        vanishing, other = await there.client(), await there.client()
        vanishing.writer.write(b"reserve\r\n")
        while not there.server.state.counters.waiting:
            await asyncio.sleep(0)
        vanishing.writer.transport.abort()
        while there.server.state.counters.connections > 1:
            await asyncio.sleep(0)
        assert await other.say(b"put 0 0 60 1\r\nx\r\n") == b"INSERTED 1\r\n"
        assert await other.say(b"reserve-with-timeout 0\r\n", 2) == b"RESERVED 1 1\r\nx\r\n"


async def test_who_waits_is_told_when_its_last_second_begins() -> None:
    """A job with a second to run is in its last one from the start."""
    async with serving() as there:
        client = await there.client()
        await client.say(b"put 0 0 2 1\r\nx\r\n")
        await client.say(b"reserve\r\n", 2)
        assert await client.say(b"reserve\r\n") == b"DEADLINE_SOON\r\n"
        assert await client.say(b"delete 1\r\n") == b"DELETED\r\n"


async def test_a_job_whose_time_is_over_goes_to_who_waits() -> None:
    """The server notices by itself, and counts it."""
    async with serving() as there:
        holder, waiter = await there.client(), await there.client()
        await holder.say(b"put 0 0 1 1\r\nx\r\n")
        await holder.say(b"reserve\r\n", 2)
        assert await waiter.say(b"reserve-with-timeout 30\r\n", 2) == b"RESERVED 1 1\r\nx\r\n"
        assert await holder.say(b"delete 1\r\n") == b"NOT_FOUND\r\n"
        assert there.server.state.counters.timeouts == 1


async def test_a_job_touched_in_its_last_moment_is_still_its_holders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store had it touched in time, and answered so late that its first end came before."""
    async with serving() as there:
        client = await there.client()
        await client.say(b"put 0 0 6 1\r\nx\r\n")
        await client.say(b"reserve\r\n", 2)
        touch = there.app.store.touch

        async def answers_late(*arguments: Any, **more: Any) -> list[float | None]:
            touched = await touch(*arguments, **more)
            while not there.server.state.counters.timeouts:
                await asyncio.sleep(0.01)
            return touched

        monkeypatch.setattr(there.app.store, "touch", answers_late)
        await asyncio.sleep(2)  # so that it ends at 8 seconds, and not at 6
        assert await client.say(b"touch 1\r\n") == b"TOUCHED\r\n"
        assert await client.say(b"delete 1\r\n") == b"DELETED\r\n"


async def test_http_is_hung_up_on_at_once() -> None:
    """Nothing of a request is read as a command."""
    async with serving() as there:
        client = await there.client()
        client.writer.write(b"POST / HTTP/1.1\r\nHost: here\r\n\r\nput 0 0 60 1\r\nx\r\n")
        assert await client.end() == b""
        assert (await there.app.queue.stats()).ready == 0


async def test_clients_beyond_the_limit_are_hung_up_on() -> None:
    """And there is room again when somebody leaves."""
    async with serving(max_connections=2) as there:
        first, second = await there.client(), await there.client()
        assert await first.say(b"use a\r\n") == b"USING a\r\n"
        assert await second.say(b"use a\r\n") == b"USING a\r\n"
        third = await there.client()
        assert await third.end() == b""
        first.writer.write(b"quit\r\n")
        assert await first.end() == b""
        fourth = await there.client()
        assert await fourth.say(b"use a\r\n") == b"USING a\r\n"


async def test_being_full_is_said_once_however_clients_come_and_go(caplog: pytest.LogCaptureFixture) -> None:
    """Those hung up on try again at once, and somebody leaves every moment."""
    async with serving(max_connections=20) as there:
        clients = [await there.client() for _ in range(20)]
        for client in clients:
            await client.say(b"use a\r\n")
        for leaving in clients[:5]:
            assert await (await there.client()).end() == b""
            leaving.writer.write(b"quit\r\n")
            assert await leaving.end() == b""
            assert await (await there.client()).say(b"use a\r\n") == b"USING a\r\n"
    said = [record.getMessage() for record in caplog.records if "--max-connections" in record.getMessage()]
    assert len(said) == 1


async def test_clients_that_all_come_at_once_are_kept_waiting_not_dropped() -> None:
    """As many as beanstalkd keeps: after a restart every worker connects in the same moment."""
    async with serving(max_connections=1000) as there:
        client = await there.client()
        await client.say(b"use a\r\n")  # it serves, and accepts nobody as long as this does not wait
        waiting = [socket.create_connection(("127.0.0.1", there.port), 5) for _ in range(120)]
        for one in waiting:
            one.close()


async def test_a_client_that_does_not_read_is_not_answered_without_end() -> None:
    """What is kept for it has a limit, and nothing is lost when it reads after all."""
    async with serving() as there:
        client = await there.client()
        body = b"z" * 60_000
        await client.say(b"put 0 0 60 60000\r\n" + body + b"\r\n")
        there.server.state.counters.commands.clear()
        client.writer.write(b"peek 1\r\n" * 1000)  # 60 MB of replies
        done, steady = 0, 0
        while steady < 1000:
            await asyncio.sleep(0)
            steady = steady + 1 if there.server.state.counters.commands["peek"] == done else 0
            done = there.server.state.counters.commands["peek"]
        assert 0 < done < 500  # the sockets' own buffers take some of it, too
        reply = b"FOUND 1 60000\r\n" + body + b"\r\n"
        for _ in range(1000):
            assert await client.reader.readexactly(len(reply)) == reply


async def test_a_client_that_reads_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its replies do not stay in memory for ever, and its jobs are given back."""
    monkeypatch.setattr(connection, "UNREAD_SECONDS", 0.1)
    async with serving() as there:
        client, other = await there.client(), await there.client()
        body = b"z" * 60_000
        await client.say(b"put 0 0 600 60000\r\n" + body + b"\r\n")
        await client.say(b"reserve\r\n", 2)
        client.writer.write(b"peek 1\r\n" * 1000)  # 60 MB of replies
        assert await other.say(b"reserve\r\n", 2) == b"RESERVED 1 60000\r\n" + body + b"\r\n"


@pytest.mark.skipif(sys.platform != "linux", reason="limits open files as Linux does")
def test_a_lack_of_files_does_not_flood_the_log(tmp_path: Path) -> None:
    """With more clients than the process may have files, the log says so in a few lines."""
    log = tmp_path / "log"
    command = [sys.executable, "-m", "tidewheel.cli", "beanstalkd", "--listen", "127.0.0.1:0", "--url"]
    with log.open("wb") as lines, contextlib.ExitStack() as clients:
        process = subprocess.Popen(
            ["sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *command, f"sqlite:///{tmp_path / 'jobs.db'}"],
            stdout=lines,
            stderr=lines,
        )
        clients.callback(process.wait)
        clients.callback(process.kill)
        began = time.monotonic()
        while (found := re.search(rb"127\.0\.0\.1:(\d+)", log.read_bytes())) is None:
            assert process.poll() is None, log.read_text("utf-8")
            assert time.monotonic() - began < PATIENCE
            time.sleep(0.02)
        sockets = [clients.enter_context(socket.socket()) for _ in range(400)]
        for one in sockets:
            one.connect(("127.0.0.1", int(found[1])))
        while len(sockets) > 100:  # there is room for 56 at a time; the others are hung up on
            ended = select.select(sockets, [], [], PATIENCE)[0]
            assert ended
            sockets = [one for one in sockets if one not in ended]
        assert log.read_bytes().count(b"\n") < 10


async def test_commands_behind_one_that_waits_are_not_kept_without_end() -> None:
    """The client is not listened to for as long; the network makes it wait."""
    async with serving() as there:
        client, other = await there.client(), await there.client()
        client.writer.write(b"reserve\r\n")
        sent = 0
        block = b"use a\r\n" * 10_000
        while True:
            client.writer.write(block)
            sent += len(block)
            try:
                async with asyncio.timeout(0.2):
                    await client.writer.drain()
            except TimeoutError:
                break
            # The sockets' own buffers take a few megabytes.
            assert sent < 100 * (MAX_UNREAD_BYTES + MAX_UNSENT_BYTES)
        await other.say(b"put 0 0 60 1\r\nx\r\n")
        assert await client.reader.readline() == b"RESERVED 1 1\r\n"
        assert await client.reader.readline() == b"x\r\n"
        for _ in range(sent // 7):
            assert await client.reader.readline() == b"USING a\r\n"


async def test_a_body_may_be_as_big_as_the_server_was_told() -> None:
    """And no bigger; what is too big is swallowed."""
    async with serving(max_job_size=1_000_000) as there:
        client = await there.client()
        body = b"y" * 1_000_000
        assert await client.say(b"put 0 0 60 1000000\r\n" + body + b"\r\n") == b"INSERTED 1\r\n"
        assert await client.say(b"put 0 0 60 1000001\r\ny" + body + b"\r\n") == b"JOB_TOO_BIG\r\n"
        assert await client.say(b"peek 1\r\n", 2) == b"FOUND 1 1000000\r\n" + body + b"\r\n"


async def test_a_stopped_server_gives_all_reserved_jobs_back() -> None:
    """They are ready for the next server at once."""
    async with serving() as there:
        clients = [await there.client() for _ in range(3)]
        for client in clients:
            await client.say(b"put 0 0 600 1\r\nx\r\n")
        for client in clients:
            await client.say(b"reserve\r\n", 2)
        waiting = await there.client()
        waiting.writer.write(b"reserve\r\n")
        assert (await there.app.queue.stats()).reserved == 3
        there.server.stop()
        for client in (*clients, waiting):
            assert await client.end() == b""
        while (await there.app.queue.stats()).reserved:
            await asyncio.sleep(0)
        assert (await there.app.queue.stats()).ready == 3


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", ListenAddress("127.0.0.1", 11300)),
        ("0.0.0.0", ListenAddress("0.0.0.0", 11300)),  # noqa: S104 - read, not listened on
        ("localhost:5000", ListenAddress("localhost", 5000)),
        (":5000", ListenAddress("127.0.0.1", 5000)),
        ("[::1]:5000", ListenAddress("::1", 5000)),
        ("[::1]", ListenAddress("::1", 11300)),
        ("::1", ListenAddress("::1", 11300)),
        ("unix:/run/queue.sock", ListenAddress(path="/run/queue.sock")),
    ],
)
def test_addresses_are_read(text: str, address: ListenAddress) -> None:
    """As beanstalkd and other programs write them; what is shown is read as the same again."""
    assert read_address(text) == address
    if not address.path:
        assert read_address(str(address)) == address


@pytest.mark.parametrize("text", ["host:", "host:99999", "host:x", "[::1", "[::1]5000", "unix:"])
def test_addresses_that_cannot_be_read_are_refused(text: str) -> None:
    """With what is possible."""
    with pytest.raises(ConfigurationError, match="unix:"):
        read_address(text)


def test_only_loopback_and_paths_are_local() -> None:
    """Anything else is warned about."""
    assert all(read_address(text).is_local for text in ("", "127.9.9.9", "localhost", "[::1]:1", "unix:/a"))
    assert not any(
        read_address(text).is_local for text in ("10.0.0.1", "::", "10.0.0.1:11300", "example.org")
    )


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no such sockets")
def test_a_socket_left_behind_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    """A killed server leaves its path; nothing else at a path is ever removed."""
    address = ListenAddress(path=str(tmp_path / "queue.sock"))
    first = listen(address)
    with pytest.raises(ConfigurationError, match="another server listens"):
        listen(address)
    first.close()
    stop_listening(listen(address), address)
    assert not Path(address.path).exists()
    Path(address.path).write_text("somebody's file")
    with pytest.raises(ConfigurationError, match="no socket"):
        listen(address)
    assert Path(address.path).read_text() == "somebody's file"


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no such sockets")
def test_who_stops_leaves_the_socket_of_whoever_took_its_place(tmp_path: Path) -> None:
    """Somebody removed the path under a running server and started another one there."""
    address = ListenAddress(path=str(tmp_path / "queue.sock"))
    first = listen(address)
    Path(address.path).unlink()
    second = listen(address)
    stop_listening(first, address)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address.path)
    stop_listening(second, address)
    assert not Path(address.path).exists()


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no such sockets")
def test_a_server_too_busy_to_accept_is_not_taken_for_dead(tmp_path: Path) -> None:
    """Its queue is full; whoever asks whether it lives is not kept waiting for it, either."""
    address = ListenAddress(path=str(tmp_path / "queue.sock"))
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(address.path)
        busy.listen(0)
        waiting.connect(address.path)
        with pytest.raises(ConfigurationError, match="another server listens"):
            listen(address)


def test_the_first_address_of_a_name_that_works_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many machines have an IPv6 address for localhost and no IPv6."""
    foreign = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0))  # for documentation: nobody's
    own = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [foreign, own])
    with listen(ListenAddress("localhost", 0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    with listen(ListenAddress("localhost", 0)) as listener:
        taken = (*own[:4], listener.getsockname())
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [taken, own])
        with pytest.raises(ConfigurationError, match="in use"):
            listen(ListenAddress("localhost", 0))


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid", "ä..b"])
def test_a_host_that_is_not_this_machine_is_told(host: str) -> None:
    """Whether it is another's, nobody's, or no name at all."""
    with pytest.raises(ConfigurationError, match=f"cannot listen on {host}:0: .*--listen"):
        listen(ListenAddress(host, 0))


def test_a_port_in_use_is_told() -> None:
    """With where, and what to do."""
    with listen(ListenAddress(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on 127.0.0.1:{port}.*--listen"):
            listen(ListenAddress(port=port))
