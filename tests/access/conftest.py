"""An app in memory whose time stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from windlass import Windlass
from windlass.testing.clock import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def app(clock: FrozenClock) -> AsyncIterator[Windlass]:
    async with Windlass("memory://", clock=clock) as app:
        yield app
