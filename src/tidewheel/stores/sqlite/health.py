"""Find problems of the SQLite library, disk, log and file size, and check the integrity of the store.

``find_health_problems`` also reports finished jobs that are overdue for pruning. ``check_integrity`` runs
SQLite's ``integrity_check`` and then tests the rules that the code relies on. It repairs nothing.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import time
from pathlib import Path
from typing import Final

from tidewheel.core.reports import HealthFinding, HealthFindingKind
from tidewheel.core.text_format import plural
from tidewheel.stores.reports import find_overdue_pruning
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.connection import damaged_file_error
from tidewheel.stores.sqlite.location import Location, file_system_of, is_network_file_system
from tidewheel.stores.sqlite.wal_checkpoint import BLOCKING_CHECKPOINT_BYTES

FIXED_VERSION: Final = (3, 51, 3)
"""The first without the WAL-reset bug (sqlite.org/wal.html): before it a checkpoint that races a commit can
damage the file."""
FIXED_BRANCHES: Final = ((3, 44, 6), (3, 50, 7))
"""Older ones that were given the same correction."""
IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
LOW_DISK_BYTES: Final = 512 * 1024 * 1024
"""Bytes free on the disk: a log alone may grow by a tenth of that in a minute."""
LARGE_FILE: Final = 256 * 1024 * 1024
"""Bytes of empty pages from which on it matters that a file has them, …"""
EMPTY_PAGE_RATIO: Final = 0.5
"""… and of all its pages."""
MAX_PROCESSES_CHECKED: Final = 10_000
MAX_HOLDERS_LISTED: Final = 10
READ_LOCKS: Final = range(123, 128)
"""Bytes of a file's shared memory; who is in a read transaction has a lock on one (sqlite.org/walformat)."""
SETTLE_SECONDS: Final = 0.1
"""Who is still reading after so long, and was before, is not just passing by."""

_OLDEST_OVERDUE_SQL: Final = (
    "SELECT min(prune_at) FROM tidewheel_jobs WHERE prune_at IS NOT NULL AND prune_at <= ?"  # by its index
)


def find_health_problems(connection: sqlite3.Connection, location: Location, now: int) -> list[HealthFinding]:
    """All of them. Blocks, as disks do."""
    found = [
        *check_library(),
        *check_environment(location),
        *_check_file_modes(location),
        *_check_wal_size(location),
    ]
    found += _check_disk_space(location)
    [overdue_since] = connection.execute(_OLDEST_OVERDUE_SQL, (now,)).fetchone()
    return [*found, *_check_empty_pages(connection, location), *find_overdue_pruning(overdue_since, now)]


def check_library() -> list[HealthFinding]:
    if not has_reset_bug(sqlite3.sqlite_version_info):
        return []
    figures = {"version": sqlite3.sqlite_version, "fixed": ".".join(map(str, FIXED_VERSION))}
    return [HealthFinding(HealthFindingKind.OLD_SQLITE, figures)]


def has_reset_bug(version: tuple[int, ...]) -> bool:
    branches = (fixed for fixed in FIXED_BRANCHES if fixed[:2] == version[:2])
    return version < next(branches, FIXED_VERSION)


def check_environment(location: Location) -> list[HealthFinding]:
    """What promises less than it could, whatever happens there."""
    found = []
    directory = Path(location.path).parent
    kind = file_system_of(directory)
    if kind in IN_MEMORY:
        found.append(
            HealthFinding(HealthFindingKind.IN_MEMORY, {"directory": str(directory), "file_system": kind})
        )
    if is_network_file_system(kind):  # and the URL allows it, or nothing would be open
        found.append(
            HealthFinding(HealthFindingKind.NETWORK_FILE, {"directory": str(directory), "file_system": kind})
        )
    if location.synchronous != "FULL":
        figures = {"setting": "synchronous", "value": location.synchronous.lower()}
        found.append(HealthFinding(HealthFindingKind.UNSAFE_COMMITS, figures))
    return found


def _check_file_modes(location: Location) -> list[HealthFinding]:
    """The file, its log and its shared memory: a log keeps the mode that the file had when it was made."""
    if os.name != "posix":
        return []  # modes say nothing there
    for path in (location.path, location.wal_path, f"{location.path}-shm"):
        try:
            mode = stat.S_IMODE(os.stat(path).st_mode)
        except FileNotFoundError:
            continue  # nobody has written yet
        except OSError as error:
            return [_could_not_check("the modes of the files", error)]
        if mode & (stat.S_IRGRP | stat.S_IROTH):
            readers = "everyone" if mode & stat.S_IROTH else "the group"
            figures = {"file": path, "mode": f"{mode:04o}", "readers": readers}
            return [HealthFinding(HealthFindingKind.READABLE_FILE, figures)]
    return []


