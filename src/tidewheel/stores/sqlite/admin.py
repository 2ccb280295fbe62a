"""Operator actions on jobs and topics: requeue, cancel, take back, delete and pause.

``remove_jobs`` deletes jobs with all rows that belong to them; pruning uses it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from tidewheel.core.model import ActionResult, Released
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite import topic_limits
from tidewheel.stores.sqlite.dependencies import remove_dependencies, restore_parents
from tidewheel.stores.sqlite.settlements import (
    DELETED,
    JobRow,
    finish_cancelled,
    record_ended_parent,
    release_job,
)
from tidewheel.stores.sqlite.tenant_scope import execute_for_tenant, with_key_condition
from tidewheel.stores.sqlite.write_transaction import StateCode, WriteTransaction
from tidewheel.stores.terminal_errors import CANCELLED_ON_REQUEST

_removal_sql = SqlFile("tidewheel.stores.sqlite", "sql/job_removal.sql")


def remove_jobs(transaction: WriteTransaction, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows of (number, state, tenant, topic, task, key)."""
    if not rows:
        return
    connection = transaction.connection
    numbers = json.dumps([row[0] for row in rows])
    for part in ("jobs", "bodies", "results", "progress", "attempts", "steps"):
        connection.execute(_removal_sql[f"remove_{part}"], (numbers,))
    remove_dependencies(transaction, numbers)
    for number, state, tenant, topic, task, key in rows:
        if key is not None:
            connection.execute(
                with_key_condition(_removal_sql["remove_key"]), (tenant, task or topic, key, number)
            )
        transaction.counter_deltas.count_transition(tenant, topic, task, state, None)


_sql = SqlFile("tidewheel.stores.sqlite", "sql/admin.sql")

JobSelection = tuple[Sequence[UUID], str | None]
"""Which jobs, and the tenant they must belong to (None = any)."""


def requeue(transaction: WriteTransaction, selection: JobSelection) -> list[ActionResult]:
    back: list[JobRow] = []
    verdicts = apply_to_each(transaction, selection, partial(requeue_job, back=back))
    restore_parents(transaction, back)
    return verdicts


def cancel(transaction: WriteTransaction, selection: JobSelection) -> list[ActionResult]:
    return apply_to_each(transaction, selection, _cancel_job)


def take_back(transaction: WriteTransaction, selection: JobSelection) -> list[ActionResult]:
    return apply_to_each(transaction, selection, _take_back_job)


def delete(transaction: WriteTransaction, selection: JobSelection) -> list[ActionResult]:
    return apply_to_each(transaction, selection, _delete_job)


def apply_to_each(
    transaction: WriteTransaction,
    selection: JobSelection,
    act: Callable[[WriteTransaction, JobRow], ActionResult],
) -> list[ActionResult]:
    """Act on one job after another; what became of each."""
    job_ids, tenant = selection
    verdicts = []
    for job_id in job_ids:
        # Loaded one by one: the same id may be named twice, and the first changes what the second finds.
        row = find_job(transaction, job_id, tenant)
        verdicts.append(ActionResult.NOT_FOUND if row is None else act(transaction, row))
    return verdicts


def find_job(transaction: WriteTransaction, job_id: UUID, tenant: str | None) -> JobRow | None:
    """What has to be known of a job, if the tenant has one of this id."""
    columns = ", ".join(JobRow._fields)
    row = execute_for_tenant(
        transaction.connection, _sql["find"], tenant, (job_id.bytes,), columns=columns
    ).fetchone()
    return None if row is None else JobRow._make(row)


def requeue_job(
    transaction: WriteTransaction, row: JobRow, *, back: list[JobRow], kicks: int = 1
) -> ActionResult:
    """Failed or cancelled to pending, due now; ``kicks``: how many to count for it.

    ``back``: those that came back, this one with them; they are yet to wait for what they run after.
    """
    if row.state not in (StateCode.FAILED, StateCode.CANCELLED):
        return ActionResult.WRONG_STATE
    connection = transaction.connection
    if row.key is not None:
        key = (row.tenant, row.task or row.topic, row.key)
        connection.execute(_sql["take_key_again"], (*key, row.number))
        if connection.execute(with_key_condition(_sql["key_number"]), key).fetchone()[0] != row.number:
            return ActionResult.KEY_TAKEN
    connection.execute(_sql["requeue"], {"now": transaction.now, "number": row.number, "kicks": kicks})
    connection.execute(_sql["delete_result"], (row.number,))
    connection.execute(_sql["delete_progress"], (row.number,))
    transaction.counter_deltas.count_transition(row.tenant, row.topic, row.task, row.state, StateCode.READY)
    transaction.ready_topics.add(row.topic)
    back.append(row._replace(state=StateCode.READY))
    return ActionResult.DONE


def _cancel_job(transaction: WriteTransaction, row: JobRow) -> ActionResult:
    if row.state > StateCode.RUNNING:
        return ActionResult.WRONG_STATE
    if row.state == StateCode.RUNNING:
        transaction.connection.execute(_sql["request_cancel"], (row.number,))
        return ActionResult.REQUESTED
    finish_cancelled(transaction, row, CANCELLED_ON_REQUEST, None)
    return ActionResult.DONE


def _take_back_job(transaction: WriteTransaction, row: JobRow) -> ActionResult:
    if row.state != StateCode.RUNNING:
        return ActionResult.WRONG_STATE
    release_job(transaction, row, Released(counted=False), row.started_at)
    return ActionResult.DONE


def _delete_job(transaction: WriteTransaction, row: JobRow) -> ActionResult:
    if row.state == StateCode.RUNNING:
        return ActionResult.WRONG_STATE
    if row.has_dependents and row.state < StateCode.RUNNING:
        record_ended_parent(transaction, row, DELETED)
    remove_jobs(transaction, [(row.number, row.state, row.tenant, row.topic, row.task, row.key)])
    if row.state < StateCode.RUNNING:
        topic_limits.wake_limited_topics(transaction, [row.topic])  # others may have waited for it
    return ActionResult.DONE


def pause(transaction: WriteTransaction, argument: tuple[str, int | None]) -> None:
    topic, until = argument
    if until is None:
        transaction.connection.execute(_sql["resume"], (topic,))
        topic_limits.remove_plain_topic(transaction, topic)
    else:
        transaction.connection.execute(_sql["pause"], (topic, until))
    # Also a pause is news: it may end sooner than the one it takes the place of.
    transaction.ready_topics.add(topic)
