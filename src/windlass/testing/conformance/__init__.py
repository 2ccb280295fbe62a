"""The store conformance suite: what every store must do, as pytest tests to import.

A test module of a store needs two fixtures and one import::

    import pytest
    from windlass.testing.clock import FrozenClock
    from windlass.testing.conformance import *


    @pytest.fixture
    def clock():
        return FrozenClock()


    @pytest.fixture
    async def store(clock):
        store = MyStore(clock=clock)  # must take its time from this clock
        await store.open()
        await store.migrate()
        yield store
        await store.close()

The tests are coroutines: run them with pytest-asyncio's ``asyncio_mode = "auto"``. For readable failures call
``pytest.register_assert_rewrite("windlass.testing.conformance")`` in a conftest.
"""

# ruff: noqa: F403 - a suite is imported whole

from windlass.testing.conformance.answering import *
from windlass.testing.conformance.claiming import *
from windlass.testing.conformance.clock_steps import *
from windlass.testing.conformance.conditions import *
from windlass.testing.conformance.contention import *
from windlass.testing.conformance.depending import *
from windlass.testing.conformance.documents import *
from windlass.testing.conformance.due import *
from windlass.testing.conformance.enqueueing import *
from windlass.testing.conformance.held_back import *
from windlass.testing.conformance.hints import *
from windlass.testing.conformance.keys import *
from windlass.testing.conformance.leases import *
from windlass.testing.conformance.limits import *
from windlass.testing.conformance.managing import *
from windlass.testing.conformance.moving import *
from windlass.testing.conformance.pruning import *
from windlass.testing.conformance.pulling import *
from windlass.testing.conformance.reading import *
from windlass.testing.conformance.replacing import *
from windlass.testing.conformance.rescuing import *
from windlass.testing.conformance.room import *
from windlass.testing.conformance.row_filters import *
from windlass.testing.conformance.settling import *
from windlass.testing.conformance.statistics import *
from windlass.testing.conformance.steps import *
from windlass.testing.conformance.suspects import *
from windlass.testing.conformance.take_back import *
from windlass.testing.conformance.tenants import *
from windlass.testing.conformance.together import *
from windlass.testing.conformance.topics import *
from windlass.testing.conformance.transactions import *
from windlass.testing.conformance.workers import *
