"""A random sequence of verbs gives the same answers on every store.

The examples are the same on every run; ``--hypothesis-profile=long`` searches for new ones.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings

from tests.servers.shared import recycle
from tests.servers.warm_connections import KeptRunner
from tests.stores.all_stores.urls import OLDEST, PACKED, STORES, made
from tidewheel.stores.protocol import Store
from tidewheel.testing.agreement import StoresAgree
from tidewheel.testing.clock import FrozenClock


class OurStoresAgree(StoresAgree):
    """Every store Tidewheel ships."""

    urls: Mapping[str, Callable[[Path], str]] = STORES
    kept: ClassVar[KeptRunner]

    def make_runner(self) -> asyncio.Runner:
        return self.kept.runner

    def end_runner(self, runner: asyncio.Runner) -> None:
        """Not yet: the next example goes on with it."""

    def make_stores(self, clock: FrozenClock) -> Mapping[str, Store]:
        self.directory = Path(tempfile.mkdtemp(prefix="tidewheel-agreement-"))
        stores = {name: made(name, url(self.directory), clock=clock) for name, url in self.urls.items()}
        for store in stores.values():
            self.kept.warm.lend_to(store)
        return stores

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
            recycle()


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Iterator[None]:
    """One event loop for all examples, with connections that each leaves to the next."""
    OurStoresAgree.kept = KeptRunner()
    yield
    OurStoresAgree.kept.close()


class OldestPostgresAgrees(OurStoresAgree):
    """The reference and the oldest PostgreSQL, which has not everything the newest has."""

    urls: Mapping[str, Callable[[Path], str]] = {"memory": STORES["memory"], **OLDEST}


class PackedPostgresAgrees(OurStoresAgree):
    """The reference and jobs that share rows, which elsewhere only those do that are claimed with many."""

    urls: Mapping[str, Callable[[Path], str]] = {"memory": STORES["memory"], PACKED: STORES["postgres"]}


class OurStoresAgreeAtLength(OurStoresAgree):
    """The same with more examples."""


# An example asks all stores, one of them a server, up to sixty things: some seconds' worth in the first tier,
# a minute's in the extended one, and any number with the long profile.
OurStoresAgree.TestCase.settings = settings(max_examples=max(10, settings().max_examples // 6))
TestStoresAgree = OurStoresAgree.TestCase
OurStoresAgreeAtLength.TestCase.settings = settings(max_examples=max(10, settings().max_examples * 7 // 10))
TestStoresAgreeAtLength = pytest.mark.extended(OurStoresAgreeAtLength.TestCase)
PackedPostgresAgrees.TestCase.settings = settings(max_examples=max(10, settings().max_examples // 3))
TestPackedPostgresAgrees = pytest.mark.extended(PackedPostgresAgrees.TestCase)
# Fewer examples: what this one can find that the other cannot is SQL the old server understands differently.
OldestPostgresAgrees.TestCase.settings = settings(max_examples=max(10, settings().max_examples // 5))
TestOldestPostgresAgrees = pytest.mark.extended(
    pytest.mark.skipif(not OLDEST, reason="the header says how to install it")(OldestPostgresAgrees.TestCase)
)
