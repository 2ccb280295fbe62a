"""An app with tables of its own beside the queue, on each store that has a database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.client.handler_transactions.ledger import Ledger, ledger_of
from tests.servers.shared import empty_url
from tests.servers.sqlite import empty_database
from tidewheel import Tidewheel

URLS: dict[str, Callable[[Path], str]] = {
    "sqlite": empty_database,
    "postgres": lambda _: empty_url(),
}


@pytest.fixture(params=URLS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return URLS[request.param](tmp_path)


@pytest.fixture
async def app(url: str) -> AsyncIterator[Tidewheel]:
    """Open, with no tasks yet."""
    async with Tidewheel(url, lease=6, poll_interval=0.05) as app:
        yield app
    app.sync.close()


@pytest.fixture
async def ledger(url: str, app: Tidewheel) -> AsyncIterator[Ledger]:
    ledger = ledger_of(url)
    await ledger.make()
    yield ledger
    await ledger.drop()
