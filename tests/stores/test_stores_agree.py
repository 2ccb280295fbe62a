"""A random sequence of verbs gives the same answers on every store.

The examples are the same on every run; ``--hypothesis-profile=long`` searches for new ones.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from tests.servers.shared import recycle
from tests.stores.urls import OLDEST, PACKED, STORES, made
from windlass.stores.protocol import Store
from windlass.testing.agreement import StoresAgree
from windlass.testing.clock import FrozenClock


class OurStoresAgree(StoresAgree):
    """Every store Windlass ships."""

    urls: Mapping[str, Callable[[Path], str]] = STORES

    def make_stores(self, clock: FrozenClock) -> Mapping[str, Store]:
        self.directory = Path(tempfile.mkdtemp(prefix="windlass-agreement-"))
        return {name: made(name, url(self.directory), clock=clock) for name, url in self.urls.items()}

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
            recycle()


class OldestPostgresAgrees(OurStoresAgree):
    """The reference and the oldest PostgreSQL, which has not everything the newest has."""

    urls: Mapping[str, Callable[[Path], str]] = {"memory": STORES["memory"], **OLDEST}


class PackedPostgresAgrees(OurStoresAgree):
    """The reference and jobs that share rows, which elsewhere only those do that are claimed with many."""

    urls: Mapping[str, Callable[[Path], str]] = {"memory": STORES["memory"], PACKED: STORES["postgres"]}


# An example asks all stores, one of them a server, up to sixty things: a minute's worth on every run, and as
# many as anybody likes with the long profile.
OurStoresAgree.TestCase.settings = settings(max_examples=max(10, settings().max_examples * 7 // 10))
TestStoresAgree = OurStoresAgree.TestCase
PackedPostgresAgrees.TestCase.settings = settings(max_examples=max(10, settings().max_examples // 3))
TestPackedPostgresAgrees = PackedPostgresAgrees.TestCase
# Fewer examples: what this one can find that the other cannot is SQL the old server understands differently.
OldestPostgresAgrees.TestCase.settings = settings(max_examples=max(10, settings().max_examples // 5))
TestOldestPostgresAgrees = pytest.mark.skipif(not OLDEST, reason="the header says how to install it")(
    OldestPostgresAgrees.TestCase
)
