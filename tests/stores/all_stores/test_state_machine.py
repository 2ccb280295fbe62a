"""The machine that compares stores sees a store that differs, also where it looks less often."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tidewheel.core.model import NewDocument, WorkerRecord
from tidewheel.stores import create_store
from tidewheel.stores.protocol import Store
from tidewheel.testing.agreement import StoresAgree
from tidewheel.testing.clock import FrozenClock

Twist = Callable[[Store], None]


def a_verb_that_reads_and_writes(store: Store) -> None:
    """``stats`` also writes a document, which no verb tells but the one that lists them."""
    stats = store.stats

    async def twisted(**options: Any) -> Any:
        answer = await stats(**options)
        await store.write_documents([NewDocument("note", "planted", b"{}")])
        return answer

    store.stats = twisted  # type: ignore[method-assign]


def a_verb_that_does_nothing(store: Store) -> None:
    """``beat`` answers as ever, and no worker is listed."""

    async def twisted(worker: WorkerRecord) -> None: ...

    store.heartbeat = twisted  # type: ignore[method-assign]


def two_in_memory(twist: Twist) -> type[StoresAgree]:
    class Twins(StoresAgree):
        def make_stores(self, clock: FrozenClock) -> Mapping[str, Store]:
            stores = {name: create_store("memory://", clock=clock) for name in ("one", "other")}
            twist(stores["other"])
            return stores

    return Twins


BRIEF = settings(max_examples=40, stateful_step_count=30, phases=[Phase.generate], database=None)


def test_twins_agree() -> None:
    """Otherwise every difference below would be found."""
    run_state_machine_as_test(two_in_memory(lambda _: None), settings=settings(BRIEF, max_examples=2))


@pytest.mark.parametrize("twist", [a_verb_that_reads_and_writes, a_verb_that_does_nothing])
def test_a_store_that_differs_is_seen(twist: Twist) -> None:
    """Also when the verb that changes something is one that should only read."""
    with pytest.raises(AssertionError, match="other and one"):
        run_state_machine_as_test(two_in_memory(twist), settings=BRIEF)
