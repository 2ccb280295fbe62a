"""Rows as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import (
    AttemptRecord,
    BodyFormat,
    JobError,
    JobRecord,
    KeyLifetime,
    Progress,
    Relative,
    State,
    StepRecord,
)
from tidewheel.stores.postgres.database import Record
from tidewheel.stores.terminal_errors import displayed_progress

COLUMN_COUNT: Final = 30

FORMATS: Final = (BodyFormat.JSON, BodyFormat.BYTES)  # by code
STATES: Final = (
    State.PENDING,  # waiting
    State.PENDING,  # ready
    State.RUNNING,
    State.COMPLETED,
    State.FAILED,
    State.CANCELLED,
)
"""What is shown, by the code that is stored."""

_error_decoder = msgspec.json.Decoder(JobError)


def record(row: Record, **bodies: Any) -> JobRecord:
    """The columns of ``job_queries.sql``, in its order."""
    state = STATES[row[5]]
    reported = None if row[25] is None else Progress(row[25], row[26], row[27], row[28])
    return JobRecord(
        id=row[0],
        number=row[1],
        tenant=row[2],
        topic=row[3],
        task=row[4],
        state=state,
        priority=row[6],
        attempt=row[7],
        max_attempts=row[8],
        created_at=row[9],
        run_at=row[10],
        claimed_at=row[11],
        started_at=row[12],
        finished_at=row[13],
        leased_until=row[14],
        fence=row[15],
        worker=row[16],
        timeout=None if row[17] is None else row[17] / MICROSECONDS,
        key=row[18],
        correlation_id=row[19],
        user_id=row[20],
        service_id=row[21],
        blocked=row[22],
        cancel_requested=row[23],
        error_summary=row[24],
        progress=displayed_progress(state, reported, row[13]),
        limit_key=row[29] or None,  # empty: of a limited topic, without one
        **bodies,
    )


def full_record(row: Record) -> JobRecord:
    """With bodies, attempts and steps."""
    format_, payload, raw, result, checkpoint, retry, headers, *others, attempts, steps, after = row[
        COLUMN_COUNT:
    ]
    lease_us, reserves, timeouts, releases, buries, kicks, touches = others
    parents, any_end = _relatives(after) if after else ((), False)
    return record(
        row,
        format=FORMATS[format_],
        retry=retry,
        headers=headers,
        lease_seconds=None if lease_us is None else lease_us / MICROSECONDS,
        reserves=reserves,
        timeouts=timeouts,
        releases=releases,
        buries=buries,
        kicks=kicks,
        touches=touches,
        payload=raw if payload is None else payload.encode(),
        result=None if result is None else result.encode(),
        checkpoint=None if checkpoint is None else checkpoint.encode(),
        attempts=tuple(
            AttemptRecord(attempt, worker, started_at, ended_at, _error_decoder.decode(error))
            for attempt, worker, started_at, ended_at, error in attempts
        ),
        steps=tuple([step_record(*step) for step in steps]),
        after=parents,
        after_any=any_end,
    )


def _relatives(rows: Sequence[Any]) -> tuple[tuple[Relative, ...], bool]:
    """The parents of a job, and whether it runs however they end."""
    found = [
        Relative(
            parent if isinstance(parent, UUID) else UUID(parent),
            None if state is None else STATES[state],
            waits,
        )
        for parent, state, waits, _ in rows
    ]
    return tuple(found), any(row[3] for row in rows)


def step_record(
    name: str, output: str, attempt: int, worker: str | None, started_at: int, finished_at: int
) -> StepRecord:
    return StepRecord(name, output.encode(), attempt, worker, started_at, finished_at)


FORMAT_CODES: Final = {BodyFormat.JSON: 0, BodyFormat.BYTES: 1}


KEY_UNTIL: Final = {KeyLifetime.PRUNED: 0, KeyLifetime.FINISHED: 1}
