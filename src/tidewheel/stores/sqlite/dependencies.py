"""Jobs that run after others: waiting, and what becomes of them when a parent ends.

The column ``has_dependents`` says that jobs run after this one. The call that ends such a job writes it into
``tidewheel_ended_parents``, and ``release_dependents`` works off that table at the end of the same call. Jobs
without parents and dependents never touch these tables.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from tidewheel.core.model import Count, Dependents, NewJob, Relative, State
from tidewheel.stores.bounds import MAX_COUNT, MAX_DEPENDENTS, MAX_RELEASED_DEPENDENTS
from tidewheel.stores.condition_sql import condition_to_sql
from tidewheel.stores.enqueue import parent_not_found_error
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.condition_sql import SqliteDialect
from tidewheel.stores.sqlite.row_mapping import STATES
from tidewheel.stores.sqlite.settlements import DELETED, JobRow, finish_cancelled
from tidewheel.stores.sqlite.tenant_scope import execute_for_tenant
from tidewheel.stores.sqlite.write_transaction import StateCode, WriteTransaction
from tidewheel.stores.terminal_errors import parent_failed_error

A = TypeVar("A")
R = TypeVar("R")

_sql = SqlFile("tidewheel.stores.sqlite", "sql/dependencies.sql")
_admin_sql = SqlFile("tidewheel.stores.sqlite", "sql/admin.sql")

_ROW: Final = ", ".join(JobRow._fields)
_FAILED_END_CODES: Final = (StateCode.FAILED, StateCode.CANCELLED)


def add_parents(transaction: WriteTransaction, children: Sequence[NewJob]) -> None:
    """Jobs that were just written as if they could run: those that are not ready to wait, or end at once."""
    connection = transaction.connection
    for child in children:
        row = _row_of(transaction, child.id)
        failed: tuple[UUID, State] | None = None
        blocked = 0
        for place, parent_id in enumerate(child.after):
            found = execute_for_tenant(
                connection, _sql["parent"], child.tenant, (parent_id.bytes,)
            ).fetchone()
            if found is None or not is_visible(transaction, child, parent_id):
                raise parent_not_found_error(parent_id)
            _, state, _ = found
            waits = state <= StateCode.RUNNING
            blocked += waits
            badly = state in _FAILED_END_CODES and not child.after_any
            if badly and (failed is None or parent_id.bytes < failed[0].bytes):
                failed = (parent_id, STATES[state])
            connection.execute(_sql["set_has_dependents"], (parent_id.bytes,))
            values = (row.number, parent_id.bytes, place, child.after_any, waits)
            connection.execute(_sql["add_dependency"], values)
        if failed is not None:
            finish_cancelled(transaction, row, parent_failed_error(*failed), None)
        elif blocked:
            _set_blocked(transaction, row, blocked)


def is_visible(transaction: WriteTransaction, new: NewJob, other: UUID) -> bool:
    """Whether this other job is there for whoever makes the new one."""
    if new.row_filter is None:
        return True
    values = SqliteDialect(transaction.now)
    statement = _sql["is_visible"].format(condition=condition_to_sql(new.row_filter, values))
    found = transaction.connection.execute(statement, (other.bytes, *values.parameters)).fetchone()
    return bool(found[0])


def _row_of(transaction: WriteTransaction, job_id: UUID) -> JobRow:
    row = execute_for_tenant(
        transaction.connection, _admin_sql["find"], None, (job_id.bytes,), columns=_ROW
    ).fetchone()
    return JobRow._make(row)


def _set_blocked(transaction: WriteTransaction, row: JobRow, blocked: int) -> None:
    transaction.connection.execute(_sql["block"], (blocked, row.number))
    if row.state == StateCode.READY:
        transaction.counter_deltas.count_transition(
            row.tenant, row.topic, row.task, StateCode.READY, StateCode.WAITING
        )


def restore_parents(transaction: WriteTransaction, rows: Sequence[JobRow]) -> None:
    """Of jobs that came back to be run once more, all of them: parents that have ended by now are over,
    however they did.
    """
    connection = transaction.connection
    for row in rows:
        if row.has_dependents:
            # Whoever was not told yet that it had ended goes on waiting for it.
            connection.execute(_sql["delete_ended_parent_by_number"], (row.number,))
        connection.execute(_sql["restore_parents"], (row.number,))
        if blocked := connection.execute(_sql["blocked_by"], (row.number,)).fetchone()[0]:
            _set_blocked(transaction, row, blocked)


def must_wait(transaction: WriteTransaction, row: JobRow) -> bool:
    """Whether a finished job would have to wait, if it were to be run once more."""
    return bool(transaction.connection.execute(_sql["must_wait"], (row.number,)).fetchone()[0])


def then_release_dependents(
    operation: Callable[[WriteTransaction, A], R],
) -> Callable[[WriteTransaction, A], R]:
    """The same, and then what it means for jobs that wait for those it ended."""

    def operate(transaction: WriteTransaction, argument: A) -> R:
        answer = operation(transaction, argument)
        if transaction.parents_ended:
            release_dependents(transaction)
        return answer

    return operate


def release_dependents(transaction: WriteTransaction, _: None = None) -> None:
    """Let go of jobs whose parents have ended, or cancel them; so many, the rest in another transaction.

    A job that is cancelled is a parent that has ended in its turn: it joins the line, and nothing recurses.
    """
    connection = transaction.connection
    transaction.parents_ended = False
    left = MAX_RELEASED_DEPENDENTS
    while (ending := connection.execute(_sql["first_ended_parent"]).fetchone()) is not None:
        if left <= 0:
            transaction.releases_pending = True
            return
        parent, state = ending
        statement = _sql["unresolved_children"].format(columns=_ROW)
        waiting = connection.execute(statement, (parent, left + 1)).fetchall()
        for child, after_any, *columns in waiting[:left]:
            connection.execute(_sql["resolve_dependency"], (child, parent))
            row = JobRow._make(columns)
            if row.state > StateCode.RUNNING:
                continue  # it has ended by itself
            if state == StateCode.COMPLETED or after_any:
                _unblock(transaction, row)
            else:
                ended = None if state == DELETED else STATES[state]
                finish_cancelled(transaction, row, parent_failed_error(UUID(bytes=parent), ended), None)
        if len(waiting) <= left:
            connection.execute(_sql["delete_ended_parent_by_id"], (parent,))
            connection.execute(_sql["clear_has_dependents"], (parent,))
        left -= len(waiting)
    transaction.parents_ended = False


def _unblock(transaction: WriteTransaction, row: JobRow) -> None:
    ready = row.blocked == 1 and row.run_at <= transaction.now
    state = StateCode.READY if ready else StateCode.WAITING
    transaction.connection.execute(_sql["unblock"], {"number": row.number, "state": state.value})
    if ready:
        transaction.counter_deltas.count_transition(
            row.tenant, row.topic, row.task, StateCode.WAITING, StateCode.READY
        )
    if row.blocked == 1:
        # Also for delayed ones: a sleeping worker has to learn when to get up.
        transaction.ready_topics.add(row.topic)


def remove_dependencies(transaction: WriteTransaction, numbers: str) -> None:
    """Of jobs that are gone, as JSON: those they were to run after need not be kept for them any more."""
    connection = transaction.connection
    parents = connection.execute(_sql["parents_of_many"], (numbers,)).fetchall()
    if parents:
        connection.execute(_sql["delete_dependencies"], (numbers,))
        connection.executemany(_sql["clear_has_dependents"], parents)


def import_dependencies(transaction: WriteTransaction, numbers: Sequence[int]) -> None:
    """Of jobs that came from another store."""
    connection = transaction.connection
    parents = connection.execute(_sql["imported_parents"], {"numbers": json.dumps(numbers)}).fetchall()
    connection.executemany(_sql["set_has_dependents"], parents)
    connection.executemany(_sql["requeue_ended_parents"], parents)
    if parents:
        release_dependents(transaction)


# -- reading ------------------------------------------------------------------------------------------------


def parents_of(connection: sqlite3.Connection, number: int) -> tuple[tuple[Relative, ...], bool]:
    """The jobs that one runs after, and whether it does however they end."""
    rows = connection.execute(_sql["parents"], (number,)).fetchall()
    return tuple([_to_relative(*row[:3]) for row in rows]), any(row[3] for row in rows)


def _to_relative(job_id: bytes, state: int | None, waits: int) -> Relative:
    return Relative(UUID(bytes=job_id), None if state is None else STATES[StateCode(state)], bool(waits))


def dependents(connection: sqlite3.Connection, job_id: UUID, limit: int, tenant: str | None) -> Dependents:
    values = (job_id.bytes, min(limit, MAX_DEPENDENTS))
    rows = execute_for_tenant(connection, _sql["dependents"], tenant, values).fetchall()
    counting = (job_id.bytes, MAX_COUNT + 1)
    [total] = execute_for_tenant(connection, _sql["count_dependents"], tenant, counting).fetchone()
    return Dependents(
        tuple([_to_relative(*row) for row in rows]), Count(min(total, MAX_COUNT), exact=total <= MAX_COUNT)
    )
