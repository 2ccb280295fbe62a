"""Pytest fixtures, there as soon as Windlass is installed.

Kept free of imports that cost: pytest loads this in every project that has Windlass, used or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from windlass.testing.clock import FrozenClock


@pytest.fixture
def windlass_clock() -> FrozenClock:
    """A clock that stands still until ``windlass_clock.advance(seconds)``."""
    from windlass.testing.clock import FrozenClock

    return FrozenClock()
