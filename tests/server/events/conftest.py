from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.server.events.event_server import Served, served
from tidewheel import Tidewheel


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    """A server on a store in memory."""
    async with Tidewheel("memory://") as app, served(app) as running:
        yield running
