"""The replay itself: it keeps what was synced and nothing else for certain."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from tests.faults.sqlite.replay import SECTOR, Disk, Variant
from tests.faults.sqlite.tracing import Call, points, read_log

HOME = Path("/home")
FILE = "/home/jobs.db"


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
    calls = (CREATE, _write(b"old"), _sync(), _sync("/home"), _write(b"new"))
    assert _left(tmp_path, Variant.NONE, *calls) == b"old"
    assert _left(tmp_path, Variant.ALL, *calls) == b"new"


def test_a_name_is_only_safe_when_its_directory_was_synced(tmp_path: Path) -> None:
    """A synced file without a synced name is not there."""
    assert _left(tmp_path, Variant.NONE, CREATE, _write(b"x"), _sync()) is None
    assert _left(tmp_path, Variant.ALL, CREATE, _write(b"x"), _sync()) == b"x"


def test_a_removed_name_may_come_back_with_its_content(tmp_path: Path) -> None:
    """Until the directory was synced."""
    calls = (CREATE, _write(b"x"), _sync(), _sync("/home"), Call(1, "unlink", FILE))
    assert _left(tmp_path, Variant.NONE, *calls) == b"x"
    assert _left(tmp_path, Variant.ALL, *calls) is None
    assert _left(tmp_path, Variant.NONE, *calls, _sync("/home")) is None


def test_a_write_can_be_torn_between_sectors_and_not_inside_of_one(tmp_path: Path) -> None:
    """Some seed leaves the first half, some the second; a sector is old or new."""
    old, new = b"o" * 2 * SECTOR, b"n" * 2 * SECTOR
    calls = (CREATE, _write(old), _sync(), _sync("/home"), _write(new))
    seen = {_left(tmp_path, Variant.TORN, *calls, seed=seed) for seed in range(40)}
    half = SECTOR
    assert seen == {old, new, old[:half] + new[half:], new[:half] + old[half:]}


def test_a_log_with_interrupted_lines_is_read_in_the_order_that_promises_least(tmp_path: Path) -> None:
    """A sync counts from its end, a write from its beginning; a killed process's last call has failed."""
    log = tmp_path / "strace.log"
    path = "".join(f"\\x{byte:02x}" for byte in FILE.encode())
    log.write_text(
        f'7 pwrite64(3<{path}>, "\\x61\\x62", 2, 4096) = 2\n'
        f"7 fdatasync(3<{path}> <unfinished ...>\n"
        f'8 write(4<{path}>, "\\x63", 1) = 1\n'
        "7 <... fdatasync resumed>)          = 0\n"
        f"7 ftruncate(3<{path}>, 100 <unfinished ...>\n"
        "7 +++ killed by SIGKILL +++\n"
    )
    calls = read_log(log)
    assert [(call.name, call.data, call.offset, call.failed) for call in calls] == [
        ("pwrite64", b"ab", 4096, False),
        ("write", b"c", 0, False),
        ("fdatasync", b"", 0, False),
        ("ftruncate", b"", 100, True),
    ]
    assert {call.path for call in calls} == {FILE}
    assert list(map(str, points([call for call in calls if call.thread == 7]))) == [
        "pwrite64 1",
        "fdatasync 1",
        "ftruncate 1",
    ]
