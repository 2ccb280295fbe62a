"""Operator actions on jobs and topics: requeue, cancel, take back, delete and pause.

``remove`` deletes jobs with all rows that belong to them; pruning uses it too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from tidewheel.core.model import Released, Verdict
from tidewheel.stores.sql_files import Queries
from tidewheel.stores.sqlite import topic_limits
from tidewheel.stores.sqlite.dependencies import unrelate, wait_again
from tidewheel.stores.sqlite.settlements import (
    DELETED,
    Row,
    finish_cancelled,
    parent_ended,
    release_row,
)
from tidewheel.stores.sqlite.tenant_scope import by_key, find
from tidewheel.stores.sqlite.write_transaction import Code, Transaction
from tidewheel.stores.terminal_errors import CANCELLED_ON_REQUEST

_removal_sql = Queries("tidewheel.stores.sqlite", "sql/job_removal.sql")


def remove(transaction: Transaction, rows: Sequence[tuple[Any, ...]]) -> None:
    """Rows of (number, state, tenant, topic, task, key)."""
    if not rows:
        return
    connection = transaction.connection
    numbers = json.dumps([row[0] for row in rows])
    for part in ("jobs", "bodies", "results", "progress", "attempts", "steps"):
        connection.execute(_removal_sql[f"remove_{part}"], (numbers,))
    unrelate(transaction, numbers)
    for number, state, tenant, topic, task, key in rows:
        if key is not None:
            connection.execute(by_key(_removal_sql["remove_key"]), (tenant, task or topic, key, number))
        transaction.tally.moved(tenant, topic, task, state, None)


_sql = Queries("tidewheel.stores.sqlite", "sql/admin.sql")

Selection = tuple[Sequence[UUID], str | None]
"""Which jobs, and the tenant they must belong to (None = any)."""


def requeue(transaction: Transaction, selection: Selection) -> list[Verdict]:
    back: list[Row] = []
    verdicts = each(transaction, selection, partial(requeue_row, back=back))
    wait_again(transaction, back)
    return verdicts


def cancel(transaction: Transaction, selection: Selection) -> list[Verdict]:
    return each(transaction, selection, _cancel)


def take_back(transaction: Transaction, selection: Selection) -> list[Verdict]:
    return each(transaction, selection, _take_back)


def delete(transaction: Transaction, selection: Selection) -> list[Verdict]:
    return each(transaction, selection, _delete)


def each(
    transaction: Transaction, selection: Selection, act: Callable[[Transaction, Row], Verdict]
) -> list[Verdict]:
    """Act on one job after another; what became of each."""
    job_ids, tenant = selection
    verdicts = []
    for job_id in job_ids:
        # Loaded one by one: the same id may be named twice, and the first changes what the second finds.
        row = find_row(transaction, job_id, tenant)
        verdicts.append(Verdict.NOT_FOUND if row is None else act(transaction, row))
    return verdicts


def find_row(transaction: Transaction, job_id: UUID, tenant: str | None) -> Row | None:
    """What has to be known of a job, if the tenant has one of this id."""
    columns = ", ".join(Row._fields)
    row = find(transaction.connection, _sql["find"], tenant, (job_id.bytes,), columns=columns).fetchone()
    return None if row is None else Row._make(row)


def requeue_row(transaction: Transaction, row: Row, *, back: list[Row], kicks: int = 1) -> Verdict:
    """Failed or cancelled to pending, due now; ``kicks``: how many to count for it.

    ``back``: those that came back, this one with them; they are yet to wait for what they run after.
    """
    if row.state not in (Code.FAILED, Code.CANCELLED):
        return Verdict.WRONG_STATE
    connection = transaction.connection
    if row.key is not None:
        key = (row.tenant, row.task or row.topic, row.key)
        connection.execute(_sql["take_key_again"], (*key, row.number))
        if connection.execute(by_key(_sql["key_number"]), key).fetchone()[0] != row.number:
            return Verdict.KEY_TAKEN
    connection.execute(_sql["requeue"], {"now": transaction.now, "number": row.number, "kicks": kicks})
    connection.execute(_sql["delete_result"], (row.number,))
    connection.execute(_sql["delete_progress"], (row.number,))
    transaction.tally.moved(row.tenant, row.topic, row.task, row.state, Code.READY)
    transaction.ready_topics.add(row.topic)
    back.append(row._replace(state=Code.READY))
    return Verdict.DONE


def _cancel(transaction: Transaction, row: Row) -> Verdict:
    if row.state > Code.RUNNING:
        return Verdict.WRONG_STATE
    if row.state == Code.RUNNING:
        transaction.connection.execute(_sql["request_cancel"], (row.number,))
        return Verdict.REQUESTED
    finish_cancelled(transaction, row, CANCELLED_ON_REQUEST, None)
    return Verdict.DONE


def _take_back(transaction: Transaction, row: Row) -> Verdict:
    if row.state != Code.RUNNING:
        return Verdict.WRONG_STATE
    release_row(transaction, row, Released(counted=False), row.started_at)
    return Verdict.DONE


def _delete(transaction: Transaction, row: Row) -> Verdict:
    if row.state == Code.RUNNING:
        return Verdict.WRONG_STATE
    if row.has_dependents and row.state < Code.RUNNING:
        parent_ended(transaction, row, DELETED)
    remove(transaction, [(row.number, row.state, row.tenant, row.topic, row.task, row.key)])
    if row.state < Code.RUNNING:
        topic_limits.hint_room(transaction, [row.topic])  # others may have waited for it
    return Verdict.DONE


def pause(transaction: Transaction, argument: tuple[str, int | None]) -> None:
    topic, until = argument
    if until is None:
        transaction.connection.execute(_sql["resume"], (topic,))
        topic_limits.forget_plain(transaction, topic)
    else:
        transaction.connection.execute(_sql["pause"], (topic, until))
    # Also a pause is news: it may end sooner than the one it takes the place of.
    transaction.ready_topics.add(topic)
