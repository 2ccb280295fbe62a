"""The replay itself: it keeps what was synced and nothing else for certain."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from tests.faults.sqlite.replay import SECTOR, Disk, Variant
from tests.faults.sqlite.strace import Call

HOME = Path("/disk")
FILE = "/disk/jobs.db"


def _write(data: bytes, offset: int = 0) -> Call:
    return Call(1, "pwrite64", FILE, data, offset)


def _sync(path: str = FILE) -> Call:
    return Call(1, "fdatasync", path)


CREATE = Call(1, "openat", FILE, flags="O_RDWR|O_CREAT")


def _left(tmp_path: Path, variant: Variant, *calls: Call, seed: int = 0) -> bytes | None:
    disk = Disk(HOME)
    for call in calls:
        disk.feed(call)
    target = Path(tempfile.mkdtemp(dir=tmp_path))
    disk.cut(variant, random.Random(seed), target)
    file = target / "jobs.db"
    return file.read_bytes() if file.exists() else None


def test_what_was_not_synced_is_lost_in_the_worst_case_and_kept_in_the_best(tmp_path: Path) -> None:
    """The file and its name were synced, a second write was not."""
    calls = (CREATE, _write(b"old"), _sync(), _sync("/disk"), _write(b"new"))
    assert _left(tmp_path, Variant.NONE, *calls) == b"old"
    assert _left(tmp_path, Variant.ALL, *calls) == b"new"


def test_a_name_is_only_safe_when_its_directory_was_synced(tmp_path: Path) -> None:
    """A synced file without a synced name is not there."""
    assert _left(tmp_path, Variant.NONE, CREATE, _write(b"x"), _sync()) is None
    assert _left(tmp_path, Variant.ALL, CREATE, _write(b"x"), _sync()) == b"x"


def test_a_removed_name_may_come_back_with_its_content(tmp_path: Path) -> None:
    """Until the directory was synced."""
    calls = (CREATE, _write(b"x"), _sync(), _sync("/disk"), Call(1, "unlink", FILE))
    assert _left(tmp_path, Variant.NONE, *calls) == b"x"
    assert _left(tmp_path, Variant.ALL, *calls) is None
    assert _left(tmp_path, Variant.NONE, *calls, _sync("/disk")) is None


def test_a_write_can_be_torn_between_sectors_and_not_inside_of_one(tmp_path: Path) -> None:
    """Some seed leaves the first half, some the second; a sector is old or new."""
    old, new = b"o" * 2 * SECTOR, b"n" * 2 * SECTOR
    calls = (CREATE, _write(old), _sync(), _sync("/disk"), _write(new))
    seen = {_left(tmp_path, Variant.TORN, *calls, seed=seed) for seed in range(40)}
    half = SECTOR
    assert seen == {old, new, old[:half] + new[half:], new[:half] + old[half:]}
