"""An app in memory whose time stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from argon2 import PasswordHasher

from tidewheel import Tidewheel
from tidewheel.access import passwords
from tidewheel.testing.clock import FrozenClock


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def app(clock: FrozenClock) -> AsyncIterator[Tidewheel]:
    async with Tidewheel("memory://", clock=clock) as app:
        yield app


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A hash that takes no time; how slow the real one is, is argon2's business."""
    quick = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    monkeypatch.setattr(passwords, "_hasher", lambda: quick)
    passwords._dummy_hash.cache_clear()
    yield
    passwords._dummy_hash.cache_clear()
