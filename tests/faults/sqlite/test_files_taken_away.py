"""Files that are removed, replaced or made read-only under a running store, and disks that fill up."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest

from tests.faults.sqlite.checks import jobs_after, reopened, works
from tests.faults.sqlite.workloads import new_job
from tidewheel.core.model import JobFilter
from tidewheel.errors import StoreError, StoreUnavailable
from tidewheel.stores.sqlite import SqliteStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="mounts and open files that can be removed")


async def _enqueue(store: SqliteStore, number: int, size: int = 100) -> set[UUID]:
    jobs = [new_job(size) for _ in range(number)]
    await store.enqueue(jobs)
    return {job.id for job in jobs}


def _remove(database: Path) -> None:
    database.unlink()


def _replace(database: Path) -> None:
    shutil.copyfile(database, database.with_name("copy.db"))
    os.replace(database.with_name("copy.db"), database)


def _remove_log(database: Path) -> None:
    Path(f"{database}-wal").unlink()


def _remove_directory(database: Path) -> None:
    shutil.rmtree(database.parent)


@pytest.mark.parametrize("take_away", [_remove, _replace, _remove_log, _remove_directory])
async def test_a_store_whose_file_was_taken_away_acknowledges_nothing(
    tmp_path: Path, take_away: Callable[[Path], None]
) -> None:
    """SQLite would go on and commit into a file nobody finds again. Reads do not pretend either."""
    database = tmp_path / "home" / "jobs.db"
    database.parent.mkdir()
    async with reopened(database) as store:
        await _enqueue(store, 3)
        take_away(database)
        with pytest.raises(StoreUnavailable, match=r"jobs\.db.* was (removed|replaced) while it was in use"):
            await _enqueue(store, 1)
        with pytest.raises(StoreUnavailable, match="put it back, or stop every process"):
            await store.list_jobs(JobFilter(), limit=10)


async def test_a_file_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    """Moved away and back: the same store goes on, and only what was acknowledged is there."""
    database = tmp_path / "jobs.db"
    async with reopened(database) as store:
        acknowledged = await _enqueue(store, 3)
        os.rename(database, tmp_path / "elsewhere.db")
        with pytest.raises(StoreUnavailable, match="removed"):
            await _enqueue(store, 1)
        os.rename(tmp_path / "elsewhere.db", database)
        acknowledged |= await _enqueue(store, 1)
        await works(store)
    assert (await jobs_after(database)).keys() == acknowledged


async def test_a_file_that_is_away_is_not_made_anew_beside_its_log(tmp_path: Path) -> None:
    """SQLite would throw the log away, and with it what was acknowledged. Who has it open makes none."""
    database = tmp_path / "jobs.db"
    async with reopened(database) as store:
        acknowledged = await _enqueue(store, 3)
        os.rename(database, tmp_path / "elsewhere.db")
        log = Path(f"{database}-wal").read_bytes()
        starting = SqliteStore(f"sqlite:///{database}")
        with pytest.raises(StoreUnavailable, match=r"put jobs\.db back, or remove jobs\.db-wal to begin"):
            await starting.open()
        sibling = store.sibling()
        with pytest.raises(StoreUnavailable, match="cannot be read or written"):
            await sibling.open()
        assert not database.exists()
        assert Path(f"{database}-wal").read_bytes() == log
        os.rename(tmp_path / "elsewhere.db", database)
        await sibling.open()
        acknowledged |= await _enqueue(sibling, 1)
        await sibling.close()
        await works(store)
    assert (await jobs_after(database)).keys() == acknowledged


async def test_what_was_acknowledged_before_the_log_was_removed_is_saved_by_a_clean_end(
    tmp_path: Path,
) -> None:
    """The process still has the removed log open, and copies it into the file when it ends."""
    database = tmp_path / "jobs.db"
    async with reopened(database) as store:
        acknowledged = await _enqueue(store, 3)
        _remove_log(database)
        with pytest.raises(StoreUnavailable, match=r"jobs\.db-wal was removed"):
            await _enqueue(store, 1)
    assert (await jobs_after(database)).keys() == acknowledged


async def test_a_log_that_sqlite_removes_itself_is_no_reason_for_alarm(tmp_path: Path) -> None:
    """A process died while it made the file; the next one's first connection throws its log away."""
    database = tmp_path / "jobs.db"
    database.touch()
    Path(f"{database}-wal").write_bytes(bytes(4096))
    async with reopened(database) as store:
        acknowledged = await _enqueue(store, 1)
        await works(store)
    assert (await jobs_after(database)).keys() == acknowledged


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A place for a few hundred kilobytes, and how to get more."""

    directory: Path
    kind: str
    make_room: Callable[[], None]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A file system of its own where mounting is allowed, else a limit on the size of files."""
    directory = tmp_path / "disk"
    directory.mkdir()
    with contextlib.ExitStack() as stack:
        if _mount(stack, directory, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
            yield SmallDisk(
                directory,
                "tmpfs",
                lambda: _run("mount", "-o", "remount,size=64m", str(directory)),
            )
            return
        # SIGXFSZ is ignored by every Python, so that a write past the limit is an error and no death.
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, (soft, hard))
        yield SmallDisk(
            directory,
            "RLIMIT_FSIZE",
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard)),
        )


def _mount(stack: contextlib.ExitStack, directory: Path, *options: str) -> bool:
    answer = subprocess.run(["mount", *options, directory], check=False, capture_output=True, text=True)
    if answer.returncode:
        print(f"mounting was refused, so something else is tried: {answer.stderr.strip()}")
        return False
    stack.callback(_run, "umount", "--lazy", str(directory))
    return True


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


async def test_a_disk_that_fills_up_refuses_until_there_is_room(small_disk: SmallDisk) -> None:
    """Clear errors, nothing of the refused calls, readers go on, and the same store works afterwards."""
    database = small_disk.directory / "jobs.db"
    acknowledged: set[UUID] = set()
    refused: list[StoreError] = []
    async with reopened(database) as store:
        while len(refused) < 5:
            try:
                acknowledged |= await _enqueue(store, 1, 40_000)
            except StoreError as error:
                refused.append(error)
        assert {record.id for record in (await store.list_jobs(JobFilter(), limit=100)).items} == acknowledged
        small_disk.make_room()
        acknowledged |= await _enqueue(store, 5, 40_000)
        assert await store.check() == []
    assert acknowledged
    for refusal in refused:
        assert isinstance(refusal, StoreUnavailable), f"{small_disk.kind}: {refusal!r}"
        assert str(database) in str(refusal)
        assert "is not known" not in str(refusal)
    assert (await jobs_after(database)).keys() == acknowledged
    print(f"filled by {small_disk.kind}")


async def test_a_read_only_place_is_named_when_the_store_opens(tmp_path: Path) -> None:
    """A mount that is read-only, because root may write whatever permissions say; else Linux's /proc."""
    database = tmp_path / "writable" / "jobs.db"
    database.parent.mkdir()
    async with reopened(database) as store:
        acknowledged = await _enqueue(store, 2)
    place = tmp_path / "read-only"
    place.mkdir()
    with contextlib.ExitStack() as stack:
        if _mount(stack, place, "--bind", str(database.parent)):
            _run("mount", "-o", "remount,bind,ro", str(place))
        else:
            place = Path("/proc")
        with pytest.raises(StoreUnavailable, match=r"jobs\.db cannot be read or written.*must be able to"):
            async with reopened(place / "jobs.db") as store:
                await _enqueue(store, 1)
    assert (await jobs_after(database)).keys() == acknowledged
