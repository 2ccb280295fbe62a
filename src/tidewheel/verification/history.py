"""What happened, as events: the one thing the processes under test, the fault sweep and the checker share.

A process that speaks with a store writes down every call before it is sent and every answer after it came.
Handlers write when they start and end, the sweep writes whom it killed and when the store was away, and at
the end everything that is stored. ``checker`` then asks whether all of it can be true at once.

Times are seconds of a monotonic clock that all processes share (on Linux they do, per machine).
``by`` names a process, and no two processes ever share a name: a worker that is replaced gets another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Struct


class Result(StrEnum):
    """What a caller knows about a call that is over."""

    OK = "ok"
    FAILED = "failed"  # for certain: it changed nothing
    UNKNOWN = "unknown"  # the answer was lost; it may have happened, and may even happen later


class _Event(Struct, frozen=True, kw_only=True, tag_field="event", tag=str, omit_defaults=True, gc=False):
    at: float
    process: str = ""


class _Call(_Event, frozen=True, kw_only=True, tag=str, gc=False):
    call: int  # numbered by the process; the answer has the same


class _Answer(_Event, frozen=True, kw_only=True, tag=str, gc=False):
    call: int
    result: Result


# -- calls and their answers --------------------------------------------------------------------------------


class RequestedJob(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A job as its producer wanted it."""

    id: UUID
    topic: str
    tenant: str
    task: str = ""
    key: str | None = None
    delay: float = 0.0
    max_attempts: int | None = 3
    after: tuple[UUID, ...] = ()
    after_any: bool = False


class EnqueueCalled(_Call, frozen=True, tag="enqueue", gc=False):
    jobs: list[RequestedJob]


class EnqueueAnswered(_Answer, frozen=True, kw_only=True, tag="enqueue_answer", gc=False):
    ids: list[UUID] = []  # in the order of the jobs: theirs, or those of the jobs that hold their keys
    duplicates: list[bool] = []


class ClaimCalled(_Call, frozen=True, kw_only=True, tag="claim", gc=False):
    topics: list[str]
    limit: int


