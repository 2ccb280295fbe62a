"""Histories written by hand, a sentence at a time, for tests of the checker."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tidewheel.verification.checker import CheckReport, check_history
from tidewheel.verification.history import (
    CancelAnswered,
    CancelCalled,
    ClaimAnswered,
    ClaimCalled,
    EnqueueAnswered,
    EnqueueCalled,
    Event,
    ExtendAnswered,
    ExtendCalled,
    Granted,
    HandlerEnded,
    HandlerStarted,
    HeldLease,
    JobsCounted,
    JobsListed,
    ProcessEnded,
    RequestedJob,
    RequestedSettlement,
    Result,
    SettleAnswered,
    SettleCalled,
    StoredJob,
    WorkloadDrained,
)

LEASE = 10.0


def job(number: int) -> UUID:
    return UUID(int=number)


class Story:
    """Calls take 0.01 s each and are answered as told; the clock moves when it is told to."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.at = 100.0
        self._calls = itertools.count(1)

    def later(self, seconds: float) -> Story:
        self.at += seconds
        return self

    def enqueue(
        self,
        *numbers: int,
        result: Result | None = Result.OK,
        duplicate_of: int | None = None,
        **about: Any,
    ) -> Story:
        call = next(self._calls)
        about = {"topic": "mail", "tenant": "root", **about}
        jobs = [RequestedJob(id=job(number), **about) for number in numbers]
        self.events.append(EnqueueCalled(at=self.at, process="producer", call=call, jobs=jobs))
        self._answer(
            EnqueueAnswered,
            result,
            "producer",
            call,
            ids=[job(duplicate_of or number) for number in numbers],
            duplicates=[duplicate_of is not None] * len(numbers),
        )
        return self

    def claim(
        self,
        by: str,
        *grants: tuple[int, int],
        result: Result | None = Result.OK,
        takes: float = 0.01,
        **about: Any,
    ) -> Story:
        """Each grant is a job's number and its fence. If it ``takes`` long, other things happen meanwhile."""
        call = next(self._calls)
        self.events.append(ClaimCalled(at=self.at, process=by, call=call, topics=["mail"], limit=10))
        about = {"attempt": 1, "lease": LEASE, "topic": "mail", "tenant": "root", **about}
        granted = [Granted(id=job(number), fence=fence, **about) for number, fence in grants]
        self._answer(ClaimAnswered, result, by, call, takes, grants=granted)
        return self

    def attempt(self, by: str, number: int, fence: int) -> Story:
        """A whole one, from the claim to the completed job."""
        return self.claim(by, (number, fence)).run(by, number, fence).settle(by, number, fence)

    def run(self, by: str, number: int, fence: int, *, well: bool | None = True) -> Story:
        self.events.append(HandlerStarted(at=self.at, process=by, id=job(number), fence=fence))
        if well is not None:
            self.events.append(
                HandlerEnded(at=self.at, process=by, id=job(number), fence=fence, succeeded=well)
            )
        return self

    def extend(
        self, by: str, number: int, fence: int, *, kept: bool = True, result: Result | None = Result.OK
    ) -> Story:
        call = next(self._calls)
        held = [HeldLease(job(number), fence)]
        self.events.append(ExtendCalled(at=self.at, process=by, call=call, leases=held, seconds=LEASE))
        self._answer(ExtendAnswered, result, by, call, kept=[kept])
        return self

    def settle(
        self,
        by: str,
        number: int,
        fence: int,
        how: str = "complete",
        *,
        delay: float = 0.0,
        accepted: bool = True,
        result: Result | None = Result.OK,
    ) -> Story:
        call = next(self._calls)
        endings = [RequestedSettlement(job(number), fence, how, delay)]
        self.events.append(SettleCalled(at=self.at, process=by, call=call, settlements=endings))
        self._answer(SettleAnswered, result, by, call, accepted=[accepted])
        return self

    def cancel(self, number: int, verdict: str = "done") -> Story:
        call = next(self._calls)
        self.events.append(CancelCalled(at=self.at, process="operator", call=call, ids=[job(number)]))
        self._answer(CancelAnswered, Result.OK, "operator", call, verdicts=[verdict])
        return self

    def listed(self, tenant: str, *numbers: int) -> Story:
        self.events.append(
            JobsListed(at=self.at, process="reader", tenant=tenant, ids=[job(one) for one in numbers])
        )
        return self

    def dies(self, by: str) -> Story:
        self.events.append(ProcessEnded(at=self.at, process=by))
        return self

    def stored(self, number: int, state: str = "completed", fence: int = 1, **about: Any) -> Story:
        about = {
            "topic": "mail",
            "tenant": "root",
            "task": "",
            "key": None,
            "attempt": 1,
            "max_attempts": 3,
            "ended": self.at,
            **about,
        }
        self.events.append(StoredJob(at=self.at, id=job(number), state=state, fence=fence, **about))
        return self

    def counted(self, **states: int) -> Story:
        self.events.append(JobsCounted(at=self.at, topic="mail", states=states))
        return self

    def quiet(self) -> Story:
        self.events.append(WorkloadDrained(at=self.at))
        return self

    def _answer(
        self, answered: Any, result: Result | None, by: str, call: int, takes: float = 0.01, **about: Any
    ) -> None:
        at = self.at + takes
        self.at += 0.01
        if result is Result.OK:
            self.events.append(answered(at=at, process=by, call=call, result=result, **about))
        elif result is not None:
            self.events.append(answered(at=at, process=by, call=call, result=result))

    def check(self) -> CheckReport:
        return check_history(self.events)

    def broken_rules(self) -> Sequence[str]:
        return sorted({violation.rule for violation in self.check().violations})
