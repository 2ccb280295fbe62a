"""A thousand random operations of each of two tenants: neither can tell that the other exists (promise 7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.stores.all_stores.urls import STORES
from tests.tenancy.tenant_pair import _OPERATIONS, Pair
from tidewheel import Tidewheel
from tidewheel.client import job_actions
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock

OPERATIONS = 1000
SEED = 7


@asynccontextmanager
async def _pair(url: str, seed: int = SEED) -> AsyncIterator[Pair]:
    clock = FrozenClock()
    apps = [Tidewheel(place, clock=clock) for place in (url, "memory://", "memory://")]
    for app in apps:
        app.task(name="send")(_send)
    async with apps[0], apps[1], apps[2]:
        yield Pair(apps[0], (apps[1], apps[2]), clock, seed)


def _send(word: str) -> str:
    return word


@pytest.mark.parametrize("name", STORES)
async def test_neither_tenant_can_tell_that_the_other_exists(name: str, tmp_path: Path) -> None:
    """Every answer, error and count is what it would be in a store of the tenant's own: same keys, same
    topics, each other's ids and handles notwithstanding.
    """
    async with _pair(STORES[name](tmp_path)) as pair:
        await pair.run(OPERATIONS)
        assert pair.done.keys() == {operation.__name__ for operation in _OPERATIONS}
        for tenant in pair.tenants:
            everything = await pair.shared.count(tenant=tenant.context.tenant)
            assert everything == await tenant.alone.app.count()
        both = [(await tenant.alone.app.count()).total for tenant in pair.tenants]
        assert (await pair.shared.count()).total == sum(both)
        assert await pair.shared.check() == []


async def test_a_leak_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is not blind: an app that forgets the tenant of a single verb is caught."""
    original = job_actions.get_visible_job

    async def forgetful(store: Store, job_id: object, tenant: str | None) -> object:
        del tenant
        return await original(store, job_id, None)  # type: ignore[arg-type]  # a UUID

    monkeypatch.setattr(job_actions, "get_visible_job", forgetful)
    async with _pair("memory://") as pair:
        with pytest.raises(AssertionError, match="would be told otherwise"):
            await pair.run(OPERATIONS)
