"""A random sequence of verbs gives the same answers on every store.

The examples are the same on every run; ``--hypothesis-profile=long`` searches for new ones.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.stores.urls import STORES
from windlass.stores import create_store
from windlass.stores.protocol import Store
from windlass.testing.agreement import StoresAgree
from windlass.testing.clock import FrozenClock


class OurStoresAgree(StoresAgree):
    """Every store Windlass ships."""

    def make_stores(self, clock: FrozenClock) -> Mapping[str, Store]:
        self.directory = Path(tempfile.mkdtemp(prefix="windlass-agreement-"))
        return {name: create_store(url(self.directory), clock=clock) for name, url in STORES.items()}

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)


TestStoresAgree = OurStoresAgree.TestCase
