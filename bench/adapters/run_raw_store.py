"""The limit of a store: its own claim and settle in a bare loop, 500 at a time, no worker, no handlers."""

from __future__ import annotations

from run_tidewheel import TidewheelSystem
from talk import GroupedSystem, serve, tally

from tidewheel.core.model import ClaimRequest, Completed, Lane, Settlement

BATCH = 500


class RawStoreSystem(GroupedSystem, TidewheelSystem):
    enqueue_bulk = TidewheelSystem.enqueue_bulk

    async def work(self, concurrency: int) -> None:
        store = self.app.store
        request = ClaimRequest("raw", (Lane("job", "job"),), BATCH, 60)
        while jobs := (await store.claim(request)).jobs:
            tally.note_many(len(jobs))
            await store.settle([Settlement(job.lease, Completed(), 0.0) for job in jobs])


if __name__ == "__main__":
    serve(RawStoreSystem())
