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
from tidewheel.stores.bounds import MAX_BATCH, check_batch
from tidewheel.stores.http.api_client import ApiClient, decode_json
from tidewheel.stores.http.errors import ProxyRejected
from tidewheel.stores.http.request_size import invalid_result, reject_large_results, split_bodies
from tidewheel.stores.http.response_models import StepShape, to_step
from tidewheel.stores.protocol import SettleResult

T = TypeVar("T")

WORK_PATH: Final = "/work"
"""Where the routes of workers are."""
MIN_LEASE_SECONDS: Final = 1.0
_HEARTBEAT_FIELDS: Final = ("name", "host", "pid", "version", "loop_lag_seconds", "polling")
_HEARTBEAT_COUNTERS: Final = (
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
_MAX_HEARTBEAT_COUNTER: Final = 2**31 - 1
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


class LeaseRequests:
    """The verbs of workers of one opened store, claims aside.

    A token that is refused in the middle of the work, or a server that does not know of workers, is trouble
    like any other here: an outcome that cannot be written now is kept and tried again, and the next claim
    tells what is wrong and ends the worker.
    """

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def mark_started(
        self, leases: Sequence[Lease], run_seconds: Sequence[float], *, alone: bool
    ) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        more = {"run_seconds": list(run_seconds)} if run_seconds else {}
        return await self._held_flags(f"{WORK_PATH}/start", leases, alone=alone, **more)

    async def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[bool]:
        check_batch("leases", len(leases), MAX_BATCH)
        # A lease that counts as a little shorter here may be shorter than any the server gives.
        return await self._held_flags(
            f"{WORK_PATH}/extend", leases, lease=max(lease_seconds, MIN_LEASE_SECONDS)
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[bool]:
        check_batch("settlements", len(settlements), MAX_BATCH)
        answers = SettleResult(
            replaced_outcomes=await _retry_briefly(reject_large_results(self._client, settlements))
        )
        bodies = [_settlement(one) for one in settlements]
        for place, failed in answers.replaced_outcomes.items():
            bodies[place] = _settlement(replace(settlements[place], outcome=failed))
        for _, body in split_bodies("settlements", bodies):
            try:
                answer = await _retry_briefly(
                    self._client.send_idempotent("POST", f"{WORK_PATH}/settle", body)
                )
            except ProxyRejected as error:
                # No outage, which is waited out with all outcomes in their order: one of these may be to
                # blame, and the others must not wait for it.
                raise StoreError(str(error)) from None
            told = decode_json(answer, SettledShape, self._client.shown)
            for invalid in told.invalid_results:
                answers.replaced_outcomes[len(answers) + invalid.index] = invalid_result(invalid.message)
            answers += told.accepted
        return answers

    async def report(self, reports: Sequence[Report]) -> list[bool]:
        check_batch("reports", len(reports), MAX_BATCH)
        held: list[bool] = []
        for _, body in split_bodies("reports", [_report(one) for one in reports]):
            answer = await _retry_briefly(self._client.send("POST", f"{WORK_PATH}/report", body=body))
            held += decode_json(answer, HeldShape, self._client.shown).held
        return held

    async def finished_steps(self, lease: Lease) -> tuple[StepRecord, ...] | None:
        found = await _retry_briefly(self._client.post(f"{WORK_PATH}/steps", lease_body(lease), StepsShape))
        return tuple(map(to_step, found.steps)) if found.held else None

    async def cancel_requests(self, leases: Sequence[Lease]) -> list[Lease]:
        check_batch("leases", len(leases), MAX_BATCH)
        if not leases:
            return []
        body = {"leases": [lease_body(lease) for lease in leases]}
        asking = self._client.post(f"{WORK_PATH}/cancellations", body, CancellationsShape)
        answers = (await _retry_briefly(asking)).cancel_requested
        return [lease for lease, wanted in zip(leases, answers, strict=True) if wanted]

    async def heartbeat(self, worker: WorkerRecord) -> None:
        body: dict[str, Any] = {name: getattr(worker, name) for name in _HEARTBEAT_FIELDS}
        for name in _HEARTBEAT_COUNTERS:
            body[name] = min(getattr(worker, name), _MAX_HEARTBEAT_COUNTER)
        body["started_at"] = to_datetime(worker.started_at)
        body["lanes"] = lanes_body(worker.lanes)
        await _retry_briefly(self._client.post(f"{WORK_PATH}/beat", body, type(None)))

    async def deregister_worker(self, name: str, started_at: int) -> None:
        body = {"name": name, "started_at": to_datetime(started_at)}
        await _retry_briefly(self._client.post(f"{WORK_PATH}/leave", body, type(None)))

    async def _held_flags(self, path: str, leases: Sequence[Lease], **more: Any) -> list[bool]:
        if not leases:
            return []
        body = {"leases": [lease_body(lease) for lease in leases], **more}
        return (await _retry_briefly(self._client.post(path, body, HeldShape))).held


async def _retry_briefly(asking: Awaitable[T]) -> T:
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
