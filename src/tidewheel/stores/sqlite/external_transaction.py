"""New jobs in a transaction of somebody else's, on their own ``sqlite3`` connection.

Whoever has a transaction open keeps it open. Without one the driver's own rules hold: where it begins one by
itself before the first change, so is done here, and the caller commits; in autocommit the jobs are there when
the call returns. The doorbell rings at once: a worker that wakes up waits for the write lock, and has it when
the caller has committed.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from tidewheel.core.clock import Clock
from tidewheel.core.model import Enqueued, JobRecord, NewJob
from tidewheel.errors import InvalidInput, StoreError
from tidewheel.stores.bounds import MAX_ENQUEUE_BATCH, StoreLimits
from tidewheel.stores.external_transaction import ExternalEnqueueResult, SqliteCall, TransactionSteps
from tidewheel.stores.sqlite import job_queries
from tidewheel.stores.sqlite.enqueue import enqueue_in_transaction
from tidewheel.stores.sqlite.location import parse_url, refuse_second_name
from tidewheel.stores.sqlite.wakeups import notify_from_connection
from tidewheel.stores.sqlite.write_transaction import GrantedJobs, WriteTransaction, savepoint


class SqliteExternalTransaction:
    """What is done to the tables of one file."""

    dialect: ClassVar[str] = "sqlite"

    def __init__(self, url: str, clock: Clock, limits: StoreLimits) -> None:
        self._path = parse_url(url).path
        self._clock = clock
        self._limits = limits
        self._checked: set[str] = set()
        """Names of the file, few, by which connections may reach it."""

    def enqueue(self, jobs: Sequence[NewJob]) -> TransactionSteps[ExternalEnqueueResult]:
        joined: ExternalEnqueueResult = yield SqliteCall(lambda connection: self._enqueue(connection, jobs))
        return joined

    def get(self, job_id: UUID, tenant: str | None) -> TransactionSteps[JobRecord | None]:
        found: JobRecord | None = yield SqliteCall(lambda connection: self._get(connection, job_id, tenant))
        return found

    def _get(self, connection: sqlite3.Connection, job_id: UUID, tenant: str | None) -> JobRecord | None:
        with _default_row_format(connection), _missing_tables(self._path):
            self._check_file(connection)
            return job_queries.get(connection, job_id, tenant)

    def _enqueue(self, connection: sqlite3.Connection, jobs: Sequence[NewJob]) -> ExternalEnqueueResult:
        with _default_row_format(connection), _missing_tables(self._path):
            self._check_file(connection)
            with _is_in_transaction(connection):
                transaction = WriteTransaction(connection, self._clock.now(), self._limits, GrantedJobs())
                answers: list[Enqueued] = []
                for start in range(0, len(jobs), MAX_ENQUEUE_BATCH):
                    answers += enqueue_in_transaction(transaction, jobs[start : start + MAX_ENQUEUE_BATCH])
                notify_from_connection(connection, transaction.ready_topics)
                held = [
                    job_queries.get(connection, answer.job_id, job.tenant)
                    for job, answer in zip(jobs, answers, strict=True)
                    if answer.duplicate
                ]
        return ExternalEnqueueResult(answers, {record.id: record for record in held if record is not None})

    def _check_file(self, connection: sqlite3.Connection) -> None:
        """Jobs in a file that no worker of this app looks at would wait for ever."""
        path = next(row[2] for row in connection.execute("PRAGMA database_list") if row[1] == "main")
        if not path or not (path == self._path or _same_file(path, self._path)):
            raise InvalidInput(
                f"this connection is to {path or 'a database in memory'}, the app's jobs are in "
                f"{self._path}; use a connection to that file, or an app with the URL of this one"
            )
        if path not in self._checked:
            # Once per name. A program that only enqueues this way never opens the store, which also checks.
            refuse_second_name(Path(path))
            self._checked.add(path)


def _same_file(path: str, other: str) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:  # one of them is not there
        return False


@contextlib.contextmanager
def _default_row_format(connection: sqlite3.Connection) -> Iterator[None]:
    """Rows are tuples and texts are texts meanwhile, whatever the owner of the connection likes."""
    factories = connection.row_factory, connection.text_factory
    connection.row_factory, connection.text_factory = None, str
    try:
        yield
    finally:
        connection.row_factory, connection.text_factory = factories


@contextlib.contextmanager
def _missing_tables(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "no such table: tidewheel_" not in str(error):
            raise  # the driver's own errors are what the caller's code knows how to handle
        raise StoreError(
            f"{path} has no tables of Tidewheel yet; run tidewheel migrate, or open the app once"
        ) from error


@contextlib.contextmanager
def _is_in_transaction(connection: sqlite3.Connection) -> Iterator[None]:
    if connection.in_transaction:
        with savepoint(connection, "tidewheel_using"):
            yield
        return
    autocommit = connection.isolation_level is None or getattr(connection, "autocommit", -1) is True
    connection.execute("BEGIN IMMEDIATE" if autocommit else f"BEGIN {connection.isolation_level}")
    try:
        yield
        if autocommit:
            connection.execute("COMMIT")
    except BaseException:
        _roll_back(connection)  # nothing but what failed was in it
        raise


def _roll_back(connection: sqlite3.Connection) -> None:
    # rollback() does nothing in the autocommit of Python 3.12, and would leave the write lock with us.
    if connection.in_transaction:  # SQLite may have rolled back by itself
        connection.execute("ROLLBACK")
