"""A server on a real port of the loopback interface, on the event loop of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from tidewheel import Tidewheel
from tidewheel.server import Api, create_api
from tidewheel.server.api_server import ApiServer, listener_url, open_listener
from tidewheel.server.asgi import respond_problem
from tidewheel.server.http_connection import SCOPE_EXTENSION
from tidewheel.server.problems import NOT_FOUND, Problem
from tidewheel.server.route import API_ROOT


class Switch:
    """Serves one API after the other: a server takes longer to begin and to end than most tests."""

    def __init__(self) -> None:
        self.app = Tidewheel("memory://")  # whose settings the server goes by
        self.closing = asyncio.Event()
        self.api: Api | None = None
        self.requests: list[tuple[str, str]] = []
        """methods and paths of what was asked"""
        self.cut_before: list[str] = []
        """paths whose next request is cut off before anything is done"""
        self.cut_after: list[str] = []
        """paths of which the next answer gets lost"""
        self.away = False
        """whether everybody is cut off"""
        self.held: dict[str, asyncio.Event] = {}
        """paths whose answers are held until then"""
        self.filtered: bytes | None = None
        """requests with this in them are turned away, as filters in front of servers do"""
        self.unknown: set[str] = set()
        """paths that the server does not know, as one of another version"""
        self._lines: dict[Any, str] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for kind in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{kind}.complete"})
            return
        path = scope["path"].removeprefix(API_ROOT)
        self.requests.append((scope["method"], path))
        if self.filtered is not None:
            body, receive = await _read_ahead(receive)
            if self.filtered in body:
                await PlainTextResponse("no", 403)(scope, receive, send)
                return
        if path in self.unknown:
            await respond_problem(scope, send, Problem(NOT_FOUND, "nothing is here"))
            return
        line = scope["extensions"][SCOPE_EXTENSION]
        if self.away or _taken(self.cut_before, path):
            line.reset_connection()
        elif _taken(self.cut_after, path):

            async def lose(message: Message) -> None:
                if message["type"] == "http.response.body":
                    line.reset_connection()

            await self._answer(scope, receive, lose)
        elif (let_go := self.held.get(path)) is not None:

            async def hold(message: Message) -> None:
                await let_go.wait()
                await send(message)

            await self._answer(scope, receive, hold)
        else:
            self._lines[line] = path
            try:
                await self._answer(scope, receive, send)
            finally:
                del self._lines[line]

    def cut(self, path: str) -> int:
        """Cut off those whose requests for this are under way; how many."""
        lines = [line for line, asked in self._lines.items() if asked == path]
        for line in lines:
            line.reset_connection()
        return len(lines)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.api is not None
        await self.api(scope, receive, send)


def _taken(paths: list[str], path: str) -> bool:
    if path in paths:
        paths.remove(path)
        return True
    return False


async def _read_ahead(receive: Receive) -> tuple[bytes, Receive]:
    """The body of a request, and how it is received all the same."""
    messages = [await receive()]
    while messages[-1].get("more_body", False):
        messages.append(await receive())
    body = b"".join(message.get("body", b"") for message in messages)

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return body, again


class Served:
    """Where a switch is reached."""

    def __init__(self, switch: Switch, url: str) -> None:
        self.switch = switch
        self.url = url

    @property
    def requests(self) -> list[tuple[str, str]]:
        return self.switch.requests

    def asked(self, path: str) -> int:
        """How often this was asked for."""
        return sum(requested == path for _, requested in self.requests)

    @asynccontextmanager
    async def api_of(self, app: Tidewheel) -> AsyncIterator[Api]:
        """Serve this app for a while."""
        api = create_api(app)
        await api.open()
        self.switch.api = api
        self.switch.requests.clear()
        self.switch.away = False
        self.switch.held.clear()
        self.switch.filtered = None
        self.switch.unknown.clear()
        try:
            yield api
        finally:
            await api.close()


@asynccontextmanager
async def serving() -> AsyncIterator[Served]:
    switch = Switch()
    listener = open_listener("127.0.0.1", 0)
    server = ApiServer(cast("Any", switch), listener, handle_signals=False)
    running = asyncio.create_task(server.run_on_current_loop())
    while not server.started:
        await asyncio.sleep(0.001)
    try:
        yield Served(switch, listener_url(listener))
    finally:
        server.stop()
        await running


async def key_of(app: Tidewheel, **options: Any) -> str:
    """A new API key, good for everything unless told otherwise."""
    return (await app.access.create_key(**({"superuser": True} | options))).key
