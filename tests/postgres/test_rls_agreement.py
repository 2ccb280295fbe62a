"""A random sequence of verbs gives the same answers under row-level security as in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import ClassVar

import pytest_asyncio
from hypothesis import settings

from tests.postgres.secured import Secured, TwoRoles, empty, secured
from windlass.stores import create_store
from windlass.stores.protocol import Store
from windlass.testing.agreement import StoresAgree
from windlass.testing.clock import FrozenClock


class SecuredPostgresAgrees(StoresAgree):
    """The reference, and a store whose callers are held by policies; every claim is packed."""

    # A caller cannot see that an id is taken by another tenant's job that is packed or has finished.
    enqueue_a_taken_id = None  # type: ignore[assignment]
    place: ClassVar[Secured]

    def make_stores(self, clock: FrozenClock) -> Mapping[str, Store]:
        asyncio.run(empty(self.place))
        store = TwoRoles(self.place, clock)
        store._claimer.least_packed = 1
        return {"memory": create_store("memory://", clock=clock), "secured": store}


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def _place() -> AsyncIterator[None]:
    """One schema for all examples, emptied before each."""
    async with secured() as place:
        SecuredPostgresAgrees.place = place
        yield


# Few examples: what verbs do is compared elsewhere; this one is for what policies and rights change about it.
SecuredPostgresAgrees.TestCase.settings = settings(max_examples=max(5, settings().max_examples // 10))
TestSecuredPostgresAgrees = SecuredPostgresAgrees.TestCase
