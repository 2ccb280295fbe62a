"""Workers hear of jobs that were committed in somebody else's transaction, and do not hear of others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from tests.client.external_transactions.conftest import Place
from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.stores.protocol import Wakeups

QUIET_SECONDS = 0.3


@asynccontextmanager
async def listening(place: Place) -> AsyncIterator[Wakeups]:
    """A process that waits for jobs, as a worker does: by nothing but hints."""
    async with Tidewheel(place.app.url) as app, app.store.wakeups(topics={"greet"}) as wakeups:
        yield wakeups


async def woken(wakeups: Wakeups, seconds: float = PATIENCE) -> bool:
    return await wakeups.wait(seconds)


async def test_on_postgresql_a_commit_wakes_and_a_rollback_does_not(postgres_place: Place) -> None:
    """The hint comes with the commit itself, and never before it."""
    greet, _ = postgres_place.greeting()
    connection = psycopg.connect(postgres_place.where)
    async with listening(postgres_place) as wakeups:
        greet.using(connection).enqueue(name="Ada")
        assert not await woken(wakeups, QUIET_SECONDS)
        connection.rollback()
        assert not await woken(wakeups, QUIET_SECONDS)
        greet.using(connection).enqueue(name="Ada")
        connection.commit()
        assert await woken(wakeups)
    connection.close()


async def test_on_postgresql_who_leaves_the_telling_to_another_is_told_of_too(postgres_place: Place) -> None:
    """Only one transaction at a time says NOTIFY; it may be rolled back, and the others commit."""
    greet, _ = postgres_place.greeting()
    first, second = (psycopg.connect(postgres_place.where) for _ in range(2))
    async with listening(postgres_place) as wakeups:
        greet.using(first).enqueue(name="Ada")
        greet.using(second).enqueue(name="Grace")
        first.rollback()
        assert not await woken(wakeups, QUIET_SECONDS)
        second.commit()
        assert await woken(wakeups)
    first.close()
    second.close()


async def test_on_postgresql_a_process_that_has_nothing_open_tells_as_well(postgres_place: Place) -> None:
    """Its first such transaction opens what is needed, in the background."""
    stranger = Tidewheel(postgres_place.app.url)
    first, second = (psycopg.connect(postgres_place.where) for _ in range(2))
    async with listening(postgres_place) as wakeups:
        stranger.enqueue("greet", {"name": "Ada"}, using=first)
        stranger.enqueue("greet", {"name": "Grace"}, using=second)
        first.rollback()
        second.commit()
        assert await woken(wakeups)
    await asyncio.to_thread(stranger.sync.close)
    first.close()
    second.close()


async def test_on_sqlite_a_worker_wakes_up_and_waits_for_the_commit(sqlite_place: Place) -> None:
    """The doorbell rings at once; whoever wakes up needs the write lock, which is the caller's until then."""
    greet, _ = sqlite_place.greeting()
    connection = sqlite3.connect(sqlite_place.where)
    async with listening(sqlite_place) as wakeups:
        greet.using(connection).enqueue(name="Ada")
        assert await woken(wakeups)
        connection.commit()
    connection.close()


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
async def test_a_job_is_run_right_after_the_commit(request: pytest.FixtureRequest, database: str) -> None:
    """By a worker that would look by itself once in a minute."""
    place: Place = request.getfixturevalue(f"{database}_place")
    app = Tidewheel(place.app.url, poll_interval=60)
    ran = threading.Event()

    @app.task
    def notice(name: str) -> None:
        assert name == "Ada"
        ran.set()

    connection = sqlite3.connect(place.where) if database == "sqlite" else psycopg.connect(place.where)
    with app.worker_thread(topics=["notice"]):
        notice.using(connection).enqueue(name="Ada")
        connection.commit()
        assert await asyncio.to_thread(ran.wait, PATIENCE)
    connection.close()
