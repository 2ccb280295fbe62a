"""Apps whose tasks the worker tests run, on every store a single process can use."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.servers.shared import empty_url
from tests.servers.sqlite import empty_database
from tidewheel import Tidewheel

URLS: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory://",
    "sqlite": empty_database,
    "postgres": lambda _: empty_url(),
}


@pytest.fixture(params=URLS)
async def app(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tidewheel]:
    """An open app with no tasks yet."""
    async with Tidewheel(URLS[request.param](tmp_path), lease=2, poll_interval=0.05) as app:
        yield app
