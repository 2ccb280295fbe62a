"""Pytest fixtures, there as soon as Tidewheel is installed.

The rest of Tidewheel is imported by those who use one: others need not wait for it whenever they run a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.client.job_handle import Job
    from tidewheel.testing.clock import FrozenClock


@pytest.fixture
def tidewheel_clock() -> FrozenClock:
    """A clock that stands still until ``tidewheel_clock.advance(seconds)``."""
    from tidewheel.testing.clock import FrozenClock

    return FrozenClock()


@pytest.fixture
def tidewheel_app() -> Tidewheel:
    """Your app, for the fixtures below: a fixture of this name in your ``conftest.py`` returns it."""
    raise pytest.UsageError(
        "the fixture tidewheel_app is yours to write: in conftest.py, a fixture of this name that returns "
        "the Tidewheel whose jobs are tested"
    )


@pytest.fixture
def tidewheel_in_memory(tidewheel_app: Tidewheel) -> Iterator[Tidewheel]:
    """The app on an empty store in memory, for the length of a test. It is open for calls that block
    (``app.sync``); a test that awaits opens it on its event loop, with ``async with tidewheel_in_memory``.
    """
    from tidewheel.testing.app_helpers import in_memory

    with in_memory(tidewheel_app) as app:
        yield app


@pytest.fixture
def tidewheel_enqueued(tidewheel_app: Tidewheel) -> Iterator[list[Job[Any]]]:
    """The jobs that the test has enqueued so far, wherever they went."""
    from tidewheel.testing.app_helpers import enqueued

    with enqueued(tidewheel_app) as jobs:
        yield jobs
