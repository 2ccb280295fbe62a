"""Pytest fixtures, there as soon as Windlass is installed.

The rest of Windlass is imported by those who use one: others need not wait for it whenever they run a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.job import Job
    from windlass.testing.clock import FrozenClock


@pytest.fixture
def windlass_clock() -> FrozenClock:
    """A clock that stands still until ``windlass_clock.advance(seconds)``."""
    from windlass.testing.clock import FrozenClock

    return FrozenClock()


@pytest.fixture
def windlass_app() -> Windlass:
    """Your app, for the fixtures below: a fixture of this name in your ``conftest.py`` returns it."""
    raise pytest.UsageError(
        "the fixture windlass_app is yours to write: in conftest.py, a fixture of this name that returns the "
        "Windlass whose jobs are tested"
    )


@pytest.fixture
def windlass_in_memory(windlass_app: Windlass) -> Iterator[Windlass]:
    """The app on an empty store in memory, for the length of a test. It is open for calls that block
    (``app.sync``); a test that awaits opens it on its event loop, with ``async with windlass_in_memory``.
    """
    from windlass.testing.apps import in_memory

    with in_memory(windlass_app) as app:
        yield app


@pytest.fixture
def windlass_enqueued(windlass_app: Windlass) -> Iterator[list[Job[Any]]]:
    """The jobs that the test has enqueued so far, wherever they went."""
    from windlass.testing.apps import enqueued

    with enqueued(windlass_app) as jobs:
        yield jobs
