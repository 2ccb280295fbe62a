"""Damaged files are named, with what to do; no raw error, no crash, no answer that SQLite could doubt."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.sqlite.checks import jobs_after, reopened
from tests.faults.sqlite.damage import PAGE, flip_bits, make_database, sqlite_notices, use_everything
from tests.faults.sqlite.strace import files_of
from tests.faults.sqlite.workloads import new_job
from tests.worker.helpers import until, working
from tidewheel import Tidewheel
from tidewheel.errors import StoreError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files are replaced while others have them")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "jobs.db"
    asyncio.run(make_database(path))
    return path.read_bytes()


def _put(path: Path, content: bytes) -> None:
    for file in files_of(path):
        file.unlink(missing_ok=True)
    path.write_bytes(content)


async def _try_flips(path: Path, sound: bytes, seeds: range) -> None:
    noticed = 0
    for seed in seeds:
        content = flip_bits(sound, random.Random(seed))
        _put(path, content)
        expected = sqlite_notices(path)
        _put(path, content)
        said = await use_everything(path)
        if expected:
            assert any(str(path) in line for line in said), f"seed {seed}: {said}"
            noticed += 1
    print(f"{len(seeds)} damaged files, {noticed} of them noticed by SQLite, and by us")
    assert noticed > len(seeds) // 5


async def test_flipped_bits_are_reported_wherever_sqlite_can_notice_them(
    tmp_path: Path, sound: bytes
) -> None:
    """By an error that names the file, at the latest by the check. Without checksums SQLite misses some."""
    await _try_flips(tmp_path / "jobs.db", sound, range(60))


@pytest.mark.long
async def test_flipped_bits_anywhere(tmp_path: Path, sound: bytes) -> None:
    """The same, a thousand times."""
    await _try_flips(tmp_path / "jobs.db", sound, range(1000, 2000))


def _zeroed_header(content: bytes) -> bytes:
    return bytes(100) + content[100:]


def _text_for_header(content: bytes) -> bytes:
    return b"This is not a database, but somebody's letter.".ljust(100) + content[100:]


def _half(content: bytes) -> bytes:
    return content[: len(content) // 2 // PAGE * PAGE]


def _in_the_middle_of_a_page(content: bytes) -> bytes:
    return content[: len(content) - PAGE - 1000]


def _first_page_only(content: bytes) -> bytes:
    return content[:PAGE]


def _garbage_in_every_page(content: bytes) -> bytes:
    luck = random.Random(5)
    pages = [bytearray(content[start : start + PAGE]) for start in range(0, len(content), PAGE)]
    for page in pages[1:]:
        page[:200] = luck.randbytes(200)
    return b"".join(pages)


@pytest.mark.parametrize(
    "damage",
    [
        _zeroed_header,
        _text_for_header,
        _half,
        _in_the_middle_of_a_page,
        _first_page_only,
        _garbage_in_every_page,
    ],
)
async def test_a_damaged_file_is_named_with_what_to_do(
    tmp_path: Path, sound: bytes, damage: Callable[[bytes], bytes]
) -> None:
    """Truncated, overwritten or headless: one of the first lines says which file, and how to go on."""
    path = tmp_path / "jobs.db"
    _put(path, damage(sound))
    said = await use_everything(path)
    [first] = [line for line in said if str(path) in line][:1]
    assert "is damaged or not a database" in first
    assert "restore a backup" in first
    assert ".recover" in first


async def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    """SQLite cannot tell one that was emptied from one that was never used, and neither can Tidewheel."""
    path = tmp_path / "jobs.db"
    _put(path, b"")
    assert not await jobs_after(path)


async def test_a_command_on_a_damaged_file_says_so_and_ends(tmp_path: Path, sound: bytes) -> None:
    """No traceback, and an exit code that scripts can see."""
    path = tmp_path / "jobs.db"
    _put(path, _text_for_header(sound))
    answer = subprocess.run(
        [sys.executable, "-m", "tidewheel.cli", "stats", "--url", f"sqlite:///{path}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert answer.returncode != 0
    said = answer.stdout + answer.stderr
    assert "Traceback" not in said
    assert "damaged" in said


async def test_a_worker_on_a_damaged_file_says_so_and_ends_only_when_it_is_asked_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An end at night would help nobody: it waits, with one clear line. Nothing is lost by its tries."""
    path = tmp_path / "jobs.db"
    app = Tidewheel(f"sqlite:///{path}")

    @app.task
    async def work() -> int:
        return 7

    async with app:
        job = await work.enqueue()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'tidewheel_jobs_ready'"
        place = (connection.execute(query).fetchone()[0] - 1) * PAGE
    content = path.read_bytes()
    _overwrite(path, place, b"\xff" * 64)
    async with app, working(app):
        await until(lambda: "is damaged or not a database" in caplog.text)
        said = [record for record in caplog.records if "claiming jobs failed" in record.getMessage()]
        assert len(said) == 1
        assert said[0].levelno == logging.ERROR
        assert str(path) in said[0].getMessage()
    _overwrite(path, place, content[place : place + 64])
    async with app, working(app):
        assert await job.result(timeout=60) == 7


