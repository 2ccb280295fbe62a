"""Jobs that run after others: waiting, and what becomes of them when a parent ends.

The column ``has_dependents`` says that jobs run after this one. The call that ends such a job writes it into
``tidewheel_ended_parents``, and ``release`` works off that table at the end of the same call. Jobs without
parents and dependents never touch these tables.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from tidewheel.core.model import Count, Dependents, NewJob, Relative, State
from tidewheel.stores.condition_sql import to_sql
from tidewheel.stores.enqueue import parent_not_found
from tidewheel.stores.protocol import COUNT_LIMIT, MAX_DEPENDENTS, MAX_RELEASED
from tidewheel.stores.sql_files import Queries
from tidewheel.stores.sqlite.condition_sql import Values
from tidewheel.stores.sqlite.row_mapping import STATES
from tidewheel.stores.sqlite.settlements import DELETED, Row, finish_cancelled
from tidewheel.stores.sqlite.tenant_scope import find
from tidewheel.stores.sqlite.write_transaction import Code, Transaction
from tidewheel.stores.terminal_errors import parent_failed

A = TypeVar("A")
R = TypeVar("R")

_sql = Queries("tidewheel.stores.sqlite", "sql/dependencies.sql")
_admin_sql = Queries("tidewheel.stores.sqlite", "sql/admin.sql")

_ROW: Final = ", ".join(Row._fields)
_BADLY: Final = (Code.FAILED, Code.CANCELLED)


def attach(transaction: Transaction, children: Sequence[NewJob]) -> None:
    """Jobs that were just written as if they could run: those that are not ready to wait, or end at once."""
    connection = transaction.connection
    for child in children:
        row = _row_of(transaction, child.id)
        failed: tuple[UUID, State] | None = None
        blocked = 0
        for place, parent_id in enumerate(child.after):
            found = find(connection, _sql["parent"], child.tenant, (parent_id.bytes,)).fetchone()
            if found is None or not in_view(transaction, child, parent_id):
                raise parent_not_found(parent_id)
            _, state, _ = found
            waits = state <= Code.RUNNING
            blocked += waits
            badly = state in _BADLY and not child.after_any
            if badly and (failed is None or parent_id.bytes < failed[0].bytes):
                failed = (parent_id, STATES[state])
            connection.execute(_sql["set_has_dependents"], (parent_id.bytes,))
            values = (row.number, parent_id.bytes, place, child.after_any, waits)
            connection.execute(_sql["add_dependency"], values)
        if failed is not None:
            finish_cancelled(transaction, row, parent_failed(*failed), None)
        elif blocked:
            _block(transaction, row, blocked)


def in_view(transaction: Transaction, new: NewJob, other: UUID) -> bool:
    """Whether this other job is there for whoever makes the new one."""
    if new.only is None:
        return True
    values = Values(transaction.now)
    statement = _sql["is_visible"].format(condition=to_sql(new.only, values))
    found = transaction.connection.execute(statement, (other.bytes, *values.all)).fetchone()
    return bool(found[0])


def _row_of(transaction: Transaction, job_id: UUID) -> Row:
    row = find(transaction.connection, _admin_sql["find"], None, (job_id.bytes,), columns=_ROW).fetchone()
    return Row._make(row)


def _block(transaction: Transaction, row: Row, blocked: int) -> None:
    transaction.connection.execute(_sql["block"], (blocked, row.number))
    if row.state == Code.READY:
        transaction.tally.moved(row.tenant, row.topic, row.task, Code.READY, Code.WAITING)


def wait_again(transaction: Transaction, rows: Sequence[Row]) -> None:
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
            _block(transaction, row, blocked)


def must_wait(transaction: Transaction, row: Row) -> bool:
    """Whether a finished job would have to wait, if it were to be run once more."""
    return bool(transaction.connection.execute(_sql["must_wait"], (row.number,)).fetchone()[0])


def releasing(operation: Callable[[Transaction, A], R]) -> Callable[[Transaction, A], R]:
    """The same, and then what it means for jobs that wait for those it ended."""

    def operate(transaction: Transaction, argument: A) -> R:
        answer = operation(transaction, argument)
        if transaction.parents_ended:
            release(transaction)
        return answer

    return operate


def release(transaction: Transaction, _: None = None) -> None:
    """Let go of jobs whose parents have ended, or cancel them; so many, the rest in another transaction.

    A job that is cancelled is a parent that has ended in its turn: it joins the line, and nothing recurses.
    """
    connection = transaction.connection
    transaction.parents_ended = False
    left = MAX_RELEASED
    while (ending := connection.execute(_sql["first_ended_parent"]).fetchone()) is not None:
        if left <= 0:
            transaction.afterwards = True
            return
        parent, state = ending
        statement = _sql["unresolved_children"].format(columns=_ROW)
        waiting = connection.execute(statement, (parent, left + 1)).fetchall()
        for child, after_any, *columns in waiting[:left]:
            connection.execute(_sql["resolve_dependency"], (child, parent))
            row = Row._make(columns)
            if row.state > Code.RUNNING:
                continue  # it has ended by itself
            if state == Code.COMPLETED or after_any:
                _let_go(transaction, row)
            else:
                ended = None if state == DELETED else STATES[state]
                finish_cancelled(transaction, row, parent_failed(UUID(bytes=parent), ended), None)
        if len(waiting) <= left:
            connection.execute(_sql["delete_ended_parent_by_id"], (parent,))
            connection.execute(_sql["clear_has_dependents"], (parent,))
        left -= len(waiting)
    transaction.parents_ended = False


def _let_go(transaction: Transaction, row: Row) -> None:
    ready = row.blocked == 1 and row.run_at <= transaction.now
    state = Code.READY if ready else Code.WAITING
    transaction.connection.execute(_sql["unblock"], {"number": row.number, "state": state.value})
    if ready:
        transaction.tally.moved(row.tenant, row.topic, row.task, Code.WAITING, Code.READY)
    if row.blocked == 1:
        # Also for delayed ones: a sleeping worker has to learn when to get up.
        transaction.ready_topics.add(row.topic)


def unrelate(transaction: Transaction, numbers: str) -> None:
    """Of jobs that are gone, as JSON: those they were to run after need not be kept for them any more."""
    connection = transaction.connection
    parents = connection.execute(_sql["parents_of_many"], (numbers,)).fetchall()
    if parents:
        connection.execute(_sql["delete_dependencies"], (numbers,))
        connection.executemany(_sql["clear_has_dependents"], parents)


def place(transaction: Transaction, numbers: Sequence[int]) -> None:
    """Of jobs that came from another store."""
    connection = transaction.connection
    parents = connection.execute(_sql["imported_parents"], {"numbers": json.dumps(numbers)}).fetchall()
    connection.executemany(_sql["set_has_dependents"], parents)
    connection.executemany(_sql["requeue_ended_parents"], parents)
    if parents:
        release(transaction)


# -- reading ------------------------------------------------------------------------------------------------


def parents_of(connection: sqlite3.Connection, number: int) -> tuple[tuple[Relative, ...], bool]:
    """The jobs that one runs after, and whether it does however they end."""
    rows = connection.execute(_sql["parents"], (number,)).fetchall()
    return tuple([_relative(*row[:3]) for row in rows]), any(row[3] for row in rows)


def _relative(job_id: bytes, state: int | None, waits: int) -> Relative:
    return Relative(UUID(bytes=job_id), None if state is None else STATES[Code(state)], bool(waits))


def dependents(connection: sqlite3.Connection, job_id: UUID, limit: int, tenant: str | None) -> Dependents:
    values = (job_id.bytes, min(limit, MAX_DEPENDENTS))
    rows = find(connection, _sql["dependents"], tenant, values).fetchall()
    counting = (job_id.bytes, COUNT_LIMIT + 1)
    [total] = find(connection, _sql["count_dependents"], tenant, counting).fetchone()
    return Dependents(
        tuple([_relative(*row) for row in rows]), Count(min(total, COUNT_LIMIT), exact=total <= COUNT_LIMIT)
    )
