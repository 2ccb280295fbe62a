"""The conformance suite over HTTP: client, socket, server, and a memory store behind it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.patience import PATIENCE
from tests.stores.http.conformance_store import StoreWithServer
from tests.stores.http.excluded_tests import NAMES
from tests.stores.http.http_server import Served, key_of
from tidewheel import Tidewheel
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.protocol import Store
from tidewheel.testing import conformance
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance import *  # noqa: F403
from tidewheel.worker import store_maintenance

TASKS = ("send", "digest", "t", "u", "x", "y", "z", "calm")
"""Known to the server by name. None of them is a topic of the suite: a job for the topic would be one for the
task there."""


def topics_of_the_suite() -> set[str]:
    """Whatever looks like one in its sources."""
    found: set[str] = set()
    for path in Path(conformance.__file__).parent.glob("*.py"):
        found |= set(re.findall(r'"([A-Za-z0-9_-]{1,20})"', path.read_text("utf-8")))
    # Scenes of the suite are numbered, those of other stores in the same process among them.
    found |= {f"topic-{number}" for number in range(500)} | {f"lane-{number}" for number in range(150)}
    found |= {f"topic-{number}-head" for number in range(30)}
    return found - set(TASKS)


TOPICS = tuple(sorted(topics_of_the_suite()))[:1000]

MakeStore = Callable[[StoreLimits], Awaitable[Store]]


def make_app(clock: FrozenClock, limits: StoreLimits) -> Tidewheel:
    """What a server has to know of jobs to let them in: their tasks by name, or their topics."""
    app = Tidewheel(
        "memory://",
        clock=clock,
        allowed_topics=TOPICS,
        max_topics=limits.max_topics,
        max_jobs_per_topic=limits.max_jobs_per_topic,
        redact=(),
        max_payload_bytes=1_000_000,
        max_result_bytes=1_000_000,
        poll_interval=PATIENCE,
        retention=None,
    )
    for name in TASKS:

        @app.task(name=name, topic="nobody-enqueues-here", max_attempts=None, timeout=None)
        async def anything(**payload: Any) -> None:
            """Takes whatever comes."""

    return app


def test_what_is_left_out_is_there() -> None:
    """A test that was renamed must not be left out, or be missed, by its old name."""
    assert {name.partition("[")[0] for name in NAMES} <= set(dir(conformance))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(autouse=True)
def only_the_suite_rescues(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server rescues twice a second in real time, between two looks of a test on a slow machine."""
    monkeypatch.setattr(store_maintenance, "RESCUE_INTERVAL_SECONDS", PATIENCE)


@pytest_asyncio.fixture(loop_scope="module")
async def make_store(served: Served, clock: FrozenClock) -> AsyncIterator[MakeStore]:
    async with AsyncExitStack() as stack:

        async def make(limits: StoreLimits) -> Store:
            app = make_app(clock, limits)
            await stack.enter_async_context(served.api_of(app))
            store = StoreWithServer(served.url, token=await key_of(app))
            store.server, store.tasks, store.allowed = app.store, frozenset(TASKS), frozenset(TOPICS)
            await store.open()
            stack.push_async_callback(store.close)
            return store

        yield make


@pytest_asyncio.fixture(loop_scope="module")
async def store(make_store: MakeStore) -> Store:
    return await make_store(StoreLimits())
