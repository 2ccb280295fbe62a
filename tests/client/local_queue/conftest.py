"""An app with a small lane, on a store that nothing of it ever touches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tidewheel import Tidewheel


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[Tidewheel]:
    """An open app on SQLite with no tasks yet."""
    app = Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}", shutdown_grace=0.2, poll_interval=0.05)
    async with app:
        yield app
