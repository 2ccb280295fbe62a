"""One warm process to fork from, for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.sqlite.fork_server import Nursery
from tests.faults.sqlite.fork_server import nursery as a_nursery


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with a_nursery() as running:
        yield running
