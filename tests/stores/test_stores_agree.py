"""A random sequence of verbs gives the same answers on every store."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import settings

from windlass.stores import create_store
from windlass.stores.protocol import Store
from windlass.testing.agreement import StoresAgree
from windlass.testing.clock import FrozenClock

# Not durable, because nothing is switched off here; the verbs are what is compared.
STORES = {"memory": "memory://", "sqlite": "sqlite:///{directory}/jobs.db?synchronous=normal"}


class OurStoresAgree(StoresAgree):
    """Every store Windlass ships."""

    def make_stores(self, clock: FrozenClock) -> Mapping[str, Store]:
        self.directory = Path(tempfile.mkdtemp(prefix="windlass-agreement-"))
        return {
            name: create_store(url.format(directory=self.directory.as_posix()), clock=clock)
            for name, url in STORES.items()
        }

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


TestStoresAgree = OurStoresAgree.TestCase
if settings.get_current_profile_name() == "windlass":
    TestStoresAgree.settings = settings(max_examples=110, stateful_step_count=60)
