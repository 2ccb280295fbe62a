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

from tidewheel.testing.conformance.admin import *
from tidewheel.testing.conformance.claims import *
from tidewheel.testing.conformance.dependencies import *
from tidewheel.testing.conformance.documents import *
from tidewheel.testing.conformance.enqueue import *
from tidewheel.testing.conformance.handler_transaction import *
from tidewheel.testing.conformance.job_queries import *
from tidewheel.testing.conformance.leases import *
from tidewheel.testing.conformance.maintenance import *
from tidewheel.testing.conformance.poison_jobs import *
from tidewheel.testing.conformance.pull import *
from tidewheel.testing.conformance.reports import *
from tidewheel.testing.conformance.row_filters import *
from tidewheel.testing.conformance.settlements import *
from tidewheel.testing.conformance.statistics import *
from tidewheel.testing.conformance.steps import *
from tidewheel.testing.conformance.tenants import *
from tidewheel.testing.conformance.topic_limits import *
from tidewheel.testing.conformance.transfer import *
from tidewheel.testing.conformance.wakeups import *
from tidewheel.testing.conformance.worker_registry import *
