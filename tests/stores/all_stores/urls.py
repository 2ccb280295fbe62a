"""The stores every test of this directory runs on. A new one is a line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.servers.shared import empty_url, other_version
from tests.servers.sqlite import empty_database
from tidewheel.stores import create_store
from tidewheel.stores.postgres import PostgresStore
from tidewheel.stores.protocol import Store

STORES: dict[str, Callable[[Path], str]] = {
    "memory": lambda _: "memory://",
    # Without an fsync per commit: verbs are tried here, power cuts elsewhere.
    "sqlite": lambda directory: f"{empty_database(directory)}?synchronous=normal",
    "postgres": lambda _: empty_url(),
}
"""A store's URL in a directory of its own, by name; the reference first."""

PACKED = "postgres-packed"
"""A store that packs whatever it claims, not only what is claimed with many others."""

OLDEST: dict[str, Callable[[Path], str]] = (
    {} if other_version() is None else {"postgres15": lambda _: empty_url(oldest=True)}
)
"""The oldest PostgreSQL we support, where there is one; the header of a run says so where there is none."""

EVERYWHERE = {**STORES, PACKED: STORES["postgres"], **OLDEST}


def made(name: str, url: str, **options: Any) -> Store:
    """The store of this name."""
    store = create_store(url, **options)
    if name == PACKED:
        assert isinstance(store, PostgresStore)
        store._claimer.min_leased_batch = 1
    return store
