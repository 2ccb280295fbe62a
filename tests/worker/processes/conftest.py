"""The app of ``handlers`` on the stores, and a worker that stays warm for a module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.worker.conftest import URLS
from tests.worker.processes import handlers
from tidewheel import Tidewheel
from tidewheel.testing import in_memory
from tidewheel.worker.active_jobs import StopReason
from tidewheel.worker.processes import handler_process


@pytest.fixture(params=["memory", "sqlite"])
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    """Open on an empty store."""
    with handlers.app.on_store(URLS[request.param](tmp_path)):
        async with handlers.app as app:
            yield app


@pytest.fixture
async def memory_app() -> AsyncIterator[Tidewheel]:
    """For what no store can make a difference to: starting interpreters costs time."""
    async with in_memory(handlers.app) as app:
        yield app


@pytest.fixture(scope="module")
def warm_worker() -> Iterator[Tidewheel]:
    """A worker on a thread of its own, in a program that does something else."""
    with handlers.app.on_store("memory://"), handlers.app.worker_thread(concurrency=4):
        yield handlers.app


@pytest.fixture
async def warm(warm_worker: Tidewheel) -> AsyncIterator[Tidewheel]:
    """The app, open on the test's event loop, with that worker at work."""
    async with warm_worker as app:
        yield app


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Handlers have a tenth of a second to obey, and another one to clean up."""
    for why in (StopReason.CANCEL, StopReason.TIMEOUT):
        monkeypatch.setitem(handler_process.STOP_GRACE_SECONDS, why, (0.1, 0.1))


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """A file by which a handler says that it has started."""
    return tmp_path / "mark"
