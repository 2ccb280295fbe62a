"""The disk refuses a write or a sync: an error for the caller, nothing lost, nothing left of what failed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.faults.sqlite.checks import jobs_after, reopened
from tests.faults.sqlite.fork_server import Ending, Nursery
from tests.faults.sqlite.strace import Tracing, lasting, read_log

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")


async def _run(nursery: Nursery, directory: Path, workload: str, *inject: str) -> tuple[Path, Ending]:
    database = directory / "jobs.db"
    async with reopened(database):
        pass
    tracing = Tracing(lasting(database), directory / "strace.log", inject)
    ending = nursery.run(workload, f"sqlite:///{database}", tracing)
    assert any(call.failed for call in read_log(tracing.log)), "nothing was injected"
    return database, ending


# Of an enqueue into a fresh log: the header and its sync, the directory's, nine pages in two writes each, and
# the sync of the commit.
@pytest.mark.parametrize(
    "inject",
    [
        pytest.param("fdatasync:error=EIO:when=1", id="sync-of-the-header"),
        pytest.param("fdatasync:error=EIO:when=3", id="sync-of-the-commit"),
        pytest.param("pwrite64:error=EIO:when=4", id="write"),
        pytest.param("pwrite64:error=ENOSPC:when=1+", id="full"),
        pytest.param("pwrite64:error=ENOSPC:when=19+", id="full-at-the-last-page"),
    ],
)
async def test_a_commit_that_failed_has_left_nothing_even_after_a_crash(
    nursery: Nursery, tmp_path: Path, inject: str
) -> None:
    """The pages of a commit whose sync failed are in the log; the next process must not find them there."""
    database, ending = await _run(nursery, tmp_path, "refused_then_killed", inject)
    assert ending.killed
    [error] = ending.errors()
    assert error.startswith("StoreUnavailable: ")
    assert str(database) in error
    assert "is not known" not in error
    assert not await jobs_after(database)


async def test_a_commit_that_can_be_neither_synced_nor_written_over_is_called_unknown(
    nursery: Nursery, tmp_path: Path
) -> None:
    """Every sync fails from then on: the job may be there after a crash, and the caller is told so."""
    database, ending = await _run(nursery, tmp_path, "refused_then_killed", "fdatasync:error=EIO:when=3+")
    assert ending.killed
    [error] = ending.errors()
    assert error.startswith("StoreUnavailable: ")
    assert str(database) in error
    assert "whether this was written is not known" in error
    assert (await jobs_after(database)).keys() <= ending.ids("refused")


@pytest.mark.parametrize(
    "inject",
    [
        pytest.param("fdatasync:error=EIO:when=7", id="one-sync"),
        pytest.param("fdatasync:error=EIO:when=7+2", id="every-other-sync"),
        pytest.param("pwrite64:error=ENOSPC:when=40..90", id="full-for-a-while"),
        pytest.param("pwrite64:error=EIO:when=40..41", id="two-writes"),
        pytest.param("pwrite64:error=EROFS:when=40..90", id="read-only-for-a-while"),
    ],
)
async def test_a_disk_that_works_again_is_used_again(nursery: Nursery, tmp_path: Path, inject: str) -> None:
    """Exactly what was acknowledged is there, and the same store goes on once the disk does."""
    database, ending = await _run(nursery, tmp_path, "refused_then_well", inject)
    assert ending.status == 0
    assert ending.errors()
    assert all(error.startswith("StoreUnavailable: ") and str(database) in error for error in ending.errors())
    assert ("sound", [], "") in ending.said
    assert (await jobs_after(database)).keys() == ending.ids("enqueued")


@pytest.mark.parametrize(
    "inject",
    [
        pytest.param("fdatasync:error=EIO:when=5+", id="syncs"),
        pytest.param("ftruncate:error=EIO:when=1+", id="truncations"),
        pytest.param("unlink:error=EIO:when=1+", id="removal-of-the-log"),
    ],
)
async def test_a_checkpoint_that_fails_takes_nothing_with_it(
    nursery: Nursery, tmp_path: Path, inject: str
) -> None:
    """Its callers have their answers already; what they were told stays true, whatever the log's fate."""
    database, ending = await _run(nursery, tmp_path, "checkpoint_on_a_failing_disk", inject)
    assert ending.status == 0
    jobs = await jobs_after(database)
    assert ending.ids("enqueued")
    assert ending.ids("enqueued") <= jobs.keys()
