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
    AskedJob,
    CancelAnswered,
    CancelCalled,
    ClaimAnswered,
    ClaimCalled,
    ClockStepped,
    Counted,
    Died,
    Ended,
    EnqueueAnswered,
    EnqueueCalled,
    Event,
    ExtendAnswered,
    ExtendCalled,
    Froze,
    Granted,
    Listed,
    Quiet,
    Result,
    SettleAnswered,
    SettleCalled,
    Started,
    StoreCame,
    Stored,
    StoreLeft,
    Thawed,
    Trouble,
)

FOREVER = float("inf")


@dataclass(slots=True)
class Extension:
    sent: float
    seconds: float
    answered: float | None = None
    kept: bool | None = None
    refused: bool = False  # by the store itself, whose word it is that the lease does not hold


@dataclass(slots=True)
class Settling:
    sent: float
    how: str
    delay: float
    answered: float | None = None
    accepted: bool | None = None
    refused: bool = False  # as above; otherwise the call failed for certain, or nobody knows


@dataclass(slots=True)
class Lease:
    """One grant, and everything done under it."""

    granted: Granted
    by: str
    asked: float
    received: float
    extensions: list[Extension] = field(default_factory=list)
    settlings: list[Settling] = field(default_factory=list)
    started: list[float] = field(default_factory=list)
    ended: list[tuple[float, bool]] = field(default_factory=list)

    @property
    def fence(self) -> int:
        return self.granted.fence

    @property
    def seconds(self) -> float:
        return self.granted.lease

    @property
    def surely_until(self) -> float:
        """It holds at least so long, for all its holder knows, who gives it up when it sends an ending."""
        until = [self.asked + self.seconds]
        until += [extension.sent + extension.seconds for extension in self.extensions if extension.kept]
        # One that failed for certain ends nothing: its holder goes on.
        given_up = [one.sent for one in self.settlings if one.accepted is not False or one.refused]
        return min([max(until), *given_up])

    def surely_at(self, moment: float) -> float:
        """Until when it holds at least, as of the extensions that were answered before ``moment``."""
        until = [self.asked + self.seconds]
        until += [
            one.sent + one.seconds
            for one in self.extensions
            if one.kept and one.answered is not None and one.answered <= moment
        ]
        return max(until)

    @property
    def at_most_until(self) -> float:
        """It cannot hold longer.

        An extension whose answer was lost may have come into force late, but only while the lease still held.
        """
        ends = [self.received + self.seconds]
        ends += [one.answered + one.seconds for one in self.extensions if one.kept and one.answered]
        return max(ends) + sum(one.seconds for one in self.extensions if one.kept is None)

    @property
    def certain(self) -> bool:
        """Whether it is known when it ended: the answer to no extension was lost."""
        return all(one.kept is not None for one in self.extensions)

    @property
    def accepted(self) -> list[Settling]:
        return [settling for settling in self.settlings if settling.accepted]

    def since(self, accepted: Settling) -> float:
        """When an accepted ending may have been sent first: one whose answer is lost is sent again, and the
        store then answers for the first one.
        """
        before = [one.sent for one in self.settlings if one.accepted is None and one.how == accepted.how]
        return min([accepted.sent, *before])

    @property
    def undecided(self) -> set[str]:
        """Endings that may have been accepted without anybody having heard of it."""
        return {settling.how for settling in self.settlings if settling.accepted is None}


@dataclass(slots=True)
class Cancelling:
    sent: float
    answered: float | None = None
    verdict: str | None = None


@dataclass(slots=True)
class Life:
    """One job."""

    id: UUID
    asked: AskedJob | None = None
    asked_at: float = 0.0
    times_asked: int = 0
    leases: list[Lease] = field(default_factory=list)  # in the order in which they were received
    cancellings: list[Cancelling] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)

    @property
    def grants(self) -> list[Lease]:
        """Its leases as they were granted: the answer to an earlier claim may be the later one to arrive."""
        return sorted(self.leases, key=lambda lease: lease.fence)

    @property
    def end(self) -> Stored | None:
        return self.stored[0] if self.stored else None


@dataclass(slots=True)
class Enqueueing:
    called: EnqueueCalled
    answered: EnqueueAnswered | None = None

    @property
    def result(self) -> Result:
        return Result.UNKNOWN if self.answered is None else self.answered.result


@dataclass(slots=True)
class Claiming:
    called: ClaimCalled
    answered: ClaimAnswered | None = None


@dataclass(slots=True)
class Span:
    """A stretch of time in which a process, or the store, was not there."""

    by: str
    begin: float
    end: float = FOREVER


