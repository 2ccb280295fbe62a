"""The conformance suite under row-level security: callers as the api role, workers as the worker role."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.postgres.secured import Secured, TwoRoles, empty, secured
from windlass.stores.protocol import Store
from windlass.testing.clock import FrozenClock
from windlass.testing.conformance import *  # noqa: F403


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Secured]:
    async with secured() as place:
        yield place


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
async def store(place: Secured, clock: FrozenClock) -> AsyncIterator[Store]:
    await empty(place)
    store = TwoRoles(place, clock)
    await store.open()
    yield store
    assert await store.check() == []
    await store.close()
