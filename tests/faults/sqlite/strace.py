"""strace: stop, kill or lie to a process at an exact system call on the database's files, or write them down.

Only calls on the given paths count, for injection as for the record. strace counts each kind of call of each
thread on its own, so a point is named by both: the third ``pwrite64``. All that changes a database is done by
one thread of ours, and ``points`` insists on it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.packages import STRACE, library_path, unpacked

CHANGING = ("pwrite64", "write", "fdatasync", "fsync", "ftruncate", "unlink")
"""What SQLite changes its files with on Linux; ``write`` is the acknowledgements' own."""

SYNCS = ("fdatasync", "fsync")


class TracingRefused(Exception):
    """The system does not let strace do its work. Not a reason to skip: the promise would go untried."""


@functools.cache
def strace() -> tuple[str, dict[str, str]]:
    """The program and the environment it needs: the system's, else from Debian's package."""
    if found := shutil.which(STRACE.name):
        return found, dict(os.environ)
    root = unpacked(STRACE)
    return str(STRACE.of(root)), library_path(root)


def files_of(database: Path) -> list[Path]:
    """The names SQLite uses."""
    return [database, *(Path(f"{database}{ending}") for ending in ("-wal", "-shm", "-journal"))]


def lasting(database: Path) -> tuple[Path, ...]:
    """What is there after a crash: not ``-shm``, which is memory. The directory is synced, too."""
    return (*(file for file in files_of(database) if file.suffix != ".db-shm"), database.parent)


@dataclass(frozen=True, slots=True)
class Tracing:
    """What strace is told: which files, which calls, what to do to them, where to write them down."""

    paths: tuple[Path, ...]
    log: Path
    inject: tuple[str, ...] = ()
    """As in ``fdatasync:error=EIO:when=2``."""
    calls: tuple[str, ...] = CHANGING
    bytes_shown: int = 0

    def attach_to(self, process: int) -> list[str]:
        """The command that traces a process which runs already."""
        return [*self._options(), "-p", str(process)]

    def run(self, command: Sequence[str]) -> list[str]:
        """The command that runs another one; calls that are not traced cost it nothing."""
        return [*self._options(), "--seccomp-bpf", *command]

    def _options(self) -> list[str]:
        options = [strace()[0], "-f", "-y", "-xx", "-s", str(self.bytes_shown), "-o", str(self.log)]
        options += ["-e", f"trace={','.join(self.calls)}"]
        for path in self.paths:
            options += ["-P", str(path)]
        for injection in self.inject:
            options += ["-e", f"inject={injection}"]
        return options


def refused(said: str) -> TracingRefused:
    return TracingRefused(
        f"strace could not trace: {said.strip() or 'it said nothing'}; in a container allow it "
        "(--cap-add=SYS_PTRACE), elsewhere set /proc/sys/kernel/yama/ptrace_scope to 0 or 1"
    )


@dataclass(frozen=True, slots=True)
class Call:
    """One system call on one of the files, as strace saw it."""

    thread: int
    name: str
    path: str
    data: bytes = field(default=b"", repr=False)
    offset: int = 0
    """Where a write begins; the new size, for ``ftruncate``."""
    flags: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """A call to be killed at: the how-manieth of its kind."""

    name: str
    ordinal: int

    def inject(self, what: str) -> str:
        return f"{self.name}:{what}:when={self.ordinal}"

    def __str__(self) -> str:
        return f"{self.name} {self.ordinal}"


def points(calls: Sequence[Call]) -> list[Point]:
    """Every call as a point. They must be one thread's: strace counts threads apart."""
    threads = {call.thread for call in calls}
    assert len(threads) <= 1, f"the files are changed by {len(threads)} threads, so no point is certain"
    seen: Counter[str] = Counter()
    found = []
    for call in calls:
        seen[call.name] += 1
        found.append(Point(call.name, seen[call.name]))
    return found


_LINE = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+|\?)(.*)", re.DOTALL)
_UNFINISHED = re.compile(r"(\d+) +(\w+\(.*) <unfinished \.\.\.>", re.DOTALL)
_RESUMED = re.compile(r"(\d+) +<\.\.\. \w+ resumed>(.*)", re.DOTALL)
_DESCRIPTOR = re.compile(r"-?\d+<([^>]*)>")
_TEXT = re.compile(r'"([^"]*)"(?:\.\.\.)?')


def read_log(log: Path) -> list[Call]:
    """The calls in the order in which they can have mattered.

    A sync is worth something when it has returned; everything else may have happened once it began. That is
    the order that promises least.
    """
    lines = log.read_text("ascii").splitlines()
    begun: dict[str, tuple[int, str]] = {}
    placed: list[tuple[int, Call]] = []
    for place, line in enumerate(lines):
        began, whole = place, line
        if match := _UNFINISHED.fullmatch(line):
            begun[match[1]] = (place, line.removesuffix(" <unfinished ...>"))
            continue
        if (match := _RESUMED.fullmatch(line)) and match[1] in begun:
            began, head = begun.pop(match[1])
            whole = head + match[2]
        if call := _parse(whole):
            placed.append((place if call.name in SYNCS else began, call))
    # A process that was killed ends in the middle of calls.
    placed += [(began, call) for began, head in begun.values() if (call := _parse(head + ") = ?"))]
    return [call for _, call in sorted(placed, key=lambda entry: entry[0])]


def _parse(line: str) -> Call | None:
    match = _LINE.fullmatch(line)
    if match is None:
        return None  # a signal, or the end of a thread
    thread, name, arguments, result, _ = match.groups()
    failed = result == "?" or int(result) < 0
    texts = list(_texts(arguments))
    numbers = [int(part) for part in arguments.split(", ") if part.isdigit()]
    if name in {"unlink", "openat"}:
        flags = next((part for part in arguments.split(", ") if part.startswith("O_")), "")
        return Call(int(thread), name, os.fsdecode(texts[0]), flags=flags, failed=failed)
    descriptor = _DESCRIPTOR.match(arguments)
    assert descriptor is not None, line[:200]
    path = os.fsdecode(_bytes(descriptor[1])).removesuffix(" (deleted)")
    data = texts[0] if texts else b""
    # A write names its length before its place; a truncation only its size.
    offset = numbers[-1] if name in {"pwrite64", "ftruncate"} else 0
    return Call(int(thread), name, path, data, offset, failed=failed)


def _texts(arguments: str) -> Iterator[bytes]:
    for text in _TEXT.findall(arguments):
        yield _bytes(text)


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
