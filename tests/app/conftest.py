"""An app on each store, and a hand that finishes jobs without a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.servers.shared import empty_url
from tests.servers.sqlite import empty_database
from tidewheel import Job, Tidewheel
from tidewheel.core.model import ClaimRequest, Completed, Lane, Outcome, Settlement
from tidewheel.testing.clock import FrozenClock

Finish = Callable[..., Awaitable[None]]


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory://",
    "sqlite": empty_database,
    "postgres": lambda _: empty_url(),
}


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Every store an app can be given."""
    return URLS[request.param](tmp_path)


@pytest.fixture
async def app(url: str, clock: FrozenClock) -> AsyncIterator[Tidewheel]:
    """An open app whose time stands still."""
    async with Tidewheel(url, clock=clock, poll_interval=0.05) as app:
        yield app


@pytest.fixture
def finish() -> Finish:
    """Claims a job as a worker would and ends it with an outcome (completed with null unless told)."""

    async def finish(app: Tidewheel, job: Job[Any], outcome: Outcome | None = None) -> None:
        (claimed,) = (
            await app.store.claim(
                ClaimRequest("test", (Lane(job.topic, job.task),), limit=1, lease_seconds=60)
            )
        ).jobs
        assert claimed.lease.job_id == job.id
        await app.store.mark_started([claimed.lease])
        settled = await app.store.settle([Settlement(claimed.lease, outcome or Completed(), 0.5)])
        assert settled == [True]

    return finish
