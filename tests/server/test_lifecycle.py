"""An API that is opened, closed and opened again, and requests whose callers cannot be looked up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.patience import PATIENCE
from tests.server.conftest import asking, make_app
from tidewheel.errors import NotOpen
from tidewheel.server import Api, create_api


def client_of(api: Api, key: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=api), base_url="http://tidewheel.test", headers=headers
    )


async def lived(api: Api, key: str) -> None:
    """It is ready, waits for results, and lets somebody listen."""
    async with client_of(api, key) as client:
        assert (await client.get("/readyz")).status_code == 200
        made = (await client.post("/api/jobs/enqueue", json={"task": "refuse", "delay": 60})).json()
        assert (await client.get(f"/api/jobs/{made['id']}/result?wait=0.01")).status_code == 202
        assert (await client.delete(f"/api/jobs/{made['id']}")).status_code == 200
        async with asyncio.timeout(PATIENCE):  # all jobs of the stream are over: it ends by itself
            made = (await client.post("/api/jobs/enqueue", json={"task": "refuse", "delay": 60})).json()
            await client.post(f"/api/jobs/{made['id']}/cancel")
            told = await client.get(f"/api/jobs/events?job={made['id']}")
            assert "event: end" in told.text


async def test_an_api_that_was_closed_can_be_opened_again() -> None:
    """As if it were new. In between it is closed: no late request opens the app that nobody would close."""
    app = make_app()
    async with app:
        key = (await app.access.create_key(superuser=True)).key
        api = create_api(app)
        for _ in range(2):
            await api.open()
            await lived(api, key)
            await api.close()
            async with client_of(api, key) as client:
                answer = await client.get("/api/jobs")
            assert (answer.status_code, answer.json()["code"]) == (503, "not_open")


def test_an_api_lives_on_one_event_loop_after_the_other(tmp_path: Path) -> None:
    """As test clients have it that make a loop for each request, without telling that one begins or ends."""
    app = make_app(f"sqlite:///{(tmp_path / 'jobs.db').as_posix()}")
    api = create_api(app)

    async def key() -> str:
        await api.open()
        return (await app.access.create_key(superuser=True)).key

    shown = asyncio.run(key())
    for _ in range(2):
        asyncio.run(lived(api, shown))


async def test_an_api_is_not_taken_from_a_loop_that_runs() -> None:
    """Streams and deadlines are of one loop; a second server makes an API of its own."""
    api = create_api(make_app())
    await api.open()
    with pytest.raises(NotOpen, match="another event loop"):
        await asyncio.to_thread(asyncio.run, api.open())
    await api.close()


@pytest.mark.parametrize("path", ["/api/jobs/stats", "/api/jobs/events"])
async def test_looking_up_who_asks_is_part_of_a_request(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that hangs there is a 504 in time as well, not a request that never ends."""
    async with asking(make_app(request_seconds=1)) as ask:
        root = await ask.with_key(superuser=True)

        async def hang(*_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

        monkeypatch.setattr(ask.app.store, "document", hang)
        async with asyncio.timeout(PATIENCE):
            answer = await root.get(path)
        assert (answer.status_code, answer.json()["code"]) == (504, "timed_out")


async def test_a_stream_that_cannot_begin_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing behind."""
    async with asking(make_app(request_seconds=1)) as ask:
        root = await ask.with_key(superuser=True)
        await root.get("/api/jobs/session")  # the key is known from here on

        async def hang(*_: Any, **__: Any) -> Any:
            await asyncio.Event().wait()

        monkeypatch.setattr(ask.app.store, "topics", hang)
        async with asyncio.timeout(PATIENCE):
            answer = await root.get("/api/jobs/events")
        assert (answer.status_code, answer.json()["code"]) == (504, "timed_out")
        assert not ask.api.event_broadcaster.listeners
        assert not ask.api.event_broadcaster._by_credential
