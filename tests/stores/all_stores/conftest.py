"""Every test here runs on every store of ``urls``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.servers.warm_connections import WarmConnections, warm_connections
from tests.stores.all_stores.claim_detection import claims
from tests.stores.all_stores.urls import EVERYWHERE, PACKED, made
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.postgres import job_queries as postgres_queries
from tidewheel.stores.protocol import Store
from tidewheel.stores.sqlite import job_queries as sqlite_queries
from tidewheel.testing.clock import FrozenClock

# Before the suite is imported: its assertions then say what was compared, like those of any test module.
pytest.register_assert_rewrite("tidewheel.testing.conformance", "tidewheel.testing.agreement")

HERE = "tests/stores/all_stores/"

MakeStore = Callable[[StoreLimits], Awaitable[Store]]


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(scope="module", autouse=True)
def searches_have_time() -> Iterator[None]:
    """They are compared by what they find; a busy machine may stand still for longer than they may take."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite_queries, postgres_queries):
            patch.setattr(module, "SEARCH_SECONDS", 60.0)
            patch.setattr(module, "COLUMN_SEARCH_SECONDS", 60.0)
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a module share an event loop, which connections cannot leave."""
    for item in items:
        if item.nodeid.startswith(HERE) and "make_store" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


def never_claimed(store: PostgresStore) -> None:
    assert not store._claimer._claim_count, (
        "the test claims, and its code does not tell: see claim_detection.py"
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm() -> AsyncIterator[WarmConnections]:
    async with warm_connections() as warm:
        yield warm


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """On every store, and on the one that packs what is claimed where something is."""
    if "make_store" in metafunc.fixturenames:
        names = [name for name in EVERYWHERE if name != PACKED or claims(metafunc.function)]
        metafunc.parametrize("make_store", names, indirect=True)


@pytest_asyncio.fixture(loop_scope="module")
async def make_store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock, warm: WarmConnections
) -> AsyncIterator[MakeStore]:
    """An open, migrated store with these limits, closed after the test."""
    claiming = claims(request.function)
    async with AsyncExitStack() as stack:

        async def make(limits: StoreLimits) -> Store:
            name: str = request.param
            store = made(name, EVERYWHERE[name](tmp_path), clock=clock, limits=limits)
            warm.lend_to(store)
            await store.open()
            stack.push_async_callback(store.close)
            await store.migrate()
            if isinstance(store, PostgresStore) and not claiming:
                stack.callback(never_claimed, store)
            return store

        yield make


@pytest_asyncio.fixture(loop_scope="module")
async def store(make_store: MakeStore) -> Store:
    return await make_store(StoreLimits())
