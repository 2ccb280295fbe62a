"""From events to lives: every job with those who asked for it, its leases, its runs and how it is stored.

Nothing is judged here. What a process could not know, because it died or its answer was lost, is None.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import assert_never
from uuid import UUID

from tidewheel.verification.history import (
    CancelAnswered,
    CancelCalled,
    ClaimAnswered,
    ClaimCalled,
    ClockStepped,
    EnqueueAnswered,
    EnqueueCalled,
    Event,
    ExtendAnswered,
    ExtendCalled,
    FaultInjected,
    Granted,
    HandlerEnded,
    HandlerStarted,
    JobsCounted,
    JobsListed,
    ProcessEnded,
    ProcessFrozen,
    ProcessResumed,
    RequestedJob,
    Result,
    SettleAnswered,
    SettleCalled,
    StoredJob,
    StoreReachable,
    StoreUnreachable,
    WorkloadDrained,
)

FOREVER = float("inf")


@dataclass(slots=True)
class ExtendCall:
    sent: float
    seconds: float
    answered: float | None = None
    kept: bool | None = None
    refused: bool = False  # by the store itself, whose word it is that the lease does not hold


@dataclass(slots=True)
class SettleCall:
    sent: float
    outcome: str
    delay: float
    answered: float | None = None
    accepted: bool | None = None
    refused: bool = False  # as above; otherwise the call failed for certain, or nobody knows


@dataclass(slots=True)
class LeaseHistory:
    """One grant, and everything done under it."""

    granted: Granted
    process: str
    claimed_at: float
    granted_at: float
    extensions: list[ExtendCall] = field(default_factory=list)
    settle_calls: list[SettleCall] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    ended: list[tuple[float, bool]] = field(default_factory=list)

    @property
    def fence(self) -> int:
        return self.granted.fence

    @property
    def seconds(self) -> float:
        return self.granted.lease

    @property
    def held_at_least_until(self) -> float:
        """It holds at least so long, for all its holder knows, who gives it up when it sends an ending."""
        until = [self.claimed_at + self.seconds]
        until += [extension.sent + extension.seconds for extension in self.extensions if extension.kept]
        # One that failed for certain ends nothing: its holder goes on.
        given_up = [one.sent for one in self.settle_calls if one.accepted is not False or one.refused]
        return min([max(until), *given_up])

    def held_at_least_as_of(self, moment: float) -> float:
        """Until when it holds at least, as of the extensions that were answered before ``moment``."""
        until = [self.claimed_at + self.seconds]
        until += [
            one.sent + one.seconds
            for one in self.extensions
            if one.kept and one.answered is not None and one.answered <= moment
        ]
        return max(until)

    @property
    def held_at_most_until(self) -> float:
        """It cannot hold longer.

        An extension whose answer was lost may have come into force late, but only while the lease still held.
        """
        ends = [self.granted_at + self.seconds]
        ends += [one.answered + one.seconds for one in self.extensions if one.kept and one.answered]
        return max(ends) + sum(one.seconds for one in self.extensions if one.kept is None)

    @property
    def end_is_known(self) -> bool:
        """Whether it is known when it ended: the answer to no extension was lost."""
        return all(one.kept is not None for one in self.extensions)

    @property
    def accepted(self) -> list[SettleCall]:
        return [settling for settling in self.settle_calls if settling.accepted]

    def earliest_settled_at(self, accepted: SettleCall) -> float:
        """When an accepted ending may have been sent first: one whose answer is lost is sent again, and the
        store then answers for the first one.
        """
        before = [
            one.sent for one in self.settle_calls if one.accepted is None and one.outcome == accepted.outcome
        ]
        return min([accepted.sent, *before])

    @property
    def unknown_outcomes(self) -> set[str]:
        """Endings that may have been accepted without anybody having heard of it."""
        return {settling.outcome for settling in self.settle_calls if settling.accepted is None}


@dataclass(slots=True)
class CancelCall:
    sent: float
    answered: float | None = None
    verdict: str | None = None


@dataclass(slots=True)
class JobHistory:
    """One job."""

    id: UUID
    request: RequestedJob | None = None
    requested_at: float = 0.0
    request_count: int = 0
    leases: list[LeaseHistory] = field(default_factory=list)  # in the order in which they were received
    cancel_calls: list[CancelCall] = field(default_factory=list)
    stored: list[StoredJob] = field(default_factory=list)

    @property
    def grants(self) -> list[LeaseHistory]:
        """Its leases as they were granted: the answer to an earlier claim may be the later one to arrive."""
        return sorted(self.leases, key=lambda lease: lease.fence)

    @property
    def end(self) -> StoredJob | None:
        return self.stored[0] if self.stored else None


@dataclass(slots=True)
class EnqueueCall:
    called: EnqueueCalled
    answered: EnqueueAnswered | None = None

    @property
    def result(self) -> Result:
        return Result.UNKNOWN if self.answered is None else self.answered.result


@dataclass(slots=True)
class ClaimCall:
    called: ClaimCalled
    answered: ClaimAnswered | None = None


@dataclass(slots=True)
class Outage:
    """A stretch of time in which a process, or the store, was not there."""

    process: str
    begin: float
    end: float = FOREVER


class HistoryIndex:
    """A history, sorted by what it is about."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.jobs: dict[UUID, JobHistory] = {}
        self.enqueue_calls: list[EnqueueCall] = []
        self.claim_calls: list[ClaimCall] = []
        self.listed: list[JobsListed] = []
        self.counted: list[JobsCounted] = []
        self.ended_processes: dict[str, float] = {}
        self.freezes: list[Outage] = []
        self.store_outages: list[Outage] = []
        self.clock_stepped = False
        self.drained_at = False
        self.faults: Counter[str] = Counter()
        self.events_without_grant: list[Event] = []  # about leases of which no grant is known
        self._leases: dict[tuple[UUID, int], LeaseHistory] = {}
        self._enqueueing: dict[tuple[str, int], EnqueueCall] = {}
        self._claiming: dict[tuple[str, int], ClaimCall] = {}
        self._extensions: dict[tuple[str, int], list[ExtendCall | None]] = {}
        self._settlings: dict[tuple[str, int], list[SettleCall | None]] = {}
        self._cancellings: dict[tuple[str, int], list[CancelCall]] = {}
        self._opened: defaultdict[str, list[Outage]] = defaultdict(list)
        # The sort keeps the order of what one process wrote down at the same instant.
        for event in sorted(events, key=lambda event: event.at):
            self._take(event)

    def job_history(self, job_id: UUID) -> JobHistory:
        life = self.jobs.get(job_id)
        if life is None:
            life = self.jobs[job_id] = JobHistory(job_id)
        return life

    @cached_property
    def unanswered_claims(self) -> list[ClaimCalled]:
        """Claims whose answers nobody got: they may have been granted jobs."""
        return [
            one.called
            for one in self.claim_calls
            if one.answered is None or one.answered.result is Result.UNKNOWN
        ]

    @property
    def leases(self) -> Iterable[tuple[JobHistory, LeaseHistory]]:
        return ((life, lease) for life in self.jobs.values() for lease in life.leases)

    def _take(self, event: Event) -> None:
        match event:
            case EnqueueCalled() | ClaimCalled() | ExtendCalled() | SettleCalled() | CancelCalled():
                self._called(event)
            case EnqueueAnswered() | ClaimAnswered() | ExtendAnswered() | SettleAnswered() | CancelAnswered():
                self._answered(event)
            case HandlerStarted() | HandlerEnded():
                lease = self._leases.get((event.id, event.fence))
                if lease is None:
                    self.events_without_grant.append(event)
                elif isinstance(event, HandlerStarted):
                    lease.started.append(event.at)
                else:
                    lease.ended.append((event.at, event.succeeded))
            case JobsListed():
                self.listed.append(event)
            case StoredJob():
                self.job_history(event.id).stored.append(event)
            case JobsCounted():
                self.counted.append(event)
            case ProcessEnded():
                # Whoever finds out later may say so again.
                self.ended_processes.setdefault(event.process, event.at)
            case ProcessFrozen() | StoreUnreachable():
                span = Outage(event.process, event.at)
                (self.freezes if isinstance(event, ProcessFrozen) else self.store_outages).append(span)
                self._opened[f"{isinstance(event, ProcessFrozen)}{event.process}"].append(span)
            case ProcessResumed() | StoreReachable():
                for span in self._opened.pop(f"{isinstance(event, ProcessResumed)}{event.process}", []):
                    span.end = event.at
            case ClockStepped():
                self.clock_stepped = True
            case FaultInjected():
                self.faults[event.kind] += 1
            case WorkloadDrained():
                self.drained_at = True
            case _:
                assert_never(event)

    def _called(
        self, event: EnqueueCalled | ClaimCalled | ExtendCalled | SettleCalled | CancelCalled
    ) -> None:
        call = (event.process, event.call)
        match event:
            case EnqueueCalled():
                self._enqueueing[call] = EnqueueCall(event)
                self.enqueue_calls.append(self._enqueueing[call])
                for job in event.jobs:
                    life = self.job_history(job.id)
                    life.request_count += 1
                    if life.request is None:
                        life.request, life.requested_at = job, event.at
            case ClaimCalled():
                self._claiming[call] = ClaimCall(event)
                self.claim_calls.append(self._claiming[call])
            case ExtendCalled():
                extensions: list[ExtendCall | None] = []
                for held in event.leases:
                    lease = self._leases.get((held.id, held.fence))
                    extension = None if lease is None else ExtendCall(event.at, event.seconds)
                    if lease is not None and extension is not None:
                        lease.extensions.append(extension)
                    extensions.append(extension)
                self._extensions[call] = extensions
                if None in extensions:
                    self.events_without_grant.append(event)
            case SettleCalled():
                settlings: list[SettleCall | None] = []
                for ending in event.settlements:
                    lease = self._leases.get((ending.id, ending.fence))
                    settling = None if lease is None else SettleCall(event.at, ending.outcome, ending.delay)
                    if lease is not None and settling is not None:
                        lease.settle_calls.append(settling)
                    settlings.append(settling)
                self._settlings[call] = settlings
                if None in settlings:
                    self.events_without_grant.append(event)
            case CancelCalled():
                cancellings = [CancelCall(event.at) for _ in event.ids]
                self._cancellings[call] = cancellings
                for job_id, cancelling in zip(event.ids, cancellings, strict=True):
                    self.job_history(job_id).cancel_calls.append(cancelling)
            case _:
                assert_never(event)

    def _answered(
        self, event: EnqueueAnswered | ClaimAnswered | ExtendAnswered | SettleAnswered | CancelAnswered
    ) -> None:
        call = (event.process, event.call)
        known = event.result is Result.OK
        match event:
            case EnqueueAnswered():
                self._enqueueing.pop(call).answered = event
            case ClaimAnswered():
                claiming = self._claiming.pop(call)
                claiming.answered = event
                for granted in event.grants:
                    lease = LeaseHistory(granted, event.process, claiming.called.at, event.at)
                    self._leases[granted.id, granted.fence] = lease
                    self.job_history(granted.id).leases.append(lease)
            case ExtendAnswered():
                extensions = self._extensions.pop(call)
                answers = event.kept if known else [_unless_unknown(event.result)] * len(extensions)
                for extension, kept in zip(extensions, answers, strict=True):
                    if extension is not None:
                        extension.answered, extension.kept = event.at, kept
                        extension.refused = known and not kept
                for extension, seconds in zip(extensions, event.seconds, strict=False):
                    if extension is not None:
                        extension.seconds = seconds
            case SettleAnswered():
                settlings = self._settlings.pop(call)
                answers = event.accepted if known else [_unless_unknown(event.result)] * len(settlings)
                for settling, accepted in zip(settlings, answers, strict=True):
                    if settling is not None:
                        settling.answered, settling.accepted = event.at, accepted
                        settling.refused = known and not accepted
            case CancelAnswered():
                cancellings = self._cancellings.pop(call)
                nothing = "failed" if event.result is Result.FAILED else None
                verdicts = event.verdicts if known else [nothing] * len(cancellings)
                for cancelling, verdict in zip(cancellings, verdicts, strict=True):
                    cancelling.answered, cancelling.verdict = event.at, verdict
            case _:
                assert_never(event)


def _unless_unknown(result: Result) -> bool | None:
    """Nothing happened for certain, or nobody knows."""
    return False if result is Result.FAILED else None
