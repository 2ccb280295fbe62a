"""What workers tell a server under their leases, and about themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, Final, TypeVar

from msgspec import Raw, Struct
from msgspec.structs import replace

from tidewheel.core.clock import to_datetime
from tidewheel.core.model import (
    Cancelled,
    Completed,
    Failed,
    FailureOrigin,
    JobError,
    Lane,
    Lease,
    Released,
    Report,
    Retried,
    Settlement,
    StepRecord,
    WorkerRecord,
)
from tidewheel.errors import (
    ConfigurationError,
    NotAuthenticated,
    NotOverHttp,
    NotPermitted,
    StoreError,
    StoreUnavailable,
)
from tidewheel.stores.http.api_client import Client, decoded
from tidewheel.stores.http.errors import TurnedAway
from tidewheel.stores.http.request_size import in_parts, invalid_result, too_large
from tidewheel.stores.http.response_models import StepShape, step_of
from tidewheel.stores.protocol import MAX_BATCH, Answers
from tidewheel.stores.terminal_errors import check_batch

T = TypeVar("T")

WORK: Final = "/work"
"""Where the routes of workers are."""
SHORTEST_LEASE: Final = 1.0
_TOLD: Final = ("name", "host", "pid", "version", "loop_lag_seconds", "polling")
_COUNTED: Final = (
    "more_lanes",
    "concurrency",
    "running",
    "claimed",
    "stuck",
    "ran",
    "completed",
    "failed",
    "lost",
)
_MOST_COUNTED: Final = 2**31 - 1
"""A worker that has run more jobs is told of with so many."""


class HeldShape(Struct):
    held: list[bool]


class InvalidResultShape(Struct):
    index: int
    message: str


class SettledShape(Struct):
    accepted: list[bool]
    invalid_results: list[InvalidResultShape]


class CancellationsShape(Struct):
    cancel_requested: list[bool]


class StepsShape(Struct):
    held: bool
    steps: list[StepShape] = []


class Working:
    """The verbs of workers of one opened store, claims aside.

    A token that is refused in the middle of the work, or a server that does not know of workers, is trouble
    like any other here: an outcome that cannot be written now is kept and tried again, and the next claim
    tells what is wrong and ends the worker.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def start(
        self, leases: Sequence[Lease], run_seconds: Sequence[float], *, alone: bool
    ) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        more = {"run_seconds": list(run_seconds)} if run_seconds else {}
        return await self._held(f"{WORK}/start", leases, alone=alone, **more)

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        # A lease that counts as a little shorter here may be shorter than any the server gives.
        return await self._held(f"{WORK}/extend", leases, lease=max(lease_seconds, SHORTEST_LEASE))

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        check_batch("settlements", len(settlements), MAX_BATCH)
        answers = Answers(instead=await _in_time_of_need(too_large(self._client, settlements)))
        bodies = [_settlement(one) for one in settlements]
        for place, failed in answers.instead.items():
            bodies[place] = _settlement(replace(settlements[place], outcome=failed))
        for _, body in in_parts("settlements", bodies):
            try:
                answer = await _in_time_of_need(self._client.do("POST", f"{WORK}/settle", body))
            except TurnedAway as error:
                # No outage, which is waited out with all outcomes in their order: one of these may be to
                # blame, and the others must not wait for it.
                raise StoreError(str(error)) from None
            told = decoded(answer, SettledShape, self._client.shown)
            for invalid in told.invalid_results:
                answers.instead[len(answers) + invalid.index] = invalid_result(invalid.message)
            answers += told.accepted
        return answers

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        check_batch("reports", len(reports), MAX_BATCH)
        held: list[bool] = []
        for _, body in in_parts("reports", [_report(one) for one in reports]):
            answer = await _in_time_of_need(self._client.send("POST", f"{WORK}/report", body=body))
            held += decoded(answer, HeldShape, self._client.shown).held
        return held

    async def steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        found = await _in_time_of_need(self._client.post(f"{WORK}/steps", lease_body(lease), StepsShape))
        return tuple(map(step_of, found.steps)) if found.held else None

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[Lease]:
        check_batch("leases", len(leases), MAX_BATCH)
        if not leases:
            return []
        body = {"leases": [lease_body(lease) for lease in leases]}
        asking = self._client.post(f"{WORK}/cancellations", body, CancellationsShape)
        answers = (await _in_time_of_need(asking)).cancel_requested
        return [lease for lease, wanted in zip(leases, answers, strict=True) if wanted]

    async def beat(self, worker: WorkerRecord) -> None:
        body: dict[str, Any] = {name: getattr(worker, name) for name in _TOLD}
        for name in _COUNTED:
            body[name] = min(getattr(worker, name), _MOST_COUNTED)
        body["started_at"] = to_datetime(worker.started_at)
        body["lanes"] = lanes_body(worker.lanes)
        await _in_time_of_need(self._client.post(f"{WORK}/beat", body, type(None)))

    async def leave(self, name: str, started_at: int) -> None:
        body = {"name": name, "started_at": to_datetime(started_at)}
        await _in_time_of_need(self._client.post(f"{WORK}/leave", body, type(None)))

    async def _held(self, path: str, leases: Sequence[Lease], **more: Any) -> list[bool]:
        if not leases:
            return []
        body = {"leases": [lease_body(lease) for lease in leases], **more}
        return (await _in_time_of_need(self._client.post(path, body, HeldShape))).held


