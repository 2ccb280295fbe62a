"""A store opened before ``fork()``: the child is told, and the parent notices nothing."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from collections.abc import Awaitable, Callable

import pytest

from tests.patience import PATIENCE
from tests.stores.postgres.stores import opened
from tidewheel.core.model import JobFilter
from tidewheel.errors import UsedAfterFork
from tidewheel.stores.postgres import PostgresStore
from tidewheel.testing.conformance.helpers import claim_from, claim_one, enqueue_one, job

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork()"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),  # of Python 3.12 on: that is the point
]


def in_child(work: Callable[[], Awaitable[None]]) -> int:
    """Run this on an event loop of a forked child; its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.events._set_running_loop(None)  # the parent's, which does not run here
            asyncio.new_event_loop().run_until_complete(asyncio.wait_for(work(), PATIENCE))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_a_forked_child_is_told_and_the_parent_goes_on(postgres_url: str) -> None:
    """Two processes on one connection would read each other's answers."""
    async with opened(postgres_url) as [store], store.wakeups(topics=["mail"]) as wakeups:
        await enqueue_one(store)
        await asyncio.gather(*(store.now() for _ in range(5)))  # several connections

        async def child() -> None:
            calls: list[Callable[[], Awaitable[object]]] = [
                store.now,
                lambda: claim_from(store),
                lambda: store.enqueue([job()]),
                lambda: store.list_jobs(JobFilter(), limit=1),
            ]
            for call in calls:
                with pytest.raises(UsedAfterFork, match="open one in each process"):
                    await call()
            await store.close()

        for _ in range(3):
            assert in_child(child) == 0
        while await wakeups.wait(0):
            pass
        await asyncio.gather(*(store.now() for _ in range(5)))
        await claim_one(store)
        async with opened(postgres_url) as [other]:
            await enqueue_one(other)
        assert await wakeups.wait(PATIENCE)


async def test_a_forked_child_may_open_a_store_of_its_own(postgres_url: str) -> None:
    """A sibling, or the same URL, works in the child, and its jobs are the parent's."""
    async with opened(postgres_url) as [store]:
        await enqueue_one(store)

        async def child() -> None:
            sibling: PostgresStore = store.sibling()
            await sibling.open()
            await enqueue_one(sibling)
            assert len((await claim_from(sibling)).jobs) == 2
            await sibling.close()

        assert in_child(child) == 0
        assert (await claim_from(store)).jobs == ()
        assert (await store.count(JobFilter())).total == 2
