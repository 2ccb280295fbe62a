"""How an attempt ended, as a value. The worker decides it; the store records it under the lease."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from tidewheel.model import FailureOrigin, JobError


class Completed(Struct, frozen=True, gc=False):
    """The handler returned. ``result`` is encoded JSON; None when it returned nothing."""

    result: bytes | None = None


class Retried(Struct, frozen=True, gc=False):
    """The attempt errored and counts; the job is due again in ``delay`` seconds by the store's clock."""

    delay: float
    error: JobError


class Failed(Struct, frozen=True, gc=False):
    """The attempt errored and was the last."""

    error: JobError
    origin: FailureOrigin = FailureOrigin.ATTEMPT
    priority: int | None = None  # for when it is brought back; None = as before


class Released(Struct, frozen=True, gc=False):
    """Given back: not counted as an attempt, due again in ``delay`` seconds."""

    delay: float = 0.0
    priority: int | None = None  # None = as before
    counted: bool = True  # among the job's releases; False where nobody asked for it: its holder went away
    taken: bool = True  # False: nobody has had it, and its grant is not counted among its reserves


class Cancelled(Struct, frozen=True, gc=False):
    """Ended on request."""

    error: JobError


Outcome = Completed | Retried | Failed | Released | Cancelled

UNSEEN: Final = Released(counted=False, taken=False)
"""How a job is given back that was granted to somebody who has not seen it, and never will."""
