"""What happens to a SQLite file and the disk it is on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.faults.server_troubles import away
from tidewheel.verification.faults import Fault, FaultContext

SMALL_DISK = "256m"


class FileTroubles:
    """Every kind, for the file of one sweep."""

    def __init__(self, path: Path, *, small_disk: bool) -> None:
        self._path = path
        self._small_disk = small_disk
        self._filling = asyncio.Lock()

    def all(self) -> list[Fault]:
        troubles = [
            Fault("long reader", 1, self._long_reader),
            Fault("outsider's checkpoint", 1, self._checkpoint),
        ]
        if self._small_disk:
            troubles.append(Fault("full disk", 0.5, self._fill))
        return troubles

    async def _long_reader(self, scene: FaultContext) -> None:
        """A report that reads for long: no checkpoint can pass it, and the log grows."""
        reader = sqlite3.connect(self._path, isolation_level=None)
        try:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except sqlite3.OperationalError:  # locked or full: another trouble was faster
            reader.close()
            return
        try:
            scene.record_fault("long reader")
            await asyncio.sleep(scene.choose.uniform(1.0, 4.0) * scene.lease)
        finally:
            reader.close()

    async def _checkpoint(self, scene: FaultContext) -> None:
        """What a backup tool or a person with the command line does."""
        with contextlib.suppress(sqlite3.OperationalError):  # locked or full: another trouble was faster
            await asyncio.to_thread(self._truncate)
            scene.record_fault("checkpoint by an outsider")

    def _truncate(self) -> None:
        outsider = sqlite3.connect(self._path, timeout=1.0, isolation_level=None)
        try:
            outsider.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            outsider.close()

    async def _fill(self, scene: FaultContext) -> None:
        if self._filling.locked():
            return
        async with self._filling, away(scene):
            scene.record_fault("disk full")
            filler = self._path.with_name("filler")
            try:
                with contextlib.suppress(OSError), filler.open("wb") as file:
                    while True:
                        file.write(bytes(1_000_000))
                        file.flush()
                await asyncio.sleep(scene.choose.uniform(0.2, 1.5) * scene.lease)
            finally:
                filler.unlink()


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[bool]:
    """A file system of its own that can be filled; False where this machine does not let us mount one."""
    mounted = os.name == "posix" and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tidewheel", directory],
        capture_output=True,
        check=False,
    ).returncode  # fmt: skip
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", directory], check=True)
