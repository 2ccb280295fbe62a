"""What a disk may hold after a power cut, from a log of the system calls that wrote to it.

All that was synced is there. Of everything since, each part may be there or not: whole writes, single sectors
of them, changes of a file's length, new names and removed names in the directory. Nothing else is assumed: a
file that was synced still has no name until its directory was synced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tests.faults.sqlite.strace import SYNCS, Call

SECTOR = 512


class Variant(StrEnum):
    """Which of the unsynced changes reached the disk."""

    NONE = "none"
    ALL = "all"
    SOME = "some"  # any whole writes
    TORN = "torn"  # any sectors, each as it was at some moment since the sync


@dataclass(frozen=True, slots=True)
class Change:
    """A write, or with ``size`` a change of the length."""

    offset: int = 0
    data: bytes = b""
    size: int | None = None

    def apply(self, content: bytearray) -> None:
        if self.size is not None:
            del content[self.size :]
            content.extend(bytes(self.size - len(content)))
            return
        end = self.offset + len(self.data)
        content.extend(bytes(max(0, end - len(content))))
        content[self.offset : end] = self.data

    def sectors(self) -> Iterator[Change]:
        """The same, sector by sector."""
        if self.size is not None:
            yield self
            return
        start = self.offset
        while start < self.offset + len(self.data):
            end = min(start - start % SECTOR + SECTOR, self.offset + len(self.data))
            yield Change(start, self.data[start - self.offset : end - self.offset])
            start = end


@dataclass(slots=True)
class _File:
    synced: bytearray = field(default_factory=bytearray)
    since: list[Change] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.since:
            change.apply(self.synced)
        self.since.clear()

    def after_cut(self, variant: Variant, luck: random.Random) -> bytearray:
        content = bytearray(self.synced)
        for change in _survivors(self.since, variant, luck):
            change.apply(content)
        return content


def _survivors(changes: Sequence[Change], variant: Variant, luck: random.Random) -> Iterable[Change]:
    match variant:
        case Variant.NONE:
            return ()
        case Variant.ALL:
            return changes
        case Variant.SOME:
            return [change for change in changes if luck.random() < 0.5]
        case Variant.TORN:
            # A sector goes to the disk as it is in memory at that moment: with all its changes until then.
            moments: dict[int | None, int] = {}
            kept = []
            for moment, change in enumerate(changes):
                for part in change.sectors():
                    place = None if part.size is not None else part.offset // SECTOR
                    if moment <= moments.setdefault(place, luck.randint(-1, len(changes) - 1)):
                        kept.append(part)
            return kept


_Entries = dict[str, _File]


class Disk:
    """One directory, fed with system calls in their order."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._now: _Entries = {}
        self._synced: _Entries = {}
        self._since: list[Callable[[_Entries], None]] = []

    def feed(self, call: Call) -> None:
        if call.failed:
            return
        if call.path == self._directory:
            if call.name in SYNCS:
                self._sync_directory()
        elif call.name == "openat":
            if "O_CREAT" in call.flags and call.path not in self._now:
                self._enter(call.path)
        elif call.name == "unlink":
            self._remove(call.path)
        elif (file := self._now.get(call.path)) is None:
            # Written after its removal, by a descriptor that was still open: no name leads there.
            return
        elif call.name in SYNCS:
            file.sync()
        elif call.name == "ftruncate":
            file.since.append(Change(size=call.offset))
        else:
            file.since.append(Change(call.offset, call.data))

    def cut(self, variant: Variant, luck: random.Random, target: Path) -> None:
        """Write what may be left into another directory."""
        entries = dict(self._synced)
        for change in self._since:
            if variant is Variant.ALL or (variant is not Variant.NONE and luck.random() < 0.5):
                change(entries)
        for path, file in entries.items():
            (target / Path(path).name).write_bytes(file.after_cut(variant, luck))

    def _enter(self, path: str) -> None:
        file = _File()
        self._now[path] = file
        self._since.append(lambda entries: entries.__setitem__(path, file))

    def _remove(self, path: str) -> None:
        self._now.pop(path, None)
        self._since.append(lambda entries: _forget(entries, path))

    def _sync_directory(self) -> None:
        for change in self._since:
            change(self._synced)
        self._since.clear()


def _forget(entries: _Entries, path: str) -> None:
    entries.pop(path, None)
