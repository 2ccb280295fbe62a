"""A small app as server and client have it: the same code, in two places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.stores.http.http_server import Served, key_of
from tidewheel import Context, Fail, Tidewheel

KNOWN = "@request.auth.id != ''"
"""The rule under which whoever shows a key may."""


class Shop:
    """The app of one side, and what its handlers are told and tell."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.app = Tidewheel(url, **{"shutdown_grace": 5.0, **settings})
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()

        @self.app.task
        async def greet(name: str) -> str:
            return f"hello {name}"

        @self.app.task
        async def upload(body: bytes) -> int:
            return len(body)

        @self.app.task(max_attempts=2)
        async def refuse(reason: str) -> None:
            raise Fail(reason)

        @self.app.task
        async def wait(ctx: Context, note: str) -> str:
            await ctx.progress(40, note)
            self.begun.set()
            await self.let_go.wait()
            return note

        @self.app.task
        async def walk(ctx: Context) -> int:
            async def first() -> int:
                return 20

            number = await ctx.step("first", first)
            await ctx.checkpoint({"reached": number})
            return number + 1

        self.greet, self.upload, self.refuse, self.wait, self.walk = greet, upload, refuse, wait, walk


@asynccontextmanager
async def server_side(served: Served, url: str = "memory://", **settings: Any) -> AsyncIterator[Shop]:
    """The app beside the database, served."""
    shop = Shop(url, **{"enqueue_rule": KNOWN, "manage_rule": KNOWN, "poll_interval": 0.05, **settings})
    async with served.api_of(shop.app):
        yield shop


@asynccontextmanager
async def client_side(served: Served, server: Shop, **key: Any) -> AsyncIterator[Shop]:
    """The same app over HTTP, with a key of its own."""
    shop = Shop(served.url, token=await key_of(server.app, **key))
    async with shop.app:
        yield shop
