"""One server for each module of tests, with whatever app a test wants it to serve."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.stores.http.excluded_tests import NAMES
from tests.stores.http.http_server import Served, serving

# Before the suite is imported: its assertions then say what was compared, like those of any test module.
pytest.register_assert_rewrite("tidewheel.testing.conformance")

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of a module share an event loop, which the server cannot leave; some are not for it."""
    unsuited = [item for item in items if item.path == HERE / "test_conformance.py" and item.name in NAMES]
    if unsuited:
        config.hook.pytest_deselected(items=unsuited)
        items[:] = [item for item in items if item not in unsuited]
    for item in items:
        if item.path.is_relative_to(HERE) and "served" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    async with serving() as served:
        yield served
