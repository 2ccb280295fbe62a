"""Jobs in order of a number, with cheap removal: all of them, or those of each topic."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidewheel.stores.memory.job import Job

_SLACK = 64
"""Forgotten entries a heap may carry before it is worth rebuilding."""


class JobHeap:
    """Jobs, smallest (key, number) first. A job is in one heap at a time.

    A job that leaves is only forgotten: its entry, recognised by an old ticket, is skipped when it surfaces
    and swept out once the forgotten ones are the majority. So every move costs O(log n), wherever it starts.
    """

    def __init__(self) -> None:
        self._entries: list[tuple[int, int, int, Job]] = []
        self._live = 0

    def __len__(self) -> int:
        return self._live

    def __iter__(self) -> Iterator[Job]:
        """Its jobs, in no order."""
        return (entry[3] for entry in self._entries if self._valid(entry))

    def put(self, job: Job, key: int) -> None:
        """Move the job here, out of the heap it is in."""
        if job.heap is not None:
            job.heap.forget(job)
        job.heap = self
        job.ticket += 1
        self._live += 1
        heapq.heappush(self._entries, (key, job.number, job.ticket, job))

    def forget(self, job: Job) -> None:
        """Take the job out."""
        job.heap = None
        self._live -= 1
        if len(self._entries) > 2 * self._live + _SLACK:
            self._entries = [entry for entry in self._entries if self._valid(entry)]
            heapq.heapify(self._entries)

    def first(self) -> Job | None:
        """The job with the smallest key, left where it is."""
        self._skip_forgotten()
        return self._entries[0][3] if self._entries else None

    def first_key(self) -> int | None:
        """The smallest key."""
        self._skip_forgotten()
        return self._entries[0][0] if self._entries else None

    def first_until(self, key: int) -> Job | None:
        """The first job whose key is at most ``key``."""
        smallest = self.first_key()
        return self.first() if smallest is not None and smallest <= key else None

    def _skip_forgotten(self) -> None:
        while self._entries and not self._valid(self._entries[0]):
            heapq.heappop(self._entries)

    def _valid(self, entry: tuple[int, int, int, Job]) -> bool:
        job = entry[3]
        return job.heap is self and job.ticket == entry[2]


class Lines:
    """Jobs in a line for each topic, smallest (key, number) first. A job may stand here beside its heap.

    As in a heap, who leaves is only forgotten; entries hold no jobs, so that nothing is kept alive by them.
    """

    def __init__(self) -> None:
        self._entries: dict[str, list[tuple[int, int]]] = {}
        self._standing: dict[str, dict[int, tuple[int, Job]]] = {}  # by topic and number

    def put(self, job: Job, key: int) -> None:
        """Let a job that does not stand here join its topic's line."""
        self._standing.setdefault(job.topic, {})[job.number] = (key, job)
        heapq.heappush(self._entries.setdefault(job.topic, []), (key, job.number))

    def forget(self, job: Job) -> None:
        """Take the job out, if it is here."""
        standing = self._standing.get(job.topic, {})
        if standing.pop(job.number, None) is None:
            return
        entries = self._entries[job.topic]
        if not standing:
            del self._standing[job.topic], self._entries[job.topic]
        elif len(entries) > 2 * len(standing) + _SLACK:
            entries[:] = [(key, number) for number, (key, _) in standing.items()]
            heapq.heapify(entries)

    def first(self, topic: str, limit: int, wanted: Callable[[Job], bool]) -> list[Job]:
        """The first jobs of a topic that are wanted, left where they are."""
        entries, standing = self._entries.get(topic, []), self._standing.get(topic, {})
        found: list[Job] = []
        seen: list[tuple[int, int]] = []
        while entries and len(found) < limit:
            entry = heapq.heappop(entries)
            key, job = standing.get(entry[1], (None, None))
            # The second of two equal entries is of a job that left and came back: it stands here once.
            if job is None or key != entry[0] or entry in seen[-1:]:
                continue
            seen.append(entry)
            if wanted(job):
                found.append(job)
        for entry in seen:
            heapq.heappush(entries, entry)
        return found


class LinedUpHeap(JobHeap):
    """A heap whose jobs also stand in the lines of their topics, by the same key."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = Lines()

    def put(self, job: Job, key: int) -> None:
        super().put(job, key)
        self.lines.put(job, key)

    def forget(self, job: Job) -> None:
        super().forget(job)
        self.lines.forget(job)
