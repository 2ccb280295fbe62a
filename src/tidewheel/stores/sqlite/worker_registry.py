"""The list of workers."""

from __future__ import annotations

import sqlite3

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import WorkerRecord
from tidewheel.stores.protocol import MAX_WORKERS, WORKERS_KEPT_SECONDS
from tidewheel.stores.sql_files import Queries
from tidewheel.stores.sqlite.write_transaction import Transaction
from tidewheel.stores.worker_registry import decode_worker, encode_details

_sql = Queries("tidewheel.stores.sqlite", "sql/worker_registry.sql")


def beat(transaction: Transaction, worker: WorkerRecord) -> None:
    columns = (worker.name, worker.host, worker.pid, worker.version, worker.started_at, transaction.now)
    transaction.connection.execute(_sql["record_heartbeat"], (*columns, encode_details(worker)))


def leave(transaction: Transaction, who: tuple[str, int]) -> None:
    transaction.connection.execute(_sql["deregister"], who)


def workers(connection: sqlite3.Connection) -> list[WorkerRecord]:
    rows = connection.execute(_sql["workers"], (MAX_WORKERS,))
    return sorted((decode_worker(*row) for row in rows), key=lambda worker: worker.name)


def forget(transaction: Transaction) -> None:
    """Drop those that vanished too long ago to be news."""
    oldest = transaction.judged_at - seconds_to_microseconds(WORKERS_KEPT_SECONDS)
    transaction.connection.execute(_sql["delete_vanished"], (oldest,))
