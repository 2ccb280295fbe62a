"""Asking for jobs from elsewhere, and what reaches the store of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.core.model import Claim, Claimed, ClaimRequest, Lane
from tidewheel.remote.dispatcher import Grant


def wish(*topics: str, worker: str = "elsewhere", limit: int = 1, **more: Any) -> ClaimRequest:
    lanes = tuple(Lane(topic) for topic in topics)
    return ClaimRequest(worker=worker, lanes=lanes, limit=limit, lease_seconds=60, **more)


def reserve(
    app: Tidewheel, request: ClaimRequest, seconds: float = PATIENCE, name: str | None = None
) -> asyncio.Task[tuple[Grant, bool]]:
    return asyncio.create_task(app.remote.reserve(request, seconds, name))


async def jobs_of(task: asyncio.Task[tuple[Grant, bool]]) -> tuple[Claimed, ...]:
    grant, _ = await asyncio.wait_for(task, PATIENCE)
    return grant.jobs


async def standing(app: Tidewheel, number: int) -> None:
    """Until so many wait, and nothing is left to be looked for."""
    while app.remote.waiting < number:
        await asyncio.sleep(0)
    lines = app.remote._service.dispatcher._queues
    quiet = 0
    while quiet < 3:  # in a row: a line is looked at once more when its hints can be heard
        settled = all(line.subscription is not None and not line.needs_claim for line in lines.values())
        quiet = quiet + 1 if settled else 0
        await asyncio.sleep(0.002)


class Claims:
    """Counts the claims that reach the store, and holds them back when told to."""

    def __init__(self, app: Tidewheel, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests: list[ClaimRequest] = []
        self.through = asyncio.Event()
        self.through.set()
        self.sent = asyncio.Event()
        self.granted = asyncio.Event()
        self.answered = asyncio.Event()
        self.answered.set()
        self.failure: Exception | None = None
        original = app.store.claim

        async def claim(request: ClaimRequest) -> Claim:
            self.requests.append(request)
            self.sent.set()
            await self.through.wait()
            if self.failure is not None:
                raise self.failure
            answer = await original(request)
            self.granted.set()
            await self.answered.wait()
            return answer

        monkeypatch.setattr(app.store, "claim", claim)
