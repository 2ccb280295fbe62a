"""Looking at many jobs again and again, for whoever shows them live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from tidewheel.model import State
from tidewheel.stores.protocol import MAX_BATCH

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel


async def states_of(app: Tidewheel, job_ids: Sequence[UUID], *, tenant: str | None) -> list[State | None]:
    """Only the states of these jobs, in a query for each thousand; None where this tenant has no such job.

    Knows no rule about single jobs: who is under one has to get them, one by one. Jobs of the lane, which are
    in no store, are None here.
    """
    states: list[State | None] = []
    for start in range(0, len(job_ids), MAX_BATCH):
        states += await app.store.states(job_ids[start : start + MAX_BATCH], tenant=tenant)
    return states