class Granted(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One job of a claim's answer."""

    id: UUID
    fence: int
    attempt: int
    lease: float
    topic: str
    tenant: str
    alone: bool = False


class ClaimAnswered(_Answer, frozen=True, kw_only=True, tag="claim_answer", gc=False):
    grants: list[Granted] = []


class HeldLease(Struct, frozen=True, array_like=True, gc=False):
    """A lease, as it is named in a call."""

    id: UUID
    fence: int


class ExtendCalled(_Call, frozen=True, kw_only=True, tag="extend", gc=False):
    leases: list[HeldLease]
    seconds: float


class ExtendAnswered(_Answer, frozen=True, kw_only=True, tag="extend_answer", gc=False):
    kept: list[bool] = []
    seconds: list[float] = []  # how long each lasts, where the job's own length decided


class RequestedSettlement(Struct, frozen=True, array_like=True, gc=False):
    """One settlement: ``outcome`` is complete, retry, fail, release or cancel."""

    id: UUID
    fence: int
    outcome: str
    delay: float = 0.0


class SettleCalled(_Call, frozen=True, kw_only=True, tag="settle", gc=False):
    settlements: list[RequestedSettlement]


class SettleAnswered(_Answer, frozen=True, kw_only=True, tag="settle_answer", gc=False):
    accepted: list[bool] = []


class CancelCalled(_Call, frozen=True, kw_only=True, tag="cancel", gc=False):
    ids: list[UUID]


class CancelAnswered(_Answer, frozen=True, kw_only=True, tag="cancel_answer", gc=False):
    verdicts: list[str] = []  # done, requested, not_found, …


class JobsListed(_Event, frozen=True, kw_only=True, tag="listed", gc=False):
    """What a caller who may see one tenant was shown."""

    tenant: str
    ids: list[UUID]


# -- handlers -----------------------------------------------------------------------------------------------


class HandlerStarted(_Event, frozen=True, kw_only=True, tag="start", gc=False):
    """A handler began, under this lease."""

    id: UUID
    fence: int


class HandlerEnded(_Event, frozen=True, kw_only=True, tag="end", gc=False):
    """A handler came to its end: well, or by raising."""

    id: UUID
    fence: int
    succeeded: bool = True


# -- what the sweep did -------------------------------------------------------------------------------------


class ProcessEnded(_Event, frozen=True, kw_only=True, tag="died", gc=False):
    """The process named by ``process`` is gone for good."""


class ProcessFrozen(_Event, frozen=True, kw_only=True, tag="froze", gc=False):
    """The process stands still, until ``ProcessResumed`` or for ever."""


class ProcessResumed(_Event, frozen=True, kw_only=True, tag="thawed", gc=False):
    """The process goes on."""


class StoreUnreachable(_Event, frozen=True, kw_only=True, tag="store_left", gc=False):
    """From now on nobody, or (with ``process``) one process, can reach the store."""


class StoreReachable(_Event, frozen=True, kw_only=True, tag="store_came", gc=False):
    """The store can be reached again."""


class ClockStepped(_Event, frozen=True, kw_only=True, tag="clock_stepped", gc=False):
    """The store's clock jumped, so what it says about leases and due times is off by this much."""

    seconds: float


class FaultInjected(_Event, frozen=True, kw_only=True, tag="trouble", gc=False):
    """A fault was injected; for the report."""

    kind: str


# -- the end ------------------------------------------------------------------------------------------------


class StoredJob(_Event, frozen=True, kw_only=True, tag="stored", gc=False):
    """One job as it is stored at the end."""

    id: UUID
    topic: str
    tenant: str
    task: str
    key: str | None
    state: str
    attempt: int
    max_attempts: int | None
    fence: int
    ended: float | None = None  # when it reached its final state, by the clock of ``at``
    error: str | None = None  # code of the newest error


class JobsCounted(_Event, frozen=True, kw_only=True, tag="counted", gc=False):
    """How many jobs the store says there are, by topic and state."""

    topic: str
    states: dict[str, int]


class WorkloadDrained(_Event, frozen=True, kw_only=True, tag="quiet", gc=False):
    """Nothing is going on any more; what is stored now is the end of the story."""


Event: TypeAlias = (
    EnqueueCalled
    | EnqueueAnswered
    | ClaimCalled
    | ClaimAnswered
    | ExtendCalled
    | ExtendAnswered
    | SettleCalled
    | SettleAnswered
    | CancelCalled
    | CancelAnswered
    | JobsListed
    | HandlerStarted
    | HandlerEnded
    | ProcessEnded
    | ProcessFrozen
    | ProcessResumed
    | StoreUnreachable
    | StoreReachable
    | ClockStepped
    | FaultInjected
    | StoredJob
    | JobsCounted
    | WorkloadDrained
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Event)


# -- writing and reading ------------------------------------------------------------------------------------


class Recorder(Protocol):
    """Where a process writes down what happens to it."""

    name: str

    def now(self) -> float:
        """The time that goes into events."""

    def write(self, event: Event) -> None:
        """Keep this event. It must be kept even when the process dies at the next instruction."""


class FileRecorder:
    """One line per event, written with one ``write`` to a file that is opened for appending.

    Processes may share the file: the system keeps such lines apart, and a process that is killed leaves
    whole ones (the last may be cut off when the machine itself dies, which is left out when read).
    """

    def __init__(self, path: Path, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.now = clock
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: Event) -> None:
        os.write(self._file, _encoder.encode(event) + b"\n")

    def close(self) -> None:
        os.close(self._file)


class ListRecorder:
    """Events in memory, for a simulation and for tests."""

    def __init__(self, events: list[Event], name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self.now = clock
        self._events = events

    def write(self, event: Event) -> None:
        self._events.append(event)


def read_history(paths: Iterable[Path]) -> Iterator[Event]:
    """Every whole line of these files; what is being written just now is left for the next time."""
    for path in paths:
        with path.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    yield _decoder.decode(line)


def encode(event: Event) -> str:
    """One event as it is written to a file; also how a finding is shown to people."""
    return _encoder.encode(event).decode()
