"""What goes wrong, as RFC 9457 problem documents with stable types.

Programs go by ``code`` (or ``type``, which is made of it); people read ``title`` and ``detail``. A code keeps
its meaning and its status for as long as there is a version 1.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec
from msgspec import UNSET, Struct, UnsetType

from tidewheel import errors
from tidewheel.core.log_throttle import ThrottledLog
from tidewheel.core.names import clip

logger = logging.getLogger(__name__)

MEDIA_TYPE: Final = b"application/problem+json"
_PREFIX: Final = "urn:tidewheel:problem:"

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class ProblemType:
    """One line of the table: what a code means, and the status it comes with."""

    code: str
    status: int
    title: str
    meaning: str
    headers: Headers = ()

    @property
    def uri(self) -> str:
        return _PREFIX + self.code


def _retry_after(seconds: int) -> Headers:
    return ((b"retry-after", str(seconds).encode()),)


MALFORMED_REQUEST = ProblemType(
    "malformed_request",
    400,
    "The request is malformed",
    "The request is not HTTP/1.1, its framing is wrong, or a header that may come once comes twice. The "
    "connection is closed.",
)
MALFORMED_JSON = ProblemType(
    "malformed_json", 400, "The body is not JSON", "The body is not JSON in UTF-8, or is nested too deep."
)
NOT_AUTHENTICATED = ProblemType(
    "not_authenticated",
    401,
    "Not authenticated",
    "There is no key, token or session, or it is unknown, expired or revoked.",
    ((b"www-authenticate", b'Bearer realm="tidewheel"'),),
)
NOT_PERMITTED = ProblemType(
    "not_permitted", 403, "Not permitted", "The caller is known, but a rule or a scope does not allow this."
)
CSRF_FAILED = ProblemType(
    "csrf_failed",
    403,
    "Not sent by our own pages",
    "A session's request that changes something lacks X-CSRF-Token, or comes from another origin.",
)
NOT_FOUND = ProblemType("not_found", 404, "Nothing here", "There is nothing at this path.")
JOB_NOT_FOUND = ProblemType(
    "job_not_found", 404, "No such job", "There is no such job, or none that this caller may see."
)
BULK_NOT_FOUND = ProblemType(
    "bulk_not_found",
    404,
    "No such bulk operation",
    "There is no such bulk operation, or none that this caller may see.",
)
KEY_NOT_FOUND = ProblemType("key_not_found", 404, "No such key", "There is no API key with this id.")
SUPERUSER_NOT_FOUND = ProblemType(
    "superuser_not_found", 404, "No such superuser", "There is no superuser of this name."
)
SCHEDULE_NOT_FOUND = ProblemType(
    "schedule_not_found", 404, "No such schedule", "There is no schedule of this name."
)
METHOD_NOT_ALLOWED = ProblemType(
    "method_not_allowed", 405, "Method not allowed", "The path is right, the method is not; see Allow."
)
REQUEST_TIMEOUT = ProblemType(
    "request_timeout", 408, "The request took too long to arrive", "The body did not arrive in time."
)
KEY_IN_USE = ProblemType(
    "key_in_use",
    409,
    "The key is taken",
    "A job that this caller may not see holds the key. Nothing was enqueued.",
)
WRONG_STATE = ProblemType(
    "wrong_state",
    409,
    "Not possible in this state",
    "The job, or whatever it is about, is in a state that does not allow this.",
)
TOO_LARGE = ProblemType(
    "too_large", 413, "The body is too large", "The body is larger than max_request_bytes."
)
URI_TOO_LONG = ProblemType(
    "uri_too_long", 414, "The address is too long", "Path and query are longer than 8,192 bytes."
)
UNSUPPORTED_MEDIA_TYPE = ProblemType(
    "unsupported_media_type",
    415,
    "Not plain JSON",
    "The body has to come as Content-Type: application/json, without a Content-Encoding.",
)
INVALID_INPUT = ProblemType(
    "invalid_input",
    422,
    "Invalid input",
    "A field, a parameter or a payload cannot be accepted; errors says which. Nothing was written.",
)
LIMIT_EXCEEDED = ProblemType(
    "limit_exceeded", 422, "A limit would be passed", "A configured maximum would be passed."
)
HANDLER_NOT_FOUND = ProblemType(
    "handler_not_found", 422, "No such task", "There is no such task, and unknown ones are refused."
)
TOO_MANY_ATTEMPTS = ProblemType(
    "too_many_attempts",
    429,
    "Too many attempts",
    "Too many logins, for this name, from this address or at once; Retry-After says when to try again.",
)
HEADERS_TOO_LARGE = ProblemType(
    "headers_too_large",
    431,
    "The headers are too large",
    "The headers are larger than max_header_bytes, there are more than 200 of them, or the trailers behind a "
    "chunked body are larger than max_trailer_bytes.",
)
INTERNAL_ERROR = ProblemType(
    "internal_error",
    500,
    "Something went wrong here",
    "An error of the server's own; incident is what its log has about it.",
)
STORE_UNAVAILABLE = ProblemType(
    "store_unavailable",
    503,
    "The store is unavailable",
    "The database is busy, gone, full or out of reach; trying again later may work.",
    _retry_after(1),
)
BACKPRESSURE = ProblemType(
    "backpressure", 503, "No room at the moment", "Nothing was enqueued; try again later.", _retry_after(1)
)
TOO_MANY_STREAMS = ProblemType(
    "too_many_streams",
    503,
    "Too many event streams",
    "As many event streams are open as are allowed, on this server or for this caller.",
    _retry_after(5),
)
TOO_MANY_CONNECTIONS = ProblemType(
    "too_many_connections",
    503,
    "Too many connections",
    "As many connections are open as are allowed, to this server or from this address.",
    _retry_after(5),
)
NOT_OPEN = ProblemType(
    "not_open", 503, "Not open", "The server is starting or shutting down.", _retry_after(1)
)
TIMED_OUT = ProblemType(
    "timed_out",
    504,
    "It took too long",
    "The request took longer than request_seconds; what it asked for may have been done all the same.",
)

PROBLEMS: Final[Mapping[str, ProblemType]] = {
    kind.code: kind for kind in list(globals().values()) if isinstance(kind, ProblemType)
}
"""Every type by its code."""

_BY_ERROR: Final[Mapping[type[Exception], ProblemType]] = {
    errors.InvalidInput: INVALID_INPUT,
    errors.LimitExceeded: LIMIT_EXCEEDED,
    errors.Backpressure: BACKPRESSURE,
    errors.HandlerNotFound: HANDLER_NOT_FOUND,
    errors.JobNotFound: JOB_NOT_FOUND,
    errors.ScheduleNotFound: SCHEDULE_NOT_FOUND,
    errors.KeyInUse: KEY_IN_USE,
    errors.WrongState: WRONG_STATE,
    errors.NotAuthenticated: NOT_AUTHENTICATED,
    errors.NotPermitted: NOT_PERMITTED,
    errors.TooManyAttempts: TOO_MANY_ATTEMPTS,
    errors.NotOpen: NOT_OPEN,
    errors.StoreUnavailable: STORE_UNAVAILABLE,
}
"""What becomes of our exceptions; a subclass is as its nearest base. All others are errors of the server."""

_PUBLIC_DETAILS: Final = {
    STORE_UNAVAILABLE: "the database is busy or out of reach; try again later",
    NOT_OPEN: "the server is starting or shutting down; try again later",
}
"""Said instead of the exception's own words, which are about the server's inside."""
_outage_log: Final = ThrottledLog(logging.getLogger("tidewheel.server"))


class InvalidPart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that is wrong with the input, and where: in the body or in the query."""

    detail: str
    pointer: str | UnsetType = UNSET
    parameter: str | UnsetType = UNSET


