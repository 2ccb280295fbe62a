"""Stores on a file of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidewheel.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    """Open and migrated."""
    store = SqliteStore(f"sqlite:///{path}?busy_timeout=5")
    await store.open()
    await store.migrate()
    yield store
    await store.close()
