"""What a worker says to a server, and a server on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tests.server.conftest import make_app
from tidewheel import Tidewheel
from tidewheel.server import create_api
from tidewheel.server.api_server import ApiServer, listener_url, open_listener


async def post(client: httpx2.AsyncClient, verb: str, body: Any, **headers: str) -> Any:
    answer = await client.post(f"/api/jobs/work/{verb}", json=body, headers=headers)
    assert answer.status_code in {200, 204}, answer.text
    return answer.json() if answer.content else None


async def take(
    client: httpx2.AsyncClient, *topics: str, wait: float = 0, **more: Any
) -> list[dict[str, Any]]:
    answer = await post(client, f"reserve?wait={wait}", {"topics": list(topics), **more})
    jobs: list[dict[str, Any]] = answer["jobs"]
    return jobs


def lease(job: dict[str, Any]) -> dict[str, Any]:
    return {"id": job["id"], "fence": job["fence"]}


async def settle(client: httpx2.AsyncClient, job: dict[str, Any], outcome: str, **more: Any) -> bool:
    answer = await post(client, "settle", {"settlements": [{**lease(job), "outcome": outcome, **more}]})
    (accepted,) = answer["accepted"]
    return bool(accepted)


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[ApiServer, Tidewheel, httpx2.AsyncClient]]:
    """A server on a real socket of this event loop, its app, and a superuser's client."""
    app = make_app(allowed_topics=("mail",))
    with open_listener("127.0.0.1", 0) as listener:
        server = ApiServer(create_api(app), listener, handle_signals=False)
        task = asyncio.create_task(server.run_on_current_loop())
        while not server.started:
            await asyncio.sleep(0.001)
        key = (await app.access.create_key(superuser=True)).key
        headers = {"Authorization": f"Bearer {key}"}
        async with httpx2.AsyncClient(base_url=listener_url(listener), headers=headers, timeout=30) as client:
            yield server, app, client
        server.stop()
        await task


async def waiting(app: Tidewheel, number: int) -> None:
    while app.remote.waiting != number:
        await asyncio.sleep(0.001)