def _check_wal_size(location: Location) -> list[HealthFinding]:
    """A log beyond what the checkpoint waits for readers at is one that some reader does not let be reset."""
    try:
        size = os.stat(location.wal_path).st_size
    except FileNotFoundError:
        return []  # nobody has written yet
    except OSError as error:
        return [_could_not_check("the write-ahead log", error)]
    if size <= BLOCKING_CHECKPOINT_BYTES:
        return []
    figures: dict[str, str | int | float | None] = {
        "bytes": size,
        "limit": BLOCKING_CHECKPOINT_BYTES,
        "file": location.wal_path,
    }
    if readers := readers_of(f"{location.path}-shm"):
        figures["readers"] = ", ".join(readers)
    elif holders := holders_of(location.wal_path):
        figures["holders"] = ", ".join(holders)
    return [HealthFinding(HealthFindingKind.LONG_LOG, figures)]


def readers_of(shared_memory: str) -> list[str]:
    """Other processes that stay in a read transaction, as ``1234 (backup)``, where Linux tells."""
    before = _read_locks(shared_memory)
    if not before:
        return []
    time.sleep(SETTLE_SECONDS)
    found = []
    for process in sorted(before & _read_locks(shared_memory))[:MAX_HOLDERS_LISTED]:
        try:
            found.append(f"{process} ({Path(f'/proc/{process}/comm').read_text().strip()})")
        except OSError:
            continue  # it has ended meanwhile
    return found


def _read_locks(shared_memory: str) -> set[int]:
    """Who has one, apart from this process: ``1: POSIX ADVISORY READ 1234 fe:00:5678 124 124``."""
    try:
        about = os.stat(shared_memory)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return set()
    file = f"{os.major(about.st_dev):02x}:{os.minor(about.st_dev):02x}:{about.st_ino}"
    found = set()
    for line in lines[:MAX_PROCESSES_CHECKED]:
        match line.split():
            case [_, "POSIX", _, "READ", process, place, first, _] if place == file:
                if int(first) in READ_LOCKS and int(process) not in (0, -1, os.getpid()):
                    found.add(int(process))
    return found


def holders_of(path: str) -> list[str]:
    """Other processes that have a file open, as ``1234 (backup)``, as far as the system tells: Linux does."""
    found = []
    for process in sorted(Path("/proc").glob("[0-9]*"))[:MAX_PROCESSES_CHECKED]:
        if process.name == str(os.getpid()):
            continue
        try:
            if any(os.readlink(opened) == path for opened in (process / "fd").iterdir()):
                found.append(f"{process.name} ({(process / 'comm').read_text().strip()})")
        except OSError:
            continue  # somebody else's, or it has ended meanwhile
        if len(found) == MAX_HOLDERS_LISTED:
            break
    return found


def _check_disk_space(location: Location) -> list[HealthFinding]:
    directory = Path(location.path).parent
    try:
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return [_could_not_check("the disk", error)]
    if free >= LOW_DISK_BYTES:
        return []
    return [HealthFinding(HealthFindingKind.LITTLE_SPACE, {"free": free, "directory": str(directory)})]


def _check_empty_pages(connection: sqlite3.Connection, location: Location) -> list[HealthFinding]:
    """Pages that were used once: SQLite fills them again, and never makes the file smaller by itself."""
    [free], [pages], [size] = (
        connection.execute(f"PRAGMA {name}").fetchone()
        for name in ("freelist_count", "page_count", "page_size")
    )
    if free * size < LARGE_FILE or free < pages * EMPTY_PAGE_RATIO:
        return []
    figures = {"table": location.path, "bytes": pages * size, "used": (pages - free) / pages}
    return [HealthFinding(HealthFindingKind.SPARSE, figures)]


def _could_not_check(part: str, error: OSError) -> HealthFinding:
    return HealthFinding(
        HealthFindingKind.UNSEEN, {"part": part, "reason": error.strerror or type(error).__name__}
    )


_integrity_sql = SqlFile("tidewheel.stores.sqlite", "sql/integrity_checks.sql")

MAX_PROBLEMS_PER_RULE: Final = 20
"""Once a rule is broken, more of the same says little."""


def check_integrity(connection: sqlite3.Connection, location: Location) -> list[str]:
    """One line for each problem; nothing is repaired.

    ``integrity_check`` takes three times as long as ``quick_check``, 0.6 s for 100,000 jobs, and is the one
    that looks whether the indexes agree with their table. A job that is missing from an index is never run.
    """
    rows = connection.execute("PRAGMA integrity_check").fetchall()
    # A row may be of many lines, under a title of its own.
    found = [line for row in rows for line in row[0].splitlines() if line != "ok" and line[:3] != "***"]
    if found:
        # Our own rules are about rows, which such a file does not tell reliably.
        told = [f"SQLite: {line}" for line in found[:MAX_PROBLEMS_PER_RULE]]
        if len(found) > MAX_PROBLEMS_PER_RULE:
            told.append(
                f"SQLite: and {len(found) - MAX_PROBLEMS_PER_RULE} more; PRAGMA integrity_check tells them"
            )
        return [str(damaged_file_error(f"SQLite found {plural(len(found), 'problem')}", location)), *told]
    problems: list[str] = []
    for name in _integrity_sql.names():
        problems.extend(
            row[0] for row in connection.execute(_integrity_sql[name]).fetchmany(MAX_PROBLEMS_PER_RULE)
        )
    return problems
