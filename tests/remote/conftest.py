"""Apps for workers elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.app.conftest import url
from tidewheel import Tidewheel

__all__ = ["url"]


@pytest.fixture
async def app(url: str) -> AsyncIterator[Tidewheel]:
    """An open app that hardly polls: whoever gets a job has been told of it."""
    async with Tidewheel(url, poll_interval=60) as app:
        yield app


@pytest.fixture
async def memory() -> AsyncIterator[Tidewheel]:
    async with Tidewheel("memory://", poll_interval=60) as app:
        yield app
