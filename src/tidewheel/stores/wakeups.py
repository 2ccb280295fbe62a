"""Wake subscribers inside one process, from any thread and on any event loop.

A hint is a flag, not a message: several hints before a ``wait`` count as one, and none guarantees a job.

``LimitWakeups`` delays hints about free places in topics with limits by 10 ms. A worker that ends a job
usually claims the next one itself. Waking 100 workers for one place each time costs the store more than the
jobs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from typing import Final


class WakeupSubscription:
    """One subscription. Any thread may hint; one caller at a time waits, on whatever loop it runs."""

    def __init__(self, *, topics: Collection[str] | None = (), finished: bool = False) -> None:
        self.topics = None if topics is None else frozenset(topics)
        self.finished = finished
        self._lock = threading.Lock()
        self._pending_wakeup = False
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    async def wait(self, timeout: float) -> bool:
        """True once something relevant was hinted since the last call, False after ``timeout`` seconds."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._pending_wakeup:
                self._pending_wakeup = False
                return True
            future = loop.create_future()
            self._waiting = (loop, future)
        timer = loop.call_later(max(timeout, 0.0), _resolve_future, future)
        try:
            await future
        finally:
            timer.cancel()
            with self._lock:
                self._waiting = None
        # Taken only by a wait that was not cancelled: a hint that met a cancelled one is kept for the next.
        with self._lock:
            hinted, self._pending_wakeup = self._pending_wakeup, False
        return hinted

    def nudge(self) -> None:
        """Make the current or next ``wait`` return True. Safe from any thread."""
        with self._lock:
            if self._pending_wakeup:
                return
            self._pending_wakeup = True
            waiting = self._waiting
        if waiting is not None:
            loop, future = waiting
            if asyncio._get_running_loop() is loop:
                _resolve_future(future)  # without the detour through the loop's own socket
                return
            try:
                loop.call_soon_threadsafe(_resolve_future, future)
            except RuntimeError:
                # The listener's loop was closed while it waited: nobody is left to hear this hint, and the
                # one who gave it (an enqueue that already succeeded) must not suffer for it.
                if not loop.is_closed():
                    raise

    def matches(self, topics: Collection[str] | None) -> bool:
        """Whether jobs of these topics (None = unknown ones) concern this subscription."""
        if self.topics is None:
            return True
        return bool(self.topics) if topics is None else not self.topics.isdisjoint(topics)


class WakeupHub:
    """Where the subscriptions of one process meet the writes that concern them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Replaced, never changed in place, so that hints can walk it without the lock.
        self._subscriptions: tuple[WakeupSubscription, ...] = ()

    @asynccontextmanager
    async def subscribe(
        self, *, topics: Collection[str] | None = (), finished: bool = False
    ) -> AsyncIterator[WakeupSubscription]:
        """Hear that jobs of ``topics`` (None = any) may be due, or, with ``notify_finished``, that jobs
        ended.
        """
        subscription = WakeupSubscription(topics=topics, finished=finished)
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)
        try:
            yield subscription
        finally:
            with self._lock:
                self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)

    def notify_ready(self, topics: Collection[str] | None = None) -> None:
        """Jobs of these topics (None = it is not known which) may be due. From any thread."""
        for subscription in self._subscriptions:
            if subscription.matches(topics):
                subscription.nudge()

    def notify_finished(self) -> None:
        """Jobs ended. From any thread."""
        for subscription in self._subscriptions:
            if subscription.finished:
                subscription.nudge()


def _resolve_future(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


LOCAL_CLAIM_SECONDS: Final = 0.01
"""How long room is left to those who are here: several times what a claim takes."""


class LimitWakeups:
    """What came free and was not taken again, by topic. Moments are monotonic, in seconds."""

    def __init__(self) -> None:
        self._freed_slots: dict[str, int] = {}
        self._notify_at: dict[str, float] = {}  # when others are to be told, earliest first

    def add_freed_slots(self, changes: Mapping[str, int], now: float) -> None:
        """So many places of each topic came free, or were taken (less than zero)."""
        for topic, change in changes.items():
            free = self._freed_slots.get(topic, 0) + change
            if free > 0:
                self._freed_slots[topic] = free
                self._notify_at.setdefault(topic, now + LOCAL_CLAIM_SECONDS)
            else:
                self._forget(topic)

    def due_in(self, now: float) -> float | None:
        """Seconds until others are to be told; None: there is nothing to tell."""
        return max(0.0, next(iter(self._notify_at.values())) - now) if self._notify_at else None

    def pop_due_topics(self, now: float) -> set[str]:
        """Topics of which others are to be told now."""
        if not self._notify_at:
            return set()
        topics = {topic for topic, due in self._notify_at.items() if due <= now}
        for topic in topics:
            self._forget(topic)
        return topics

    def pop_all_topics(self) -> set[str]:
        """Topics of which others are to be told because nobody here will take anything any more."""
        topics = set(self._notify_at)
        self._freed_slots.clear()
        self._notify_at.clear()
        return topics

    def _forget(self, topic: str) -> None:
        self._freed_slots.pop(topic, None)
        self._notify_at.pop(topic, None)
