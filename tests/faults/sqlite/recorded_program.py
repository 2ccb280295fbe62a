"""The program whose system calls are recorded: callers that enqueue, a worker that claims and settles.

What it was told is written to a file of its own, which is traced, too, so that the order is known. It stops
and starts again in the middle, so that the log is removed and made anew; and its log is so short that it is
restarted often, and the database's own file is written.
"""

from __future__ import annotations

import asyncio
import os
import sys
from uuid import UUID

from tests.faults.sqlite.workloads import claimed, new_job
from tidewheel.stores.sqlite import SqliteStore, wal_checkpoint

CALLERS = 4


async def main(url: str, acknowledgements: str, rounds: int) -> None:
    wal_checkpoint.CHECKPOINT_BYTES = 120_000  # type: ignore[misc]
    record = os.open(acknowledgements, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def acknowledged(what: str, job_id: UUID) -> None:
        os.write(record, f"{what} {job_id}\n".encode())

    async def caller(store: SqliteStore) -> None:
        for _ in range(rounds):
            job = new_job(300)
            await store.enqueue([job])
            acknowledged("enqueued", job.id)

    async def worker(store: SqliteStore) -> None:
        for number in range(rounds):
            # Every other claim may be forgotten; what is acknowledged after it may not.
            settlements = await claimed(store, 3, lasting=number % 2 == 0)
            for settlement, done in zip(settlements, await store.settle(settlements), strict=True):
                assert done
                acknowledged("completed", settlement.lease.job_id)

    for _ in range(2):
        store = SqliteStore(url)
        await store.open()
        await store.migrate()
        await asyncio.gather(*(caller(store) for _ in range(CALLERS)), worker(store))
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
