"""An app, its API, and clients of several kinds that ask it without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from argon2 import PasswordHasher

from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.access import passwords
from tidewheel.server import Api, create_api

KNOWN = "@request.auth.id != ''"
"""The rule under which whoever shows a key may."""


def make_app(url: str = "memory://", **settings: Any) -> Tidewheel:
    """An app with the tasks the tests enqueue."""
    given = {"enqueue_rule": KNOWN, "manage_rule": KNOWN, "poll_interval": 0.05, **settings}
    app = Tidewheel(url, **given)

    @app.task
    async def mail_digest(userId: str) -> dict[str, str]:  # noqa: N803 - the first design's own example
        """Send a digest."""
        return {"sent": userId, "password": "hunter2"}

    @app.task(max_attempts=1)
    async def refuse(reason: str = "no") -> None:
        raise ValueError(reason)

    @app.task
    async def upload(body: bytes) -> int:
        return len(body)

    @app.task(durable=False)
    async def fleeting(thing: str) -> None:
        """Only where it is enqueued."""

    return app


class Asking:
    """An API and clients that ask it, each with a key of its own."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.app = api.app
        self._clients: list[httpx2.AsyncClient] = []

    def client(self, key: str | None = None, **headers: str) -> httpx2.AsyncClient:
        given = dict(headers) if key is None else {"Authorization": f"Bearer {key}", **headers}
        transport = httpx2.ASGITransport(app=self.api)
        client = httpx2.AsyncClient(
            transport=transport, base_url="http://tidewheel.test", headers=given, timeout=PATIENCE
        )
        self._clients.append(client)
        return client

    async def with_key(self, **options: Any) -> httpx2.AsyncClient:
        """A client with a new key."""
        return self.client((await self.app.access.create_key(**options)).key)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def asking(app: Tidewheel) -> AsyncIterator[Asking]:
    api = create_api(app)
    await api.open()
    made = Asking(api)
    try:
        yield made
    finally:
        await made.close()
        await api.close()


@pytest.fixture
async def ask() -> AsyncIterator[Asking]:
    """The API of an app in memory."""
    async with asking(make_app()) as made:
        yield made


@pytest.fixture
async def root(ask: Asking) -> httpx2.AsyncClient:
    """A superuser's client."""
    return await ask.with_key(superuser=True)


@pytest.fixture
async def shop(ask: Asking) -> httpx2.AsyncClient:
    """A client of the tenant ``shop``, good for everything that rules allow."""
    return await ask.with_key(tenant="shop")


@pytest.fixture(scope="package")
def quick_passwords() -> Iterator[None]:
    """A hash takes a tenth of a second on purpose."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "_hasher", lambda: quick)
        passwords._dummy_hash.cache_clear()
        yield
    passwords._dummy_hash.cache_clear()


@pytest.fixture
async def worker(ask: Asking) -> httpx2.AsyncClient:
    """A client with the key of a worker, good for nothing else."""
    return await ask.with_key(superuser=True, scopes=["work"])