class Book:
    """A history, sorted by what it is about."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.lives: dict[UUID, Life] = {}
        self.enqueueings: list[Enqueueing] = []
        self.claimings: list[Claiming] = []
        self.listed: list[Listed] = []
        self.counted: list[Counted] = []
        self.died: dict[str, float] = {}
        self.frozen: list[Span] = []
        self.away: list[Span] = []
        self.clock_stepped = False
        self.quiet = False
        self.troubles: Counter[str] = Counter()
        self.strays: list[Event] = []  # about leases of which no grant is known
        self._leases: dict[tuple[UUID, int], Lease] = {}
        self._enqueueing: dict[tuple[str, int], Enqueueing] = {}
        self._claiming: dict[tuple[str, int], Claiming] = {}
        self._extensions: dict[tuple[str, int], list[Extension | None]] = {}
        self._settlings: dict[tuple[str, int], list[Settling | None]] = {}
        self._cancellings: dict[tuple[str, int], list[Cancelling]] = {}
        self._opened: defaultdict[str, list[Span]] = defaultdict(list)
        # The sort keeps the order of what one process wrote down at the same instant.
        for event in sorted(events, key=lambda event: event.at):
            self._take(event)

    def life(self, job_id: UUID) -> Life:
        life = self.lives.get(job_id)
        if life is None:
            life = self.lives[job_id] = Life(job_id)
        return life

    @cached_property
    def unheard_claims(self) -> list[ClaimCalled]:
        """Claims whose answers nobody got: they may have been granted jobs."""
        return [
            one.called
            for one in self.claimings
            if one.answered is None or one.answered.result is Result.UNKNOWN
        ]

    @property
    def leases(self) -> Iterable[tuple[Life, Lease]]:
        return ((life, lease) for life in self.lives.values() for lease in life.leases)

    def _take(self, event: Event) -> None:
        match event:
            case EnqueueCalled() | ClaimCalled() | ExtendCalled() | SettleCalled() | CancelCalled():
                self._called(event)
            case EnqueueAnswered() | ClaimAnswered() | ExtendAnswered() | SettleAnswered() | CancelAnswered():
                self._answered(event)
            case Started() | Ended():
                lease = self._leases.get((event.id, event.fence))
                if lease is None:
                    self.strays.append(event)
                elif isinstance(event, Started):
                    lease.started.append(event.at)
                else:
                    lease.ended.append((event.at, event.well))
            case Listed():
                self.listed.append(event)
            case Stored():
                self.life(event.id).stored.append(event)
            case Counted():
                self.counted.append(event)
            case Died():
                self.died.setdefault(event.by, event.at)  # whoever finds out later may say so again
            case Froze() | StoreLeft():
                span = Span(event.by, event.at)
                (self.frozen if isinstance(event, Froze) else self.away).append(span)
                self._opened[f"{isinstance(event, Froze)}{event.by}"].append(span)
            case Thawed() | StoreCame():
                for span in self._opened.pop(f"{isinstance(event, Thawed)}{event.by}", []):
                    span.end = event.at
            case ClockStepped():
                self.clock_stepped = True
            case Trouble():
                self.troubles[event.kind] += 1
            case Quiet():
                self.quiet = True
            case _:
                assert_never(event)

    def _called(
        self, event: EnqueueCalled | ClaimCalled | ExtendCalled | SettleCalled | CancelCalled
    ) -> None:
        call = (event.by, event.call)
        match event:
            case EnqueueCalled():
                self._enqueueing[call] = Enqueueing(event)
                self.enqueueings.append(self._enqueueing[call])
                for job in event.jobs:
                    life = self.life(job.id)
                    life.times_asked += 1
                    if life.asked is None:
                        life.asked, life.asked_at = job, event.at
            case ClaimCalled():
                self._claiming[call] = Claiming(event)
                self.claimings.append(self._claiming[call])
            case ExtendCalled():
                extensions: list[Extension | None] = []
                for held in event.leases:
                    lease = self._leases.get((held.id, held.fence))
                    extension = None if lease is None else Extension(event.at, event.seconds)
                    if lease is not None and extension is not None:
                        lease.extensions.append(extension)
                    extensions.append(extension)
                self._extensions[call] = extensions
                if None in extensions:
                    self.strays.append(event)
            case SettleCalled():
                settlings: list[Settling | None] = []
                for ending in event.endings:
                    lease = self._leases.get((ending.id, ending.fence))
                    settling = None if lease is None else Settling(event.at, ending.how, ending.delay)
                    if lease is not None and settling is not None:
                        lease.settlings.append(settling)
                    settlings.append(settling)
                self._settlings[call] = settlings
                if None in settlings:
                    self.strays.append(event)
            case CancelCalled():
                cancellings = [Cancelling(event.at) for _ in event.ids]
                self._cancellings[call] = cancellings
                for job_id, cancelling in zip(event.ids, cancellings, strict=True):
                    self.life(job_id).cancellings.append(cancelling)
            case _:
                assert_never(event)

    def _answered(
        self, event: EnqueueAnswered | ClaimAnswered | ExtendAnswered | SettleAnswered | CancelAnswered
    ) -> None:
        call = (event.by, event.call)
        known = event.result is Result.OK
        match event:
            case EnqueueAnswered():
                self._enqueueing.pop(call).answered = event
            case ClaimAnswered():
                claiming = self._claiming.pop(call)
                claiming.answered = event
                for granted in event.grants:
                    lease = Lease(granted, event.by, claiming.called.at, event.at)
                    self._leases[granted.id, granted.fence] = lease
                    self.life(granted.id).leases.append(lease)
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
