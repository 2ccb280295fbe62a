"""What a file says of itself: who keeps its log from being reset, and how empty it is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.findings import Ailment, AilmentKind
from windlass.stores.sqlite import ailing

needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only Linux tells")

HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN")
connection.execute("SELECT count(*) FROM windlass_jobs").fetchall()
print("holding", flush=True)
sys.stdin.read()
"""


async def of_kind(app: Windlass, kind: AilmentKind) -> list[Ailment]:
    return [ailment for ailment in await app.store.ailments() if ailment.kind is kind]


@needs_proc
async def test_who_has_a_log_open_that_cannot_be_reset_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program with its process id and its name, and not we ourselves."""
    monkeypatch.setattr(ailing, "PATIENT_BYTES", 0)
    file = tmp_path / "jobs.db"
    async with Windlass(f"sqlite:///{file}") as app:
        await app.enqueue("mail")
        [alone] = await of_kind(app, AilmentKind.LONG_LOG)
        assert "holders" not in alone.figures
        with subprocess.Popen(  # noqa: ASYNC220 - nothing else runs on this loop
            [sys.executable, "-c", HOLDER, str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holder:
            assert holder.stdout is not None
            assert holder.stdin is not None
            assert holder.stdout.readline() == "holding\n"
            [held] = await of_kind(app, AilmentKind.LONG_LOG)
            holder.stdin.close()
        assert str(held.figures["holders"]).startswith(f"{holder.pid} (python")
        assert str(os.getpid()) not in str(held.figures["holders"])


async def test_a_file_that_is_mostly_empty_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It never becomes smaller by itself; how much of it is used is said."""
    monkeypatch.setattr(ailing, "LARGE_FILE", 100_000)
    file = tmp_path / "jobs.db"
    async with Windlass(f"sqlite:///{file}") as app:
        connection = sqlite3.connect(file)
        connection.execute("CREATE TABLE own (text)")
        connection.executemany("INSERT INTO own VALUES (?)", [("x" * 1000,)] * 1000)
        connection.commit()
        assert await of_kind(app, AilmentKind.SPARSE) == []
        connection.execute("DROP TABLE own")
        connection.commit()
        connection.close()
        [sparse] = await of_kind(app, AilmentKind.SPARSE)
    used = sparse.figures["used"]
    assert isinstance(used, float)
    assert 0 < used < 0.5
    assert sparse.figures["table"] == str(file)
