"""A job whole: what ``JobRecord`` shows, and what else its store keeps to itself. How jobs change stores.

Two stores hold the same job when these are equal. So everything is in one form, whichever store told it:
lengths of time as whole microseconds, and of a finished job nothing that only matters before its end.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from tidewheel.core.model import FINAL_STATES, JobRecord, KeyLifetime, Progress


class FullJob(Struct, frozen=True, kw_only=True, gc=False):
    """Everything a store knows of a job. ``record.progress`` is as it was reported, also when completed."""

    record: JobRecord
    key_until: KeyLifetime | None = None  # None = it has no key
    expires_at: int | None = None
    retention: float | None = None
    retention_failed: float | None = None
    suspect: bool = False  # to be granted alone
    counts_if_lost: bool = False
    buried: bool = False  # put away by a verb: never pruned

    @property
    def holds_key(self) -> bool:
        """Whether it keeps others with its key out."""
        if self.key_until is None:
            return False
        return self.key_until is KeyLifetime.PRUNED or self.record.state not in FINAL_STATES

    @property
    def size(self) -> int:
        """About how many bytes it takes: its bodies, and what its runs left."""
        record = self.record
        saved = sum(len(body or b"") for body in (record.payload, record.result, record.checkpoint))
        errors = sum(len(one.error.message) + len(one.error.traceback or "") for one in record.attempts)
        return saved + sum(len(step.output) for step in record.steps) + errors


def make_full_job(
    record: JobRecord,
    reported: Progress | None,
    *,
    expires_at: int | None,
    suspect: bool,
    counts_if_lost: bool,
    **others: Any,
) -> FullJob:
    """A job as its store told it, in the form that can be compared."""
    ended = record.state in FINAL_STATES
    record = structs.replace(
        record,
        progress=reported,
        payload=None if record.payload is None else bytes(record.payload),
        cancel_requested=record.cancel_requested and not ended,
        blocked=0 if ended else record.blocked,
        # What became of the others is theirs to tell.
        after=tuple([structs.replace(parent, state=None) for parent in record.after]),
        # As a database has it whose texts cannot hold the character.
        error_summary=record.error_summary and record.error_summary.replace("\0", "\\x00")[:200],
    )
    return FullJob(
        record=record,
        expires_at=None if ended else expires_at,
        suspect=suspect and not ended,
        counts_if_lost=counts_if_lost and not ended,
        **others,
    )


_encode: Final = msgspec.msgpack.Encoder(order="deterministic").encode


def canonical_bytes(job: FullJob) -> bytes:
    """The same bytes for the same job, on any store."""
    return _encode(job)
