"""Copies that are killed in the middle, by a real signal, and go on when they are started again."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.admin.store_transfer.mixed_jobs import SHORT_LEASE, all_jobs, fill
from tests.cli.processes import Project
from tests.patience import PATIENCE
from tests.servers.shared import empty_url
from tidewheel.core.model import JobFilter
from tidewheel.stores import create_store
from tidewheel.stores.protocol import Store


async def _opened(url: str) -> Store:
    store = create_store(url)
    await store.open()
    await store.migrate()
    return store


async def _leg(project: Project, source: str, target: Store, total: int) -> dict[str, float]:
    """Copy with a kill in the middle; what it took. The target is left open."""
    began = time.monotonic()
    with project.start("copy", source, target.url) as process:
        there = 0
        while there < total // 3:
            assert time.monotonic() < began + 20 * PATIENCE, f"only {there} jobs came"
            assert process.popen.poll() is None, process.wait() or process.text
            await asyncio.sleep(0.005)
            there = (await target.count(JobFilter(), exact=True)).total
        process.signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    killed_at = time.monotonic()
    there = (await target.count(JobFilter(), exact=True)).total
    assert total // 3 <= there < total
    assert await target.check() == []  # half a copy is a sound store
    with project.start("copy", source, target.url) as process:
        assert await asyncio.to_thread(process.wait, 20 * PATIENCE) == 0, process.text
    assert f"({there:,} were there from an earlier run)" in process.text
    assert f"verified {total:,} jobs in both" in process.text
    return {"killed after": killed_at - began, "of": there, "went on for": time.monotonic() - killed_at}


async def _there_and_back(tmp_path: Path, number: int) -> list[dict[str, float]]:
    project = Project(tmp_path)
    first = await _opened(f"sqlite:///{tmp_path.as_posix()}/first.db?synchronous=normal")
    second = await _opened(empty_url())
    third = await _opened(f"sqlite:///{tmp_path.as_posix()}/third.db?synchronous=normal")
    try:
        await fill(first, number)
        await asyncio.sleep(SHORT_LEASE)
        before = await all_jobs(first)
        assert len(before) == number
        legs = [
            await _leg(project, first.url, second, number),
            await _leg(project, second.url, third, number),
        ]
        assert await all_jobs(first) == before  # the source is only read
        assert await all_jobs(second) == before
        assert await all_jobs(third) == before
        pauses = [[(one.topic, one.paused_until) for one in await store.topics()] for store in (first, third)]
        assert pauses[0] == pauses[1]
        return legs
    finally:
        for store in (first, second, third):
            await store.close()


async def test_a_copy_that_was_killed_goes_on_and_ends_with_the_same_jobs(tmp_path: Path) -> None:
    """SQLite to PostgreSQL and back, killed outright in each direction: nothing doubled, nothing lost."""
    await _there_and_back(tmp_path, 4000)


@pytest.mark.long
async def test_two_hundred_thousand_jobs_go_there_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same at the size of a busy day."""
    legs = await _there_and_back(tmp_path, 200_000)
    with capsys.disabled():
        for name, leg in zip(("SQLite to PostgreSQL", "PostgreSQL to SQLite"), legs, strict=True):
            print(f"\n{name}: {leg}")
