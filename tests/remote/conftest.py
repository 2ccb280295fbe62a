"""Apps for workers elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.app.conftest import url
from windlass import Windlass

__all__ = ["url"]


@pytest.fixture
async def app(url: str) -> AsyncIterator[Windlass]:
    """An open app that hardly polls: whoever gets a job has been told of it."""
    async with Windlass(url, poll_interval=60) as app:
        yield app


@pytest.fixture
async def memory() -> AsyncIterator[Windlass]:
    async with Windlass("memory://", poll_interval=60) as app:
        yield app