def _overwrite(path: Path, place: int, content: bytes) -> None:
    """From another process: closing the file in this one would drop the locks SQLite has on it."""
    command = ["dd", f"of={path}", "bs=1", f"seek={place}", "conv=notrunc", "status=none"]
    subprocess.run(command, input=content, check=True)


async def _crashed(directory: Path) -> tuple[Path, list[str]]:
    """A file and its log as a crash leaves them: nothing of twenty jobs is in the file itself."""
    path, left = directory / "jobs.db", directory / "left" / "jobs.db"
    left.parent.mkdir()
    ids = []
    async with reopened(path):
        pass
    async with reopened(path) as store:
        for _ in range(20):
            job = new_job()
            await store.enqueue([job])
            ids.append(str(job.id))
        for file in files_of(path)[:2]:
            # Copied by another process, for the same reason as above.
            subprocess.run(["cp", file, left.parent], check=True)
    return left, ids


async def test_a_log_that_is_lost_takes_everything_since_the_last_checkpoint(tmp_path: Path) -> None:
    """SQLite cannot know that there was one. The file is sound, and the loss is documented."""
    path, _ = await _crashed(tmp_path)
    Path(f"{path}-wal").unlink()
    assert not await jobs_after(path)


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
async def test_a_damaged_log_ends_where_the_damage_begins(tmp_path: Path, damage: str) -> None:
    """Its pages carry checksums: commits before are kept, those after are lost, and none is half there."""
    path, ids = await _crashed(tmp_path)
    log = Path(f"{path}-wal").read_bytes()
    kept = []
    for seed in range(12):
        place = random.Random(seed).randrange(32, len(log))
        content = bytearray(log)
        content[place] ^= 0x10
        left = tmp_path / f"{damage}{seed}" / "jobs.db"
        left.parent.mkdir()
        shutil.copyfile(path, left)
        Path(f"{left}-wal").write_bytes(content if damage == "flipped" else log[:place])
        present = [str(job_id) for job_id in await jobs_after(left)]
        assert sorted(present) == sorted(ids[: len(present)]), "a prefix, in the order of the commits"
        kept.append(len(present))
    assert min(kept) < max(kept) < 20


async def test_a_file_that_is_no_database_is_refused_by_the_app(tmp_path: Path) -> None:
    """Nothing is written to it either."""
    path = tmp_path / "notes.txt"
    path.write_text("remember the milk\n" * 500)
    with pytest.raises(StoreError, match="not a database"):
        async with Tidewheel(f"sqlite:///{path}"):
            pass
    assert path.read_text() == "remember the milk\n" * 500