class ProblemDocument(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error as RFC 9457 has it."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    instance: str | UnsetType = UNSET
    errors: tuple[InvalidPart, ...] = ()
    position: int | UnsetType = UNSET
    length: int | UnsetType = UNSET
    incident: str | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode

MAX_DETAIL_LENGTH: Final = 2000
"""Max characters of a text in a problem document, which may quote what the client sent."""
MAX_POINTER_LENGTH: Final = 500
"""Max characters of a pointer or a parameter's name, which the client chose."""
MAX_ERRORS: Final = 100
"""Max parts of one problem."""


class Problem(Exception):
    """Raised anywhere in the server: the answer is this problem."""

    def __init__(
        self,
        kind: ProblemType,
        detail: str,
        *,
        errors: Sequence[InvalidPart] = (),
        headers: Headers = (),
        position: int | None = None,
        length: int | None = None,
        incident: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = kind.headers + headers
        self.position = position
        self.length = length
        self.incident = incident

    def document(self, instance: str) -> bytes:
        """The body of the answer."""
        kind = self.kind
        return _encode(
            ProblemDocument(
                type=kind.uri,
                title=kind.title,
                status=kind.status,
                detail=clip(self.detail, MAX_DETAIL_LENGTH),
                code=kind.code,
                instance=clip(instance, MAX_POINTER_LENGTH),
                errors=tuple(map(_bounded, self.errors[:MAX_ERRORS])),
                position=UNSET if self.position is None else self.position,
                length=UNSET if self.length is None else self.length,
                incident=UNSET if self.incident is None else self.incident,
            )
        )


def _bounded(part: InvalidPart) -> InvalidPart:
    return InvalidPart(
        detail=clip(part.detail, MAX_DETAIL_LENGTH),
        pointer=UNSET if part.pointer is UNSET else clip(part.pointer, MAX_POINTER_LENGTH),
        parameter=UNSET if part.parameter is UNSET else clip(part.parameter, MAX_POINTER_LENGTH),
    )


def to_problem(error: Exception) -> Problem:
    """An exception as a problem. What nobody expected is told to the log alone, under an incident's id."""
    if isinstance(error, Problem):
        return error
    for base in type(error).__mro__:
        kind = _BY_ERROR.get(base)
        if kind is not None:
            break
    else:
        incident = uuid4().hex[:12]
        logger.error("incident %s: a request failed", incident, exc_info=error)
        return Problem(
            INTERNAL_ERROR,
            f"the server's log has more about it under incident {incident}",
            incident=incident,
        )
    if kind in _PUBLIC_DETAILS:
        _outage_log.write(kind.code, "a request could not be served: %s", error)
    position, length = getattr(error, "position", None), getattr(error, "length", None)
    parts: Sequence[InvalidPart] = ()
    if position is not None:  # of a filter, in which it points at a character
        parts = [InvalidPart(detail=str(error), parameter="where")]
    elif isinstance(error, errors.InvalidPayload):
        parts = _payload_parts(error, "#/payload")
    elif isinstance(error, errors.ParentNotFound):
        parts = [InvalidPart(detail=str(error), pointer="#/after")]
    wait = getattr(error, "retry_after", None)
    return Problem(
        kind,
        _PUBLIC_DETAILS.get(kind) or str(error),
        errors=parts,
        headers=() if wait is None else _retry_after(max(1, math.ceil(wait))),
        position=position,
        length=length,
    )


def problem_at(error: Exception, pointer: str) -> Problem:
    """The same problem, and where in the body it is."""
    problem = to_problem(error)
    parts = [InvalidPart(detail=problem.detail, pointer=pointer)]
    if isinstance(error, errors.InvalidPayload):
        parts = _payload_parts(error, pointer)
    return Problem(
        problem.kind, problem.detail, errors=parts, position=problem.position, length=problem.length
    )


def _payload_parts(error: errors.InvalidPayload, pointer: str) -> list[InvalidPart]:
    """Each member of the payload that is wrong, or the payload when it is wrong as a whole."""
    places = error.places or (("", str(error)),)
    return [InvalidPart(detail=what, pointer=pointer + place) for place, what in places]


def invalid_input_problem(
    detail: str, *, pointer: str | None = None, parameter: str | None = None
) -> Problem:
    """Input that cannot be accepted, and where it is wrong."""
    part = InvalidPart(
        detail=detail,
        pointer=UNSET if pointer is None else pointer,
        parameter=UNSET if parameter is None else parameter,
    )
    return Problem(INVALID_INPUT, detail, errors=[part])
