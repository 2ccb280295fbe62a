"""Rows as people see them."""

from __future__ import annotations

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
    State,
    StepRecord,
)
from tidewheel.stores.sqlite.write_transaction import StateCode
from tidewheel.stores.terminal_errors import displayed_progress

COLUMN_COUNT = 30

STATES = {
    StateCode.WAITING: State.PENDING,
    StateCode.READY: State.PENDING,
    StateCode.RUNNING: State.RUNNING,
    StateCode.COMPLETED: State.COMPLETED,
    StateCode.FAILED: State.FAILED,
    StateCode.CANCELLED: State.CANCELLED,
}

_error_decoder = msgspec.json.Decoder(JobError)


def record(row: tuple[Any, ...], **bodies: Any) -> JobRecord:
    """The columns of ``job_queries.sql``, in its order."""
    state = STATES[row[5]]
    reported = None if row[25] is None else Progress(row[25], row[26], row[27], row[28])
    return JobRecord(
        id=UUID(bytes=row[0]),
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
        cancel_requested=bool(row[23]),
        error_summary=row[24],
        progress=displayed_progress(state, reported, row[13]),
        limit_key=row[29] or None,  # empty: of a limited topic, without one
        **bodies,
    )


def full_record(
    row: tuple[Any, ...], attempts: list[tuple[Any, ...]], steps: tuple[StepRecord, ...]
) -> JobRecord:
    """With bodies, attempts and steps."""
    return record(
        row,
        format=FORMATS[row[COLUMN_COUNT]],
        payload=row[COLUMN_COUNT + 1],
        result=row[COLUMN_COUNT + 2],
        checkpoint=row[COLUMN_COUNT + 3],
        retry=row[COLUMN_COUNT + 4],
        headers=row[COLUMN_COUNT + 5],
        lease_seconds=None if row[COLUMN_COUNT + 6] is None else row[COLUMN_COUNT + 6] / MICROSECONDS,
        reserves=row[COLUMN_COUNT + 7],
        timeouts=row[COLUMN_COUNT + 8],
        releases=row[COLUMN_COUNT + 9],
        buries=row[COLUMN_COUNT + 10],
        kicks=row[COLUMN_COUNT + 11],
        touches=row[COLUMN_COUNT + 12],
        attempts=tuple(
            AttemptRecord(attempt, worker, started_at, ended_at, _error_decoder.decode(error))
            for attempt, worker, started_at, ended_at, error in attempts
        ),
        steps=steps,
    )


KEY_UNTIL: Final = {KeyLifetime.PRUNED: 0, KeyLifetime.FINISHED: 1}


UNTIL_FINISHED: Final = KEY_UNTIL[KeyLifetime.FINISHED]


FORMAT_CODES: Final = {BodyFormat.JSON: 0, BodyFormat.BYTES: 1}


FORMATS: Final = {code: name for name, code in FORMAT_CODES.items()}
