"""The end of a handler that had a transaction of its own: completed inside it, or rolled back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from tidewheel.clock import Clock
from tidewheel.errors import StoreError
from tidewheel.model import Settlement
from tidewheel.outcome import Completed, Outcome
from tidewheel.transaction import Transaction
from tidewheel.worker import deciding
from tidewheel.worker.held import Held, Stop

_log = logging.getLogger("tidewheel.worker")

T = TypeVar("T")


async def end_transaction(
    held: Held, transaction: Transaction, outcome: Outcome | None, clock: Clock
) -> Outcome | None:
    """What became of the job. A completion is settled here, alone; ``held.settled`` says what came of it."""
    # Not either when the handler was given up before it ended, or did not wait for its transaction's turn.
    if type(outcome) is not Completed or held.settling or transaction.is_waited_for:
        try:
            await _uninterrupted(transaction.roll_back())
        except StoreError as error:
            # Then the database does it, when the connection is gone. The outcome stands.
            _log.warning("the transaction of job %s was not rolled back: %s", held.job.lease.job_id, error)
        return outcome
    held.settling = held.settling_alone = True  # from here on nobody may stop it
    run_seconds = None if held.started is None else clock.monotonic() - held.started
    try:
        held.settled = await _uninterrupted(
            transaction.complete(Settlement(held.job.lease, outcome, run_seconds))
        )
    except Exception as error:
        held.settling = held.settling_alone = False
        if held.stop is Stop.TRANSACTION:
            return deciding.after_stop(held.job, held.task.retry, held.stop)
        return deciding.after_error(held.job, held.task.retry, error)
    return outcome


async def _uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Whatever happens to the slot meanwhile: half a commit is none, and nobody would know which."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            continue  # forgotten before the slot's next job, see Runner._forget_cancellation
    return task.result()
