"""The list of workers."""

from __future__ import annotations

import sqlite3

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import WorkerRecord
from tidewheel.stores.bounds import MAX_WORKERS, WORKERS_KEPT_SECONDS
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.write_transaction import WriteTransaction
from tidewheel.stores.worker_registry import decode_worker_row, encode_worker_details

_sql = SqlFile("tidewheel.stores.sqlite", "sql/worker_registry.sql")


def record_heartbeat(transaction: WriteTransaction, worker: WorkerRecord) -> None:
    columns = (worker.name, worker.host, worker.pid, worker.version, worker.started_at, transaction.now)
    transaction.connection.execute(_sql["record_heartbeat"], (*columns, encode_worker_details(worker)))


def deregister_worker(transaction: WriteTransaction, who: tuple[str, int]) -> None:
    transaction.connection.execute(_sql["deregister"], who)


def list_workers(connection: sqlite3.Connection) -> list[WorkerRecord]:
    rows = connection.execute(_sql["workers"], (MAX_WORKERS,))
    return sorted((decode_worker_row(*row) for row in rows), key=lambda worker: worker.name)


def remove_vanished_workers(transaction: WriteTransaction) -> None:
    """Drop those that vanished too long ago to be news."""
    oldest = transaction.trusted_now - seconds_to_microseconds(WORKERS_KEPT_SECONDS)
    transaction.connection.execute(_sql["delete_vanished"], (oldest,))
