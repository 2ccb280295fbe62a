"""Apps on every store, by a clock that the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.worker.conftest import URLS
from tidewheel import Tidewheel
from tidewheel.testing.clock import FrozenClock

START = datetime(2026, 3, 27, 12, tzinfo=UTC)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(START)


@pytest.fixture(params=URLS)
async def app(request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock) -> AsyncIterator[Tidewheel]:
    """An open app with no tasks yet."""
    async with Tidewheel(URLS[request.param](tmp_path), clock=clock, poll_interval=0.05) as app:
        yield app


@pytest.fixture
async def memory(clock: FrozenClock) -> AsyncIterator[Tidewheel]:
    """The same in memory, where what is tried is no store's affair."""
    async with Tidewheel("memory://", clock=clock, poll_interval=0.05) as app:
        yield app
