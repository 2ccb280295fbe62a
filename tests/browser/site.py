"""A server to look at: the demo's shop on a store, with an API and a UI on a socket of this machine."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn
from playwright.async_api import Browser, Page, StorageState
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.servers.shared import fresh_url
from tidewheel import Tidewheel
from tidewheel.cli.demo.activity_log import ActivityLog
from tidewheel.cli.demo.demo_server import HOST, DemoLogin, DemoServer
from tidewheel.cli.demo.shop_app import Shop, make_shop
from tidewheel.server.api_server import listener_url, open_listener

STORES = ("sqlite", "postgres")


class Site:
    """One of them, open."""

    def __init__(self, store: str, shop: Shop, login: DemoLogin, mounted_at: str) -> None:
        self.store = store
        self.shop = shop
        self.login = login
        self._mounted_at = mounted_at
        self._state: StorageState | None = None
        self._door: DemoServer
        self._running: asyncio.Task[None]

    @property
    def app(self) -> Tidewheel:
        return self.shop.app

    @property
    def url(self) -> str:
        """Of the UI; what tests say is relative to it."""
        return self.login.url

    async def log_in(self, page: Page, password: str | None = None) -> None:
        """As a person does."""
        await page.goto(self.url)
        await page.get_by_label("Name").fill(self.login.name)
        await page.get_by_label("Password").fill(self.login.password if password is None else password)
        await page.get_by_role("button", name="Log in").click()

    async def logged_in(self, browser: Browser) -> StorageState:
        """What a browser knows after a login, for any number of pages: passwords are slow to check."""
        if self._state is None:
            context = await browser.new_context()
            page = await context.new_page()
            await self.log_in(page)
            await page.get_by_role("navigation").first.wait_for()
            self._state = await context.storage_state()
            await context.close()
        return self._state

    def forget_logins(self) -> None:
        """They have been ended."""
        self._state = None

    async def open(self, listener: socket.socket) -> None:
        """Answer there."""
        door = (
            Mounted(self.app, listener, self._mounted_at)
            if self._mounted_at
            else DemoServer(self.app, listener)
        )
        await door.open()
        self._door, self._running = door, asyncio.create_task(door.run())

    async def close(self) -> None:
        """Answer no more, and let go of the port."""
        self._door.stop()
        await self._running

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        """The server is down meanwhile; after that it is where it was."""
        await self.close()
        yield
        await self.open(open_listener(HOST, int(urlsplit(self.url).port or 0)))

    @asynccontextmanager
    async def working(self, name: str = "front-desk") -> AsyncIterator[None]:
        """Run jobs meanwhile."""
        worker = self.app.worker(name=name, handle_signals=False)
        running = asyncio.create_task(worker.run())
        try:
            yield
        finally:
            worker.stop(now=True)
            await running


class Mounted(DemoServer):
    """The API inside another program, which uvicorn serves as it serves any other."""

    def __init__(self, app: Tidewheel, listener: socket.socket, path: str) -> None:
        super().__init__(app, listener)
        self._listener = listener
        web = Starlette(routes=[Mount(path, self._api)])
        config = uvicorn.Config(web, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        self._other = uvicorn.Server(config)

    async def run(self) -> None:
        await self._other.serve(sockets=[self._listener])

    def stop(self) -> None:
        self._api.closing.set()
        self._other.should_exit = True


@asynccontextmanager
async def serving(store: str, directory: Path, *, mounted_at: str = "") -> AsyncIterator[Site]:
    """On a store of its own, and on any port that is free."""
    url = fresh_url() if store == "postgres" else f"sqlite:///{(directory / 'jobs.db').as_posix()}"
    with open_listener(HOST, 0) as listener:
        login = DemoLogin(f"{listener_url(listener)}{mounted_at}/ui/")
        site = Site(store, make_shop(url, ActivityLog(), login.superuser_setting), login, mounted_at)
        async with site.app:
            await site.open(listener)
            try:
                yield site
            finally:
                await site.close()
