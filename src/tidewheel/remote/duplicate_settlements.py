"""Settlements that come a second time: their first answer may have been lost with a server that has ended."""

from __future__ import annotations

from typing import assert_never

from tidewheel.core.model import (
    Cancelled,
    Completed,
    Failed,
    JobError,
    JobRecord,
    Released,
    Retried,
    Settlement,
    State,
)
from tidewheel.stores.protocol import Store


async def was_accepted(store: Store, settlement: Settlement) -> bool:
    """Whether a job has ended by this very settlement, under this very lease: fences are given out once.

    A job that was given back, or is to be tried again, is not recognised: had the lease run out instead, it
    would look the same where the run before ended with the same error.
    """
    outcome = settlement.outcome
    if isinstance(outcome, Released):
        return False
    record = await store.get(settlement.lease.job_id)
    if record is None or record.fence != settlement.lease.fence:
        return False
    match outcome:
        case Completed():
            return record.state is State.COMPLETED
        case Failed(error):
            return record.state is State.FAILED and _ended_with(record, error)
        case Cancelled(error):
            return record.state is State.CANCELLED and _ended_with(record, error)
        case Retried(_, error):  # after the last attempt, or when somebody had asked it to stop
            return record.state in {State.FAILED, State.CANCELLED} and _ended_with(record, error)
        case _:
            assert_never(outcome)


def _ended_with(record: JobRecord, error: JobError) -> bool:
    """Whether this error was written in the moment in which the job ended. An older one is of a run before:
    then the job ended by itself, when the lease of this run had.
    """
    if not record.attempts:
        return False
    newest = record.attempts[-1]
    told = newest.error.code, newest.error.message
    return newest.ended_at == record.finished_at and told == (error.code, error.message)
