"""``POST /api/jobs/work/settle``: how attempts ended, each under its lease."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, assert_never

from msgspec import Meta, Struct

from tidewheel.core import payload
from tidewheel.core.model import (
    Cancelled,
    Completed,
    Failed,
    JobError,
    Outcome,
    Released,
    Retried,
    Settlement,
)
from tidewheel.core.retry import MAX_DELAY
from tidewheel.errors import InvalidInput
from tidewheel.server.idempotent_requests import REQUEST_ID_PARAMETER
from tidewheel.server.request import Request
from tidewheel.server.route import NoQuery, Permission, Response, Route
from tidewheel.server.routes.lease_routes import MAX_LEASES, WORK_PATH, WORK_TAG, LeaseBody, RunSeconds
from tidewheel.tasks.options import MAX_PRIORITY
from tidewheel.worker.outcomes import CANCELLED_ERROR, make_job_error

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

Delay: TypeAlias = Annotated[float, Meta(ge=0, le=MAX_DELAY, description="Seconds.")]


class ErrorBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why an attempt errored: a code for programs, a message for people. What is too long is cut."""

    code: Annotated[str, Meta(min_length=1)]
    message: str
    retryable: bool = True
    details: dict[str, Any] | None = None
    traceback: str | None = None

    def to_job_error(self) -> JobError:
        return make_job_error(
            self.code,
            self.message,
            retryable=self.retryable,
            details=self.details,
            traceback=self.traceback,
        )


class SettlementBase(LeaseBody, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="outcome"):
    """The end of one lease."""

    run_seconds: RunSeconds | None = None


class Complete(SettlementBase, frozen=True, kw_only=True, tag="complete"):
    """The handler returned. A result that cannot be kept fails the job instead, and the answer says so."""

    result: Any = None


class RetryLater(SettlementBase, frozen=True, kw_only=True, tag="retry"):
    """The attempt errored. Without a delay the job's retry policy decides; after the last attempt, or when
    the error is not retryable, the job fails.
    """

    error: ErrorBody
    delay: Delay | None = None


class Fail(SettlementBase, frozen=True, kw_only=True, tag="fail"):
    """The attempt errored, and trying again would not help."""

    error: ErrorBody


class Release(SettlementBase, frozen=True, kw_only=True, tag="release"):
    """Given back, not counted as an attempt. ``counted``: among the job's releases; ``taken``: not when
    nobody has seen it.
    """

    delay: Delay = 0.0
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None
    counted: bool = True
    taken: bool = True


class Cancel(SettlementBase, frozen=True, kw_only=True, tag="cancel"):
    """Ended on request."""

    error: ErrorBody | None = None


SettlementBody: TypeAlias = Complete | RetryLater | Fail | Release | Cancel


class SettleBody(Struct, frozen=True, forbid_unknown_fields=True):
    """How some attempts ended."""

    settlements: Annotated[list[SettlementBody], Meta(min_length=1, max_length=MAX_LEASES)]


class InvalidResult(Struct, frozen=True):
    """A result that could not be kept: what was told to be complete has failed (``invalid_result``)."""

    index: Annotated[int, Meta(ge=0, description="Of the settlement, counted from 0.")]
    message: str


class Settled(Struct, frozen=True):
    """Whether each was accepted, in the order they were given. False: the lease is not held any more, and
    that job was left alone. ``invalid_results``: what was accepted of jobs that failed all the same.
    """

    accepted: tuple[bool, ...]
    invalid_results: tuple[InvalidResult, ...]


async def settle(request: Request[NoQuery, SettleBody]) -> Response:
    app, items = request.app, request.body.settlements
    settlements = [Settlement(item.lease, await _outcome(app, item), item.run_seconds) for item in items]
    accepted = await app.remote.settle(settlements)
    invalid = [
        InvalidResult(index, settlement.outcome.error.message)
        for index, (item, settlement) in enumerate(zip(items, settlements, strict=True))
        if accepted[index] and isinstance(item, Complete) and isinstance(settlement.outcome, Failed)
    ]
    return Response(Settled(tuple(accepted), tuple(invalid)))


async def _outcome(app: Tidewheel, item: SettlementBody) -> Outcome:
    match item:
        case Complete():
            return _completed(item.result, app.settings.max_result_bytes)
        case RetryLater():
            error = item.error.to_job_error()
            if item.delay is None or not error.retryable:
                return await app.remote.after_error(item.lease, error)
            return Retried(item.delay, error)
        case Fail():
            return Failed(item.error.to_job_error())
        case Release():
            return Released(item.delay, item.priority, item.counted, item.taken)
        case Cancel():
            return Cancelled(CANCELLED_ERROR if item.error is None else item.error.to_job_error())
    assert_never(item)


def _completed(result: Any, limit: int) -> Outcome:
    if result is None:
        return Completed()
    try:
        return Completed(payload.encode(result, limit=limit, what="result", limit_name="max_result_bytes"))
    except InvalidInput as error:
        # As a worker beside the store decides it: to be told of it would help nobody to keep the result.
        return Failed(make_job_error("invalid_result", error, retryable=False))


ROUTES: Final = (
    Route(
        method="POST",
        path=f"{WORK_PATH}/settle",
        name="settle_jobs",
        summary="End attempts: complete, retry, fail, release or cancel",
        permission=Permission.WORK,
        handler=settle,
        body=SettleBody,
        responses={200: Settled},
        parameters=REQUEST_ID_PARAMETER,
        # a text that one handler cut in the wrong place must not keep others' outcomes out
        allow_lone_surrogates=True,
        idempotent=True,
        tag=WORK_TAG,
    ),
)
