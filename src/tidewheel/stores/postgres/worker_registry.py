"""The list of workers."""

from __future__ import annotations

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import WorkerRecord
from tidewheel.stores.bounds import MAX_WORKERS, WORKERS_KEPT_SECONDS
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.worker_registry import decode_worker_row, encode_worker_details

_sql = SqlFile("tidewheel.stores.postgres", "sql/worker_registry.sql")


async def record_heartbeat(database: Database, worker: WorkerRecord) -> None:
    columns = (worker.name, worker.host, worker.pid, worker.version, worker.started_at)
    await database.fetch(_sql["record_heartbeat"], *columns, database.now, encode_worker_details(worker))


async def deregister_worker(database: Database, name: str, started_at: int) -> None:
    await database.fetch(_sql["deregister"], name, started_at)


async def list_workers(database: Database) -> list[WorkerRecord]:
    rows = await database.fetch(_sql["workers"], MAX_WORKERS)
    return sorted((decode_worker_row(*row) for row in rows), key=lambda worker: worker.name)


async def remove_vanished_workers(database: Database, now: int) -> None:
    """Drop those that vanished too long ago to be news."""
    await database.fetch(_sql["delete_vanished"], now, seconds_to_microseconds(WORKERS_KEPT_SECONDS))
