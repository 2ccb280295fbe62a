"""The conformance suite under row-level security: callers as the api role, workers as the worker role."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.servers.warm_connections import WarmConnections, warm_connections
from tests.stores.postgres.row_level_security import Secured, TwoRoles, empty, secured
from tests.stores.postgres.stores import raw
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance import *  # noqa: F403
from tidewheel.testing.conformance import wakeups

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place() -> AsyncIterator[Secured]:
    async with secured() as place:
        yield place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def superuser(place: Secured) -> AsyncIterator[Any]:
    async with raw(place.url) as connection:
        yield connection


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm() -> AsyncIterator[WarmConnections]:
    async with warm_connections() as warm:
        yield warm


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest_asyncio.fixture(loop_scope="module")
async def store(
    place: Secured, superuser: Any, clock: FrozenClock, warm: WarmConnections
) -> AsyncIterator[Store]:
    await empty(place, superuser)
    store = TwoRoles(place, clock)
    warm.lend_to(store)
    warm.lend_to(store.api)
    await store.open()
    yield store
    assert await store.check() == []
    await store.close()


@pytest.mark.parametrize(  # type: ignore[no-redef] # in the place of the imported one
    "ending", ["completed", "failed", "snoozed", "limits", "removed"]
)
async def test_room_is_hinted_to_those_who_wait(store: Store, ending: str) -> None:
    """But not by a caller who cancels or deletes: who sees one tenant sees no limits, and workers poll."""
    await wakeups.test_room_is_hinted_to_those_who_wait(store, ending)
