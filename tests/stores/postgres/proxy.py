"""A TCP proxy between a store and its server that loses what it is told to lose.

It understands just enough of PostgreSQL's protocol to know which statement a message runs, so that a test can
say "the reply to the next enqueue is lost" and know that the server has committed it.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit, urlunsplit

HOST = "127.0.0.1"

_STARTUP_CODES_WITHOUT_SESSION = {80877103, 80877104}  # "may I use TLS (GSSAPI)?": a real start-up follows


@dataclass
class Fault:
    """Something that happens once, to the first connection that runs this statement."""

    statement: str
    kind: str  # "reply": run, then cut off; "request": cut off before it arrives; "silence": run, no answer
    happened: asyncio.Event


class Proxy:
    """Forwards connections to the server of ``url``; ``self.url`` leads through it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._parts = parts
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._faults: deque[Fault] = deque()
        self._open = asyncio.Event()  # cleared: nothing passes, in neither direction
        self._open.set()
        self.closing = asyncio.Event()
        self._allowance: int | None = None  # bytes that may still come from the server
        self.delay = 0.0
        self.refuse = False  # new connections are reset, as if nobody listened
        self.accepted = 0

    @property
    def url(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user = self._parts.netloc.rpartition("@")[0]
        return urlunsplit(self._parts._replace(netloc=f"{user}@{HOST}:{port}"))

    # -- faults -----------------------------------------------------------------------------------------

    def lose_reply(self, statement: str, *, cut: bool = True) -> asyncio.Event:
        """The next statement with this text runs, but its reply never arrives.

        The connection is cut; or, without ``cut``, it stays and is silent.
        """
        return self._plan(statement, "reply" if cut else "silence")

    def lose_request(self, statement: str) -> asyncio.Event:
        """The connection is cut before the next statement with this text reaches the server."""
        return self._plan(statement, "request")

    def _plan(self, statement: str, kind: str) -> asyncio.Event:
        fault = Fault(statement, kind, asyncio.Event())
        self._faults.append(fault)
        return fault.happened

    def take_fault(self, statement: str) -> Fault | None:
        """The fault planned for a statement; each happens once."""
        for fault in self._faults:
            if fault.statement in statement:
                self._faults.remove(fault)
                return fault
        return None

    def blackhole(self) -> None:
        """From now on connections look alive and nothing arrives, as after a cable was pulled."""
        self._open.clear()

    def restore(self) -> None:
        """What was held back arrives now."""
        self._open.set()

    def half_open(self) -> int:
        """Those who are connected now never hear a word again; new connections work. How many there were."""
        for link in self._links:
            link.silent = True
        return len(self._links)

    def cut_after(self, length: int) -> None:
        """Reset every connection once this many more bytes have come from the server."""
        self._allowance = length

    def allow(self, data: bytes) -> bytes:
        """The part of the data that may pass."""
        if self._allowance is None:
            return data
        passing = data[: self._allowance]
        self._allowance -= len(data)
        if self._allowance < 0:
            self._allowance = None
        return passing

    def cut(self) -> int:
        """Reset every connection; how many there were."""
        links = list(self._links)
        for link in links:
            link.abort()
        return len(links)

    # -- forwarding -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._open.set()
        self.closing.set()
        tasks = [task for link in self._links for task in link.tasks]
        self.cut()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(self, writer)
        if self.refuse:
            link.abort()
            return
        self._links.add(link)
        try:
            await link.run(reader, self._target)
        finally:
            self._links.discard(link)

    async def passage(self) -> None:
        """Returns once something may pass."""
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._open.wait()


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self._statements: dict[str, str] = {}  # SQL by the name it was prepared under
        self._bound = ""  # SQL of the portal that is executed next
        self._losing: Fault | None = None
        self.silent = False
        self.tasks: set[asyncio.Task[object]] = set()

    async def run(self, from_client: asyncio.StreamReader, target: tuple[str, int]) -> None:
        current = asyncio.current_task()
        assert current is not None
        self.tasks.add(current)
        try:
            await self._proxy.passage()
            from_server, self._server = await asyncio.open_connection(*target)
            back = asyncio.create_task(self._back(from_server))
            self.tasks.add(back)
            try:
                await asyncio.gather(self._forth(from_client, self._server), back)
            finally:
                back.cancel()  # gather leaves it when the other way has broken
        except (OSError, asyncio.IncompleteReadError):
            return  # one side hung up: so does the other
        finally:
            self.abort()

    def abort(self) -> None:
        """No goodbye: the other end sees a reset connection."""
        for writer in (self._client, self._server):
            if writer is not None:
                writer.transport.abort()

    async def _forth(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        code = 0
        while code in _STARTUP_CODES_WITHOUT_SESSION or not code:
            head = await reader.readexactly(8)
            length, code = struct.unpack("!ii", head)
            writer.write(head + await reader.readexactly(length - 8))
        while True:
            head = await reader.readexactly(5)
            body = await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
            if (fault := self._read(head[:1], body)) is not None:
                if fault.kind == "request":
                    fault.happened.set()
                    raise ConnectionAbortedError
                self._losing = fault
            await self._passage()
            writer.write(head + body)
            await writer.drain()

    def _read(self, kind: bytes, body: bytes) -> Fault | None:
        """Follow what is prepared, bound and executed; the fault planned for what this message runs."""
        match kind:
            case b"P":
                name, statement, _ = body.split(b"\0", 2)
                self._statements[name.decode()] = statement.decode()
            case b"B":
                _, name, _ = body.split(b"\0", 2)
                self._bound = self._statements.get(name.decode(), "")
                return self._proxy.take_fault(self._bound)
            case b"Q":
                return self._proxy.take_fault(body[:-1].decode())
            case _:
                pass
        return None

    async def _back(self, reader: asyncio.StreamReader) -> None:
        # The answer to "may I use TLS?" is one byte without a length.
        await self._pass_back(await reader.readexactly(1))
        pending = b""
        while True:
            data = await reader.read(65536)
            if not data:
                raise ConnectionResetError
            if self._losing is None:
                await self._pass_back(data)
                continue
            pending += data
            if pending.endswith(b"Z\0\0\0\5I"):  # ready for the next: the statement was committed
                self._losing.happened.set()
                if self._losing.kind == "reply":
                    raise ConnectionAbortedError

    async def _passage(self) -> None:
        await self._proxy.passage()
        if self.silent:
            await self._proxy.closing.wait()
            raise ConnectionAbortedError

    async def _pass_back(self, data: bytes) -> None:
        await self._passage()
        passing = self._proxy.allow(data)
        self._client.write(passing)
        await self._client.drain()
        if len(passing) < len(data):
            await asyncio.sleep(0)  # let it out
            self._proxy.cut()
            raise ConnectionAbortedError
