"""What is pulled by hand is written down like everything else, so that the checker can judge it."""

from __future__ import annotations

from typing import cast

from tidewheel.core.model import Completed, Settlement
from tidewheel.stores import create_store
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import claim_jobs, enqueue_one
from tidewheel.verification.checker import check_history
from tidewheel.verification.history import Event, ListRecorder
from tidewheel.verification.job_histories import HistoryIndex
from tidewheel.verification.recording_store import RecordingStore


async def test_a_granted_and_touched_job_leaves_a_history_that_can_be_true() -> None:
    """A grant is a claim, a touch an extension by the length the store tells; without either the settlement
    would be one of a lease that nobody was given, or that had ended.
    """
    clock = FrozenClock()
    events: list[Event] = []
    recorder = ListRecorder(events, "hand", lambda: clock.now() / 1e6)
    inner = create_store("memory://", clock=clock)
    await inner.open()
    store = cast("Store", RecordingStore(inner, recorder))
    job_id = await enqueue_one(store, lease_seconds=30)
    granted = await store.claim_job(job_id, worker="hand", lease_seconds=5)
    assert granted is not None
    assert await store.claim_job(job_id, worker="hand", lease_seconds=5) is None
    clock.advance(20)
    assert await store.touch([granted.lease], 5) == [30]
    [[_, lease]] = HistoryIndex(events).leases
    assert (lease.granted.lease, [one.seconds for one in lease.extensions]) == (30, [30])
    clock.advance(20)
    assert await claim_jobs(store) == [], "its lease holds: nobody is told otherwise"
    assert await store.settle([Settlement(granted.lease, Completed(), 1.0)]) == [True]
    report = check_history(events)
    # Nobody wrote down what is there in the end.
    assert [one.rule for one in report.violations] == ["acknowledged"]
    assert (report.counts["grants"], report.counts["extensions"]) == (1, 1)
    assert "events without a grant" not in report.counts
    await inner.close()
