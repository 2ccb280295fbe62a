"""Jobs that were claimed for callers who have not asked yet.

Most clients end a job and ask for the next one at once. Whoever did so the last time has it claimed in the
transaction that ends its job, and finds it here: one commit for each job instead of two. It stays for a
moment only. What would show that it is not waiting any more makes its owner let go of it first.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from tidewheel.pull.job_returner import PulledJob

KEEP_SECONDS: Final = 0.005
"""Seconds that a job is kept for somebody: a few times what it takes to be told and to ask."""


class PrefetchedJobs:
    """What is kept, for each set of topics that somebody asks for."""

    def __init__(self, give_back: Callable[[list[PulledJob]], None]) -> None:
        self._give_back = give_back
        self._kept: dict[frozenset[str], deque[tuple[float, PulledJob]]] = {}  # until when, oldest first
        self._timer: asyncio.TimerHandle | None = None
        self._expected: Counter[frozenset[str]] = Counter()

    def expect_request(self, topics: frozenset[str]) -> None:
        """Somebody ends a job now, and will ask for one of these topics."""
        self._expected[topics] += 1

    def expected_topics(self) -> list[frozenset[str]]:
        """What there are jobs to be claimed for."""
        return list(self._expected)

    def clear_expected(self) -> None:
        """Who ended a job and did not come would be expected for ever."""
        self._expected.clear()

    def take_missing(self, topics: frozenset[str]) -> int:
        """How many jobs are to be claimed for those who are expected to ask for these. Told once."""
        return max(0, self._expected.pop(topics, 0) - len(self._kept.get(topics, ())))

    def __bool__(self) -> bool:
        return bool(self._kept)

    def keep(self, topics: frozenset[str], jobs: list[PulledJob]) -> None:
        """For whoever asks for these topics next, the best first."""
        if not jobs:
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + KEEP_SECONDS
        self._kept.setdefault(topics, deque()).extend((until, pulled) for pulled in jobs)
        if self._timer is None:
            self._timer = loop.call_at(until, self._return_expired)

    def take(self, topics: frozenset[str]) -> PulledJob | None:
        """The next one for who asks for just these topics, and is not expected any more."""
        kept = self._kept.get(topics)
        if kept is None:
            if self._expected.get(topics, 0) > 1:
                self._expected[topics] -= 1
            else:
                self._expected.pop(topics, None)
            return None
        until, pulled = kept.popleft()
        if not kept:
            del self._kept[topics]
        if until < asyncio.get_running_loop().time():  # nobody could let go of it: something blocked the loop
            self._give_back([pulled])
            return None
        return pulled

    def return_overtaken(self, topic: str, priority: int) -> None:
        """A job of this topic is on its way: those it comes before are not the next ones any more."""
        for topics, kept in self._kept.items():
            if topic in topics and any(pulled.job.priority < priority for _, pulled in kept):
                self.return_all()
                return

    def return_all(self) -> None:
        """Of everything."""
        kept, self._kept = self._kept, {}
        if kept:
            self._give_back([pulled for jobs in kept.values() for _, pulled in jobs])

    def _return_expired(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        old: list[PulledJob] = []
        for topics, kept in list(self._kept.items()):
            while kept and kept[0][0] <= now:
                old.append(kept.popleft()[1])
            if not kept:
                del self._kept[topics]
        if old:
            self._give_back(old)
        if self._kept:
            soonest = min(kept[0][0] for kept in self._kept.values())
            self._timer = loop.call_at(soonest, self._return_expired)
