"""A site on every store that several processes can share, and a producer that knows no tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.sites import STORES, make_site
from tests.worker.worker_processes import Site
from tidewheel import Tidewheel


@pytest.fixture(params=STORES)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return make_site(request.param, tmp_path)


@pytest.fixture
async def app(site: Site) -> AsyncIterator[Tidewheel]:
    """It enqueues by name."""
    async with Tidewheel(site.url, lease=site.lease) as app:
        yield app
