"""The store conformance suite: what every store must do, as pytest tests to import.

A test module of a store needs two fixtures and one import::

    import pytest
    from tidewheel.testing.clock import FrozenClock
    from tidewheel.testing.conformance import *


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
``pytest.register_assert_rewrite("tidewheel.testing.conformance")`` in a conftest.
"""

# ruff: noqa: F403 - a suite is imported whole

from tidewheel.testing.conformance.answering import *
from tidewheel.testing.conformance.claiming import *
from tidewheel.testing.conformance.clock_steps import *
from tidewheel.testing.conformance.conditions import *
from tidewheel.testing.conformance.contention import *
from tidewheel.testing.conformance.depending import *
from tidewheel.testing.conformance.documents import *
from tidewheel.testing.conformance.due import *
from tidewheel.testing.conformance.enqueueing import *
from tidewheel.testing.conformance.held_back import *
from tidewheel.testing.conformance.hints import *
from tidewheel.testing.conformance.keys import *
from tidewheel.testing.conformance.leases import *
from tidewheel.testing.conformance.limits import *
from tidewheel.testing.conformance.managing import *
from tidewheel.testing.conformance.moving import *
from tidewheel.testing.conformance.pruning import *
from tidewheel.testing.conformance.pulling import *
from tidewheel.testing.conformance.reading import *
from tidewheel.testing.conformance.replacing import *
from tidewheel.testing.conformance.rescuing import *
from tidewheel.testing.conformance.room import *
from tidewheel.testing.conformance.row_filters import *
from tidewheel.testing.conformance.settling import *
from tidewheel.testing.conformance.statistics import *
from tidewheel.testing.conformance.steps import *
from tidewheel.testing.conformance.suspects import *
from tidewheel.testing.conformance.take_back import *
from tidewheel.testing.conformance.tenants import *
from tidewheel.testing.conformance.together import *
from tidewheel.testing.conformance.topics import *
from tidewheel.testing.conformance.transactions import *
from tidewheel.testing.conformance.workers import *
