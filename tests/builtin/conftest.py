"""An app on each store, whose file tasks may write in one directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import tidewheel
from tests.app.conftest import URLS
from tidewheel import Tidewheel
from tidewheel.testing.clock import FrozenClock


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Every store an app can be given."""
    return URLS[request.param](tmp_path)


@pytest.fixture
async def everywhere(url: str, clock: FrozenClock, root: Path) -> AsyncIterator[Tidewheel]:
    """An open app on every store."""
    app = Tidewheel(url, clock=clock)
    app.include(tidewheel.builtin, roots=[root])
    async with app:
        yield app


@pytest.fixture
async def app(clock: FrozenClock, root: Path) -> AsyncIterator[Tidewheel]:
    """An open app in memory, for what is between a task and the disk."""
    app = Tidewheel("memory://", clock=clock)
    app.include(tidewheel.builtin, roots=[root])
    async with app:
        yield app
