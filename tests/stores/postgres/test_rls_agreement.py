"""A random sequence of verbs gives the same answers under row-level security as in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import ClassVar

import pytest
import pytest_asyncio
from hypothesis import settings

from tests.servers.warm_connections import KeptRunner
from tests.stores.postgres.row_level_security import Secured, TwoRoles, empty, secured
from tests.stores.postgres.stores import raw
from tidewheel.stores import create_store
from tidewheel.stores.protocol import Store
from tidewheel.testing.agreement import StoresAgree
from tidewheel.testing.clock import FrozenClock


class SecuredPostgresAgrees(StoresAgree):
    """The reference, and a store whose callers are held by policies; every claim is packed."""

    # A caller cannot see that an id is taken by another tenant's job that is packed or has finished.
    enqueue_a_taken_id = None  # type: ignore[assignment]
    place: ClassVar[Secured]
    kept: ClassVar[KeptRunner]

    def make_runner(self) -> asyncio.Runner:
        return self.kept.runner

    def end_runner(self, runner: asyncio.Runner) -> None:
        """Not yet: the next example goes on with it."""

    def make_stores(self, clock: FrozenClock) -> Mapping[str, Store]:
        self.kept.runner.run(self._empty())
        store = TwoRoles(self.place, clock)
        store._claimer.min_leased_batch = 1
        self.kept.warm.lend_to(store)
        self.kept.warm.lend_to(store.api)
        return {"memory": create_store("memory://", clock=clock), "secured": store}

    async def _empty(self) -> None:
        async with raw(self.place.url) as superuser:
            await empty(self.place, superuser)


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _place() -> AsyncIterator[None]:
    """One schema for all examples, emptied before each."""
    async with secured() as place:
        SecuredPostgresAgrees.place = place
        yield


@pytest.fixture(scope="module", autouse=True)
def _kept(_place: None) -> Iterator[None]:
    """One event loop for all examples, with connections that each leaves to the next."""
    SecuredPostgresAgrees.kept = KeptRunner()
    yield
    SecuredPostgresAgrees.kept.close()


# Few examples: what verbs do is compared elsewhere; this one is for what policies and rights change about it.
SecuredPostgresAgrees.TestCase.settings = settings(max_examples=max(5, settings().max_examples // 10))
TestSecuredPostgresAgrees = SecuredPostgresAgrees.TestCase
