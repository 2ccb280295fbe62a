"""What went wrong at the server, as our exceptions: the way back from problem documents (RFC 9457)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from tidewheel import errors
from tidewheel.core.names import shorten
from tidewheel.core.urls import redact_url
from tidewheel.errors import TidewheelError

MEDIA_TYPE: Final = "application/problem+json"
_place = re.compile(r"#(?:/jobs/(?P<job>\d{1,6}))?(?P<rest>/payload|/after)?(?P<inside>/.*)?", re.DOTALL)


PROXY_STATUSES: Final = frozenset({400, 403, 406, 413, 422})
"""What proxies and filters say to requests that they do not let through, for what they are."""


class ProxyRejected(errors.StoreUnavailable):
    """The server is there, and something in front of it does not let this request through."""


class ProblemPart(Struct):
    """One thing that is wrong with what was sent."""

    detail: str = ""
    pointer: str | None = None
    parameter: str | None = None


class ProblemDocument(Struct):
    """An error as the server tells it; whatever else it says is left out."""

    code: str
    detail: str = ""
    status: int = 0
    errors: list[ProblemPart] = []
    position: int | None = None
    length: int | None = None


def _unavailable(problem: ProblemDocument) -> TidewheelError:
    return errors.StoreUnavailable(f"the server says: {problem.detail}")


def _server_error(problem: ProblemDocument) -> TidewheelError:
    return errors.StoreError(f"the server says {problem.code}: {problem.detail}")


def _not_found(problem: ProblemDocument) -> TidewheelError:
    return errors.ConfigurationError(
        f"the server does not know this request ({problem.detail}); it may be an older Tidewheel, or serve "
        "no HTTP API (http_api)"
    )


def _too_many_attempts(problem: ProblemDocument) -> TidewheelError:
    del problem
    return errors.TooManyAttempts(1.0)


def _invalid(problem: ProblemDocument) -> TidewheelError:
    """Input that was refused: which kind of exception that is follows from the place it points at."""
    if problem.position is not None:
        reason = problem.detail.partition("\n")[0]
        return errors.InvalidFilter(reason, _quoted_filter(problem), problem.position, problem.length or 1)
    places = [(part, _place.fullmatch(part.pointer or "")) for part in problem.errors]
    found = [(part, place) for part, place in places if place is not None]
    rest = {place["rest"] for _, place in found}
    error: errors.InvalidInput
    if rest == {"/payload"}:
        error = errors.InvalidPayload(problem.detail)
        inside = [(place["inside"] or "", part.detail) for part, place in found]
        error.places = () if inside == [("", problem.detail)] else tuple(inside)
        error.message_without_value = (
            "; ".join(f"{where or 'the payload'}: {what}" for where, what in error.places) or None
        )
    elif rest == {"/after"}:
        error = errors.ParentNotFound(problem.detail)
    else:
        error = errors.InvalidInput(problem.detail)
    jobs = {place["job"] for _, place in found} - {None}
    if len(jobs) == 1:
        error.job = int(jobs.pop())
    return error


def _quoted_filter(problem: ProblemDocument) -> str:
    """The filter, as the second line of the message quotes it."""
    lines = problem.detail.split("\n")
    return lines[1].removeprefix("  ") if len(lines) > 1 else ""


def _limit(problem: ProblemDocument) -> TidewheelError:
    return errors.LimitExceeded(problem.detail)


_BY_CODE: Final[dict[str, Callable[[ProblemDocument], TidewheelError]]] = {
    "invalid_input": _invalid,
    "limit_exceeded": _limit,
    "too_large": _limit,
    "uri_too_long": _limit,
    "headers_too_large": _limit,
    "handler_not_found": lambda problem: errors.HandlerNotFound(problem.detail),
    "job_not_found": lambda problem: errors.JobNotFound(problem.detail),
    "schedule_not_found": lambda problem: errors.ScheduleNotFound(problem.detail),
    "key_in_use": lambda problem: errors.KeyInUse(problem.detail),
    "wrong_state": lambda problem: errors.WrongState(problem.detail),
    "not_authenticated": lambda problem: errors.NotAuthenticated(
        f"{problem.detail} (token, TIDEWHEEL_TOKEN)"
    ),
    "not_permitted": lambda problem: errors.NotPermitted(problem.detail),
    "too_many_attempts": _too_many_attempts,
    "backpressure": lambda problem: errors.Backpressure(problem.detail),
    "store_unavailable": _unavailable,
    "not_open": _unavailable,
    "timed_out": _unavailable,
    "request_timeout": _unavailable,
    "too_many_connections": _unavailable,
    "too_many_streams": _unavailable,
    "not_found": _not_found,
    "method_not_allowed": _not_found,
}
"""The inverse of the table in ``server/problems.py``. All others are errors of one of the two programs."""


def read_problem(media_type: str, body: bytes) -> ProblemDocument | None:
    """The problem an answer is; None when it comes from something that is not Tidewheel."""
    if _kind(media_type) != MEDIA_TYPE:
        return None
    try:
        return msgspec.json.decode(body, type=ProblemDocument)
    except msgspec.MsgspecError:
        return None


def is_json(media_type: str) -> bool:
    """Whether a good answer can be from Tidewheel: all of its are JSON, and pages of proxies are not."""
    return _kind(media_type) == "application/json"


def _kind(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()


def problem_to_error(problem: ProblemDocument) -> TidewheelError:
    """A problem as the exception it was at the server, or would have been here."""
    return _BY_CODE.get(problem.code, _server_error)(problem)


def not_our_server_error(
    shown: str, status: int, media_type: str, moved_to: str | None = None, *, known: bool
) -> TidewheelError:
    """An answer that no Tidewheel gave. ``known``: one has answered there before, so this is a proxy's.

    ``moved_to``: where it sends everybody, which is not followed: the token is for the server that was named.
    """
    kind = shorten(media_type) if media_type else "no content type"
    if known and status in PROXY_STATUSES:
        return ProxyRejected(
            f"{shown} answered {status} with {kind}, which is not from Tidewheel; perhaps a proxy that does "
            "not let this request through, for its size or for what is in it"
        )
    if known or status in {502, 503, 504}:
        return errors.StoreUnavailable(
            f"{shown} answered {status} with {kind}, which is not from Tidewheel; perhaps a proxy that does "
            "not reach it"
        )
    if moved_to is not None:
        return errors.ConfigurationError(
            f"{shown} answered {status} and sends everybody on to {shorten(redact_url(moved_to))}, where the "
            "token is not shown; give the address of the server itself, perhaps with https"
        )
    return errors.ConfigurationError(
        f"{shown} answered {status} with {kind}, so it is no Tidewheel server; give the address that "
        "`tidewheel serve` prints, with the path where the API is mounted, if it is"
    )
