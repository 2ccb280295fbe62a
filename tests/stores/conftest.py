"""Every test here runs on every store of ``urls``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.stores.urls import EVERYWHERE, made
from windlass.stores.protocol import Store, StoreLimits
from windlass.testing.clock import FrozenClock

# Before the suite is imported: its assertions then say what was compared, like those of any test module.
pytest.register_assert_rewrite("windlass.testing.conformance", "windlass.testing.agreement")

MakeStore = Callable[[StoreLimits], Awaitable[Store]]


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=EVERYWHERE)
async def make_store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock
) -> AsyncIterator[MakeStore]:
    """An open, migrated store with these limits, closed after the test."""
    async with AsyncExitStack() as stack:

        async def make(limits: StoreLimits) -> Store:
            name: str = request.param
            store = made(name, EVERYWHERE[name](tmp_path), clock=clock, limits=limits)
            await store.open()
            stack.push_async_callback(store.close)
            await store.migrate()
            return store

        yield make


@pytest.fixture
async def store(make_store: MakeStore) -> Store:
    return await make_store(StoreLimits())
