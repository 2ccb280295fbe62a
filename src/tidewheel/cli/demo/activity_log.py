"""What happens in the demo, as it is told to the person watching."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from uuid import UUID

from tidewheel.errors import Fail, RetryAfter
from tidewheel.tasks.context import Context, ReleaseRequested

MAX_EVENTS: Final = 500
GROUP_SECONDS: Final = 0.5
"""Events of one group within this long become one line: forty emails a second are no reading matter."""


class ActivityKind(StrEnum):
    """What sort of thing happened."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    DUPLICATE = "duplicate"
    RESUMED = "resumed"
    PLANNED = "planned"
    PAUSED = "paused"


@dataclass(slots=True)
class ActivityEvent:
    """One line of the journal; ``count`` grows while its group gathers."""

    at: float
    kind: ActivityKind
    topic: str
    text: str
    group: str = ""
    count: int = 1

    def __str__(self) -> str:
        if self.count > 1:
            return f"{self.count:,} {self.group}s, the last {self.text}"
        return f"{self.group} {self.text}" if self.group else self.text


@dataclass(slots=True)
class RunningHandler:
    """A job whose handler is at work right now."""

    topic: str
    title: str
    started: float
    percent: float | None = None
    message: str = ""


@dataclass(slots=True)
class ActivityLog:
    """Everything the view shows that the store does not keep."""

    events: deque[ActivityEvent] = field(default_factory=lambda: deque(maxlen=MAX_EVENTS))
    running: dict[UUID, RunningHandler] = field(default_factory=dict)
    counts: Counter[ActivityKind] = field(default_factory=Counter)
    _start: float = field(default_factory=time.monotonic)
    _taken: int = 0
    _added: int = 0

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._start

    def add(self, kind: ActivityKind, topic: str, text: str, *, group: str = "") -> None:
        """Remember an event, or let it join its group's newest line."""
        now = self.seconds
        self.counts[kind] += 1
        if group:
            newest = next((event for event in reversed(self.events) if event.group == group), None)
            if newest is not None and now - newest.at < GROUP_SECONDS:
                newest.count += 1
                newest.text = text
                return
        self.events.append(ActivityEvent(now, kind, topic, text, group))
        self._added += 1

    def take_events(self, *, include_open_groups: bool = False) -> list[ActivityEvent]:
        """Events not handed out before, in order; lines that still gather wait, unless ``everything``."""
        fresh = min(self._added - self._taken, len(self.events))
        events = list(self.events)[len(self.events) - fresh :]
        if not include_open_groups:
            events = list(itertools.takewhile(self._complete, events))
        self._taken = self._added - fresh + len(events)
        return events

    def _complete(self, event: ActivityEvent) -> bool:
        return not event.group or self.seconds - event.at >= GROUP_SECONDS

    @asynccontextmanager
    async def track_attempt(
        self, ctx: Context, what: str, *, group: str = ""
    ) -> AsyncIterator[RunningHandler]:
        """Around a handler's work: shows it as running, and tells how it ended."""
        topic = ctx.job.topic
        running = self.running[ctx.job.id] = RunningHandler(topic, what, self.seconds)
        of = f"({ctx.attempt}/{ctx.job.max_attempts})"
        try:
            yield running
        except RetryAfter as error:
            again = "no attempt left" if ctx.last_attempt else f"again in {error.delay:g} s"
            self.add(_failure_kind(ctx), topic, f"{what}: {error.reason}, {again} {of}")
            raise
        except Fail as error:
            self.add(ActivityKind.FAILED, topic, f"{what}: {error.reason}, no more tries")
            raise
        except (ReleaseRequested, asyncio.CancelledError):
            raise  # the demo ends; the job goes back to the queue
        except Exception as error:
            again = "no attempt left" if ctx.last_attempt else "backs off"
            self.add(_failure_kind(ctx), topic, f"{what}: {error}, {again} {of}")
            raise
        else:
            tries = f" at attempt {ctx.attempt}" if ctx.attempt > 1 else ""
            self.add(ActivityKind.DONE, topic, f"{what}{tries}", group=group)
        finally:
            self.running.pop(ctx.job.id, None)


def _failure_kind(ctx: Context) -> ActivityKind:
    return ActivityKind.FAILED if ctx.last_attempt else ActivityKind.RETRY
