"""Whether a server says that it cannot do its work, and that it can again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.conftest import asking, make_app
from tidewheel.server.routes import status_routes


async def test_a_server_whose_store_is_gone_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file taken away: alive, but not ready, and requests are 503; put back: as if nothing had been."""
    monkeypatch.setattr(status_routes, "READY_CACHE_SECONDS", 0.0)
    database = tmp_path / "jobs.db"
    async with asking(make_app(f"sqlite:///{database.as_posix()}")) as ask:
        client = await ask.with_key(superuser=True)
        assert (await client.get("/readyz")).status_code == 200
        files = [path for path in tmp_path.iterdir() if path.name.startswith("jobs.db")]
        away = tmp_path / "away"
        away.mkdir()
        for path in files:
            path.rename(away / path.name)
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["code"]) == (503, "store_unavailable")
        assert str(tmp_path) not in ready.text
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.post("/api/jobs/enqueue", json={"task": "refuse"})).status_code == 503
        for path in files:
            (away / path.name).rename(path)
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.post("/api/jobs/enqueue", json={"task": "refuse"})).status_code == 201


async def test_a_store_that_does_not_answer_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a moment of waiting, and one question at a time whoever asks."""
    monkeypatch.setattr(status_routes, "READY_TIMEOUT_SECONDS", 0.05)
    asked = 0

    async def silent(*_: object, **__: object) -> None:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()

    async with asking(make_app()) as ask:
        client = ask.client()
        monkeypatch.setattr(ask.app.store, "states", silent)
        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(20)))
        assert {answer.status_code for answer in answers} == {503}
        assert asked == 1
