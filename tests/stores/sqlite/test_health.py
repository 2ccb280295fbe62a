"""What a file says of itself: who keeps its log from being reset, and how empty it is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tidewheel import Tidewheel
from tidewheel.core.reports import HealthFinding, HealthFindingKind
from tidewheel.stores.sqlite import health
from tidewheel.stores.sqlite.location import parse_url

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux tells")

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM tidewheel_jobs").fetchall()
print("holding", flush=True)
sys.stdin.read()
"""


HAS_IT_OPEN = HOLDER.replace('connection.execute("BEGIN")', "")
"""Reads once, and keeps only the file open."""


async def of_kind(app: Tidewheel, kind: HealthFindingKind) -> list[HealthFinding]:
    return [ailment for ailment in await app.store.health() if ailment.kind is kind]


@needs_proc
async def test_who_has_a_log_open_that_cannot_be_reset_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program that reads, with its process id and name; not one that only has the file open, nor we."""
    monkeypatch.setattr(health, "BLOCKING_CHECKPOINT_BYTES", 0)
    file = tmp_path / "jobs.db"
    async with Tidewheel(f"sqlite:///{file}") as app:
        await app.enqueue("mail")
        [alone] = await of_kind(app, HealthFindingKind.LONG_LOG)
        assert not {"readers", "holders"} & set(alone.figures)
        with start(HAS_IT_OPEN, file) as idle, start(HOLDER, file) as holder:
            [held] = await of_kind(app, HealthFindingKind.LONG_LOG)
            monkeypatch.setattr(health, "_read_locks", lambda _: set())  # where the system does not tell
            [opened] = await of_kind(app, HealthFindingKind.LONG_LOG)
        assert str(held.figures["readers"]).startswith(f"{holder.pid} (python")
        assert str(idle.pid) not in str(held.figures["readers"])
        told = str(opened.figures["holders"])
        assert all(str(process.pid) in told for process in (idle, holder))
        assert str(os.getpid()) not in told


@contextmanager
def start(program: str, file: Path) -> Iterator[subprocess.Popen[str]]:
    """Until the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "holding\n"
        yield process
        process.stdin.close()


async def test_a_file_that_is_mostly_empty_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never becomes smaller by itself; how much of it is used is said."""
    monkeypatch.setattr(health, "LARGE_FILE", 100_000)
    file = tmp_path / "jobs.db"
    async with Tidewheel(f"sqlite:///{file}") as app:
        connection = sqlite3.connect(file)
        connection.execute("CREATE TABLE own (text)")
        connection.executemany("INSERT INTO own VALUES (?)", [("x" * 1000,)] * 1000)
        connection.commit()
        assert await of_kind(app, HealthFindingKind.SPARSE) == []
        connection.execute("DROP TABLE own")
        connection.commit()
        connection.close()
        [sparse] = await of_kind(app, HealthFindingKind.SPARSE)
    used = sparse.figures["used"]
    assert isinstance(used, float)
    assert 0 < used < 0.5
    assert sparse.figures["table"] == str(file)


@pytest.mark.skipif(os.name != "posix", reason="modes say nothing there")
@pytest.mark.parametrize(
    ("name", "mode", "readers"),
    [("jobs.db", 0o644, "everyone"), ("jobs.db", 0o640, "the group"), ("jobs.db-wal", 0o604, "everyone")],
)
async def test_a_file_that_others_can_read_is_told(
    tmp_path: Path, name: str, mode: int, readers: str
) -> None:
    """With its mode; also a log that kept the mode from before somebody changed that of the file."""
    async with Tidewheel(f"sqlite:///{tmp_path}/jobs.db") as app:
        await app.enqueue("mail", {})
        assert await of_kind(app, HealthFindingKind.READABLE_FILE) == []
        (tmp_path / name).chmod(mode)
        [found] = await of_kind(app, HealthFindingKind.READABLE_FILE)
    assert found.figures == {"file": str(tmp_path / name), "mode": f"{mode:04o}", "readers": readers}


def test_a_file_on_a_network_is_told_also_where_the_url_allows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody allowed it once, and whoever looks for the cause of a damaged file has to be told."""
    monkeypatch.setattr(health, "file_system_of", lambda _: "nfs4")
    [found] = health.check_environment(parse_url(f"sqlite:///{tmp_path}/jobs.db?network_filesystem=allow"))
    assert found == HealthFinding(
        HealthFindingKind.NETWORK_FILE, {"directory": str(tmp_path), "file_system": "nfs4"}
    )
