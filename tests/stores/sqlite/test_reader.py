"""Looks at single jobs, many callers' at once."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from uuid import UUID

import pytest

from tidewheel import Tidewheel
from tidewheel.core.ids import new_id
from tidewheel.errors import StoreError
from tidewheel.stores.sqlite import job_queries
from tidewheel.stores.sqlite.reader import Reader


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many reads were handed to a thread, one entry each."""
    seen: list[int] = []
    run = Reader.run

    async def counted(self: Reader, read: object) -> object:
        seen.append(1)
        return await run(self, read)  # type: ignore[arg-type]

    monkeypatch.setattr(Reader, "run", counted)
    return seen


async def test_callers_that_ask_at_once_share_a_look(tmp_path: Path, looks: list[int]) -> None:
    """Each gets its own job, another tenant's and unknown ones are not there, and few threads are asked."""
    async with Tidewheel(f"sqlite:///{tmp_path}/jobs.db") as app:
        jobs = await app.enqueue_many("mail", [{"n": number} for number in range(250)])
        other = await app.enqueue("mail", {"n": -1}, tenant="acme")
        looks.clear()
        asked: list[tuple[UUID, str | None]] = [(job.id, "root") for job in jobs]
        asked += [(other.id, "root"), (other.id, "acme"), (new_id(), None)]
        answers = await asyncio.gather(*(app.store.get(job_id, tenant=tenant) for job_id, tenant in asked))
        found = [None if answer is None else answer.id for answer in answers]
        assert found == [*(job.id for job in jobs), None, other.id, None]
        assert len(looks) <= 5


async def test_what_is_wrong_with_one_job_does_not_keep_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that cannot be read is one caller's error."""
    async with Tidewheel(f"sqlite:///{tmp_path}/jobs.db") as app:
        good, bad = await app.enqueue_many("mail", [{}, {}])
        get = job_queries.get

        def reads(connection: sqlite3.Connection, job_id: UUID, tenant: str | None) -> object:
            if job_id == bad.id:
                raise sqlite3.DatabaseError("database disk image is malformed")
            return get(connection, job_id, tenant)

        monkeypatch.setattr(job_queries, "get", reads)
        answers = await asyncio.gather(
            *(app.store.get(job.id) for job in (good, bad, good)), return_exceptions=True
        )
        assert [type(answer).__name__ for answer in answers] == ["JobRecord", "StoreError", "JobRecord"]
        with pytest.raises(StoreError):
            await app.store.get(bad.id)


async def test_a_caller_that_gave_up_is_not_missed(tmp_path: Path) -> None:
    """Whoever stops waiting leaves the others their answers."""
    async with Tidewheel(f"sqlite:///{tmp_path}/jobs.db") as app:
        job = await app.enqueue("mail", {})
        waiting = [asyncio.create_task(app.store.get(job.id)) for _ in range(10)]
        await asyncio.sleep(0)
        for task in waiting[::2]:
            task.cancel()
        answers = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[::2])
        assert all(getattr(answer, "id", None) == job.id for answer in answers[1::2])
        assert (await app.get(job.id)).id == job.id
