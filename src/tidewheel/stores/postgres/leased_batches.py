"""Completions of jobs that share a row: which they are, and their arrays for the function.

Jobs that are claimed together share a row of the table ``leased_batches``. All but a few of them are
completed before anything else is said about them, which is done for a whole batch at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import Completed, Settlement
from tidewheel.stores.postgres.database import Record

PLACES_PER_BATCH: Final = 64
"""A fence is this many times the number of the batch, plus the place in it; place 0 is a single job."""

LONG_SECONDS: Final = 0.2
"""A job that ran longer has probably been given a row of its own, when its start was recorded."""

_EMPTY_ID: Final = UUID(int=0)
_SIGN: Final = 1 << 63
_ALL_JOBS_MASK: Final = (1 << 64) - 1


def is_batched_completion(settlement: Settlement) -> bool:
    """Whether this may be the completion of a job in a batch."""
    return (
        settlement.lease.fence % PLACES_PER_BATCH > 0
        and type(settlement.outcome) is Completed
        and settlement.run_seconds is not None
        and settlement.run_seconds < LONG_SECONDS
    )


def completion_arguments(settlements: Sequence[Settlement], results: Sequence[str | None]) -> tuple[Any, ...]:
    """The arrays of ``complete_batched``, for settlements in the order of their fences."""
    batches: list[int] = []
    masks: list[int] = []
    starts: list[int] = []
    ids: list[UUID] = []
    run_us: list[int] = []
    told: list[str | None] = []
    last = -1
    for settlement, result in zip(settlements, results, strict=True):
        lease = settlement.lease
        batch, place = divmod(lease.fence, PLACES_PER_BATCH)
        if batch != last:
            last = batch
            batches.append(batch)
            masks.append(0)
            starts.append(len(ids) + 1 - place)  # arrays count from 1
        for _ in range(starts[-1] + place - len(ids) - 1):  # places whose jobs are still running
            ids.append(_EMPTY_ID)
            run_us.append(0)
            told.append(None)
        masks[-1] |= 1 << place
        ids.append(lease.job_id)
        run_us.append(max(0, seconds_to_microseconds(settlement.run_seconds or 0.0)))
        told.append(result)
    masks = [mask - _ALL_JOBS_MASK - 1 if mask & _SIGN else mask for mask in masks]
    return batches, masks, starts, ids, run_us, None if told.count(None) == len(told) else told


def completed_settlements(settlements: Sequence[Settlement], rows: Sequence[Record]) -> Sequence[Settlement]:
    """Those that were: the answer of the function, a batch and its mask in each row."""
    if sum([(mask & _ALL_JOBS_MASK).bit_count() for _, mask in rows]) == len(settlements):
        return settlements  # as it nearly always is
    masks = dict(rows)
    return [
        settlement
        for settlement in settlements
        if masks.get(settlement.lease.fence // PLACES_PER_BATCH, 0)
        >> settlement.lease.fence % PLACES_PER_BATCH
        & 1
    ]
