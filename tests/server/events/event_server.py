"""A server in the test's own event loop, with a gate of the test's own, and a client that reads streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from tests.patience import PATIENCE
from tidewheel import SecurityContext, Tidewheel
from tidewheel.access.caller import Caller, CallerKind
from tidewheel.server import create_api
from tidewheel.server.api import Api
from tidewheel.server.api_server import ApiServer, open_listener
from tidewheel.server.problems import NOT_AUTHENTICATED, Problem
from tidewheel.server.route import Permission


class OpenGate:
    """Lets in whom it knows by their bearer token, and everybody as a superuser who shows ``root``."""

    def __init__(self) -> None:
        self.callers = {"root": Caller(CallerKind.KEY, "root", superuser=True)}
        self.contexts: dict[str, SecurityContext] = {}

    def admit(self, token: str, context: SecurityContext) -> None:
        self.callers[token] = Caller(CallerKind.KEY, token, tenant=context.tenant)
        self.contexts[token] = context

    def check_rules(self) -> None:
        """Nothing to read."""

    async def authenticate(self, headers: Mapping[bytes, bytes], *, changing: bool) -> Caller:
        del changing
        token = headers.get(b"authorization", b"").decode().removeprefix("Bearer ")
        if token not in self.callers:
            raise Problem(NOT_AUTHENTICATED, "who is that?")
        return self.callers[token]

    def context(self, caller: Caller, permission: Permission, method: str) -> SecurityContext | None:
        del permission, method
        return self.contexts.get(caller.name)


@dataclass
class Served:
    app: Tidewheel
    api: Api
    server: ApiServer
    port: int
    gate: OpenGate

    def listen(
        self, query: Mapping[str, str] | None = None, *, who: str = "root", last: str | None = None
    ) -> EventClient:
        return EventClient(self.port, dict(query or {}), who, last)

    async def until_nobody_listens(self) -> None:
        """Nothing is left of any stream: no listener, no task, no connection."""
        async with asyncio.timeout(PATIENCE):
            while (
                self.api.event_broadcaster.listeners
                or self.api.event_broadcaster.is_polling
                or self.server.server_state.connections
                or any(task.get_name().startswith("tidewheel-events") for task in asyncio.all_tasks())
            ):
                await asyncio.sleep(0.01)


@asynccontextmanager
async def served(app: Tidewheel, *, guarded: bool = False) -> AsyncIterator[Served]:
    """The app's API on a port of its own, until left. ``guarded``: by keys and rules, as in earnest."""
    api = create_api(app)
    gate: Any = OpenGate()
    if not guarded:
        api.authenticator = gate
    with open_listener("127.0.0.1", 0) as listener:
        server = ApiServer(api, listener)
        running = asyncio.create_task(server.run_on_current_loop())
        while not server.started:
            await asyncio.sleep(0.005)
        try:
            yield Served(app, api, server, listener.getsockname()[1], gate)
        finally:
            if not server.should_exit:
                server.stop()
            await asyncio.wait_for(running, PATIENCE)


@dataclass(frozen=True)
class Told:
    """One event as a client got it."""

    kind: str
    data: Any
    id: str


@dataclass
class EventClient:
    """Reads one stream by hand, over a socket of its own."""

    port: int
    query: dict[str, str]
    who: str
    last: str | None
    status: int = 0
    body: bytes = b""
    comments: list[str] = field(default_factory=list)
    last_id: str = ""

    async def __aenter__(self) -> EventClient:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        target = "/api/jobs/events" + (f"?{urlencode(self.query)}" if self.query else "")
        lines = [f"GET {target} HTTP/1.1", "Host: x", f"Authorization: Bearer {self.who}"]
        if self.last is not None:
            lines.append(f"Last-Event-ID: {self.last}")
        self.writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        head = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), PATIENCE)
        self.status = int(head.split()[1])
        self.head = head.decode().lower()
        if self.status != 200:
            length = int(self.head.split("content-length: ")[1].split("\r\n")[0])
            self.body = await self.reader.readexactly(length)
        else:
            await self._block()  # retry and the first id
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    @property
    def problem(self) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.body)
        return answer

    async def event(self) -> Told:
        """The next event, comments passed over; ``EOFError`` when the stream has ended."""
        async with asyncio.timeout(PATIENCE):
            while True:
                told = await self._block()
                if told is not None:
                    return told

    async def until(self, kind: str) -> list[Told]:
        """Everything up to the first event of this kind."""
        events = []
        while True:
            events.append(await self.event())
            if events[-1].kind == kind:
                return events

    async def rest(self) -> list[Told]:
        """Everything until the stream ends."""
        events = []
        while True:
            try:
                events.append(await self.event())
            except EOFError:
                return events

    async def _block(self) -> Told | None:
        while b"\n\n" not in self.body:
            size = int(await self.reader.readline() or b"0", 16)
            if not size:
                raise EOFError
            self.body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        block, _, self.body = self.body.partition(b"\n\n")
        fields: dict[str, str] = {}
        for line in block.decode().split("\n"):
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
            else:
                self.comments.append(value)
        self.last_id = fields.get("id", self.last_id)
        if "data" not in fields:
            return None
        return Told(fields["event"], json.loads(fields["data"]), fields["id"])
