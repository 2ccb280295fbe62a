"""Writes under leases as arrays for the functions, and their answers."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any, assert_never

import msgspec

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import (
    Cancelled,
    Completed,
    Failed,
    FailureOrigin,
    JobError,
    Lease,
    Outcome,
    Released,
    Report,
    Retried,
    Settlement,
    StepRecord,
)
from tidewheel.stores.bounds import MAX_SUMMARY_LENGTH
from tidewheel.stores.postgres.claims import ERROR_MESSAGES
from tidewheel.stores.postgres.database import Database, Statements
from tidewheel.stores.postgres.dependencies import ReleaseResult
from tidewheel.stores.postgres.leased_batches import (
    completed_settlements,
    completion_arguments,
    is_batched_completion,
)
from tidewheel.stores.postgres.row_mapping import step_record
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.terminal_errors import summarise_error

_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")

# What the settle function calls the outcomes.
_COMPLETED, _FAILED, _BURIED, _CANCELLED, _RETRIED, _RELEASED, _RELEASED_UNCOUNTED, _UNTAKEN = range(8)

_OutcomeColumns = tuple[int, str | None, str | None, str | None, int | None, int | None]
"""kind, result, error, summary, delay in microseconds, priority"""


async def settle_jobs(
    database: Statements, settlements: Sequence[Settlement], released: ReleaseResult
) -> list[bool]:
    """End leases; whether each was held. The first settlement of a lease counts; a second finds nothing."""
    todo = _first_per_lease(settlements)
    held: set[Lease] = set()
    packed = [settlement for settlement in todo if is_batched_completion(settlement)]
    if packed:
        done = await _complete_batched(database, packed)
        if len(done) == len(settlements):
            return [True] * len(done)
        held = {settlement.lease for settlement in done}
        todo = [settlement for settlement in todo if settlement.lease not in held]
    ordered = sorted(todo, key=_by_job)
    kinds, others = _outcome_arguments([settlement.outcome for settlement in ordered])
    rows = await database.fetch(
        _sql["settle"],
        database.now,
        [settlement.lease.job_id for settlement in ordered],
        [settlement.lease.fence for settlement in ordered],
        kinds,
        [
            None
            if settlement.run_seconds is None
            else max(0, seconds_to_microseconds(settlement.run_seconds))
            for settlement in ordered
        ],
        *others,
        ERROR_MESSAGES,
    )
    told = released.split_rows(rows)
    if len(told) == len(settlements):
        return [True] * len(told)
    held.update([ordered[row[0] - 1].lease for row in told])
    return held_flags_once([settlement.lease for settlement in settlements], held)


async def _complete_batched(database: Statements, settlements: list[Settlement]) -> Sequence[Settlement]:
    settlements.sort(key=_by_fence)
    results = [_text(settlement.outcome.result) for settlement in settlements]  # type: ignore[union-attr]
    rows = await database.fetch(
        _sql["complete_batched"], database.now, *completion_arguments(settlements, results)
    )
    return completed_settlements(settlements, rows)


def held_flags(leases: Sequence[Lease], held: set[Lease]) -> list[bool]:
    """Whether each lease held."""
    return [lease in held for lease in leases]


def held_flags_once(leases: Sequence[Lease], held: set[Lease]) -> list[bool]:
    """Whether each lease held; of equal ones only the first is told so."""
    left = set(held)
    answers = []
    for lease in leases:
        answers.append(lease in left)
        left.discard(lease)
    return answers


def _first_per_lease(settlements: Sequence[Settlement]) -> Collection[Settlement]:
    if len({settlement.lease.fence for settlement in settlements}) == len(settlements):
        return settlements  # nearly always, and told without comparing leases
    first: dict[Lease, Settlement] = {}
    for settlement in settlements:
        first.setdefault(settlement.lease, settlement)
    return first.values()


def _outcome_arguments(outcomes: list[Outcome]) -> tuple[list[int], list[Sequence[Any] | None]]:
    """The kinds, a single one where it is that of all; and the other columns.

    What none of them has is not sent; of completed jobs there is little to say.
    """
    if all([type(outcome) is Completed for outcome in outcomes]):  # noqa: C419 - twice as fast as a generator
        results = [_text(outcome.result) for outcome in outcomes]  # type: ignore[union-attr]
        return [_COMPLETED], [_sent(results), None, None, None, None]
    kinds, *others = zip(*[_outcome_columns(outcome) for outcome in outcomes], strict=True)
    return list(kinds), [_sent(column) for column in others]


def _sent(column: Sequence[Any]) -> Sequence[Any] | None:
    return None if column.count(None) == len(column) else column


async def find_settled(database: Database, settlements: Sequence[Settlement]) -> set[Lease]:
    """Those of these leases that were ended by just these settlements."""
    leases = [settlement.lease for settlement in settlements]
    endings = [_outcome_columns(settlement.outcome) for settlement in settlements]
    rows = await database.fetch(
        _sql["find_settled"],
        [lease.job_id for lease in leases],
        [lease.fence for lease in leases],
        [ending[0] for ending in endings],
        [ending[3] for ending in endings],
    )
    return {leases[row[0] - 1] for row in rows}


async def extend_leases(database: Database, leases: Sequence[Lease], lease_seconds: float) -> set[Lease]:
    return await _run_under_leases(
        database, _sql["extend"], unique_leases_by_id(leases), seconds_to_microseconds(lease_seconds)
    )


async def mark_started(
    database: Database, leases: Sequence[Lease], run_seconds: Sequence[float], *, alone: bool
) -> set[Lease]:
    ordered = unique_leases_by_id(leases)
    ago: dict[Lease, float] = {}
    for lease, seconds in zip(leases, run_seconds or [0.0] * len(leases), strict=True):
        ago.setdefault(lease, seconds)
    run_us = [seconds_to_microseconds(ago[lease]) for lease in ordered]
    return await _run_under_leases(database, _sql["mark_started"], ordered, run_us, alone)


async def cancel_requests(database: Database, leases: Sequence[Lease]) -> set[Lease]:
    return await _run_under_leases(database, _sql["cancel_requests"], unique_leases_by_id(leases))


async def save_reports(database: Statements, reports: Sequence[Report]) -> set[Lease]:
    # Later reports of one job overrule earlier ones; a function that saw both would keep either. Of steps all
    # are kept.
    merged: dict[Lease, Report] = {}
    for item in reports:
        before = merged.get(item.lease)
        if before is None:
            merged[item.lease] = item
        else:
            checkpoint = before.checkpoint if item.checkpoint is None else item.checkpoint
            merged[item.lease] = Report(
                item.lease, item.progress or before.progress, checkpoint, run_seconds=before.run_seconds
            )
    ordered = unique_leases_by_id(merged)
    progress = [merged[lease].progress for lease in ordered]
    places = {lease: place for place, lease in enumerate(ordered, 1)}
    steps = [(places[item.lease], item.step) for item in reports if item.step is not None]
    return await _run_under_leases(
        database,
        _sql["save_reports"],
        ordered,
        [None if one is None else one.percent for one in progress],
        [None if one is None else one.message for one in progress],
        [None if one is None else one.stage for one in progress],
        [_text(merged[lease].checkpoint) for lease in ordered],
        [place for place, _ in steps] or None,
        [step.name for _, step in steps],
        [_text(step.output) for _, step in steps],
        [seconds_to_microseconds(step.run_seconds) for _, step in steps],
        [seconds_to_microseconds(merged[lease].run_seconds) for lease in ordered],
    )


async def finished_steps(database: Database, lease: Lease) -> tuple[StepRecord, ...] | None:
    """None when the lease does not hold."""
    row = await database.fetchrow(_sql["finished_steps"], database.now, lease.job_id, lease.fence)
    if row is None:
        return None
    return () if row[0] is None else tuple([step_record(*step) for step in zip(*row, strict=True)])


# Whoever locks several rows does it in the order of their ids, and nobody deadlocks.
_by_job = operator.attrgetter("lease.job_id.bytes")
_by_id = operator.attrgetter("job_id.bytes")
_by_fence = operator.attrgetter("lease.fence")


def unique_leases_by_id(leases: Sequence[Lease] | dict[Lease, Any]) -> list[Lease]:
    """Each lease once, by id."""
    return sorted(dict.fromkeys(leases), key=_by_id)


async def _run_under_leases(
    database: Statements, statement: str, leases: list[Lease], *more: Any
) -> set[Lease]:
    rows = await database.fetch(
        statement, database.now, [lease.job_id for lease in leases], [lease.fence for lease in leases], *more
    )
    return {leases[row[0] - 1] for row in rows}


def _outcome_columns(outcome: Outcome) -> _OutcomeColumns:
    match outcome:
        case Completed(result):
            return _COMPLETED, _text(result), None, None, None, None
        case Failed(error, origin, priority):
            kind = _BURIED if origin is FailureOrigin.BURIED else _FAILED
            return kind, None, _json(error), _summary(error), None, priority
        case Cancelled(error):
            return _CANCELLED, None, _json(error), _summary(error), None, None
        case Retried(delay, error):
            wait = seconds_to_microseconds(delay)
            return _RETRIED, None, _json(error), _summary(error), wait, None
        case Released(delay, priority, counted, taken):
            kind = _UNTAKEN if not taken else _RELEASED if counted else _RELEASED_UNCOUNTED
            return kind, None, None, None, seconds_to_microseconds(delay), priority
        case _:
            assert_never(outcome)


def _text(body: bytes | None) -> str | None:
    return None if body is None else body.decode()


def _summary(error: JobError) -> str:
    # Text here cannot hold a NUL; an outcome that can never be written would hold up all others.
    return summarise_error(error).replace("\0", "\\x00")[:MAX_SUMMARY_LENGTH]


def _json(error: JobError) -> str:
    return msgspec.json.encode(error).decode()
