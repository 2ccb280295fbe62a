"""Empty databases to migrate with other people's tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.cli.conftest import project, run
from tests.cli.migration_export.tables import SCHEMA
from tests.servers.shared import shared_server
from tests.stores.postgres.stores import own_database

__all__ = ["project", "run", "url"]


@pytest.fixture(params=["sqlite", "postgresql"])
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """A database of one's own: these tools look at every schema there is."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shop.db'}"
        return
    server = shared_server()
    async with own_database(server) as name:
        yield server.url(name, schema=SCHEMA)