async def _in_time_of_need(asking: Awaitable[T]) -> T:
    try:
        return await asking
    except (NotAuthenticated, NotPermitted) as error:
        raise StoreUnavailable(f"the server refuses this worker's token: {error}") from None
    except ConfigurationError as error:
        # For some seconds, while an older version takes the place of a newer one or the other way round.
        raise StoreUnavailable(f"the server takes no word of workers: {error}") from None


def lease_body(lease: Lease) -> dict[str, Any]:
    return {"id": lease.job_id, "fence": lease.fence}


def lanes_body(lanes: Iterable[Lane]) -> list[dict[str, Any]]:
    return [{"topic": lane.topic, "task": lane.task} for lane in lanes]


def _settlement(settlement: Settlement) -> dict[str, Any]:
    body = lease_body(settlement.lease)
    if settlement.run_seconds is not None:
        body["run_seconds"] = settlement.run_seconds
    match settlement.outcome:
        case Completed(result):
            body["outcome"] = "complete"
            if result is not None:
                body["result"] = Raw(result)
        case Retried(delay, error):
            body |= {"outcome": "retry", "delay": delay, "error": _error(error)}
        case Failed(error, origin, priority):
            if origin is not FailureOrigin.ATTEMPT or priority is not None:
                raise NotOverHttp("jobs cannot be buried over HTTP; fail them, or release them with a delay")
            body |= {"outcome": "fail", "error": _error(error)}
        case Released(delay, priority, counted, taken):
            body |= {"outcome": "release", "delay": delay, "counted": counted, "taken": taken}
            if priority is not None:
                body["priority"] = priority
        case Cancelled(error):
            body |= {"outcome": "cancel", "error": _error(error)}
    return body


def _error(error: JobError) -> dict[str, Any]:
    body: dict[str, Any] = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details is not None:
        body["details"] = dict(error.details)
    if error.traceback is not None:
        body["traceback"] = error.traceback
    return body


def _report(report: Report) -> dict[str, Any]:
    body = lease_body(report.lease)
    if report.run_seconds:
        body["run_seconds"] = report.run_seconds
    if (progress := report.progress) is not None:
        body["progress"] = {
            "percent": progress.percent,
            "message": progress.message,
            "stage": progress.stage,
        }
    if report.checkpoint is not None:
        body["checkpoint"] = Raw(report.checkpoint)
    if (step := report.step) is not None:
        body["step"] = {"name": step.name, "output": Raw(step.output), "run_seconds": step.run_seconds}
    return body
