"""Jobs that run after others: what every store refuses alike, before it looks at what is there."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tidewheel.errors import KeyInUse, LimitExceeded, ParentNotFound
from tidewheel.model import NewJob
from tidewheel.names import shorten
from tidewheel.stores.protocol import MAX_EDGES, MAX_PARENTS


def check_parents(jobs: Sequence[NewJob]) -> bool:
    """Whether any of these is to run after another; raises for what cannot be written.

    A job of the same call is there only for those that stand behind it, so nobody can wait in a circle.
    """
    edges = sum([len(job.after) for job in jobs if job.after])
    if not edges:
        return False
    if edges > MAX_EDGES:
        raise LimitExceeded(
            f"{edges:,} jobs to run after are named in one call; the limit is {MAX_EDGES:,}, send them in "
            "several"
        )
    places = {job.id: place for place, job in enumerate(jobs)}
    for place, job in enumerate(jobs):
        if len(job.after) > MAX_PARENTS:
            raise LimitExceeded(
                f"a job is to run after {len(job.after):,} others; the limit is {MAX_PARENTS:,}, put a job "
                "between that runs after some of them"
            )
        for parent in job.after:
            if places.get(parent, -1) >= place:
                raise parent_not_found(parent)
    return True


def key_in_use(key: str | None) -> KeyInUse:
    """Refuse a job whose key is held by a job that its maker may not see, without a word about that job."""
    return KeyInUse(
        f"key {shorten(key)} is held by a job that this caller may not see; nothing was enqueued. Use "
        "another key, or ask the operator for a manage_rule that shows it"
    )


def parent_not_found(parent: UUID | str) -> ParentNotFound:
    """The same words for one that was never there, is gone, is hidden, or is another tenant's."""
    return ParentNotFound(
        f"there is no job {parent} to run after; nothing was enqueued. Enqueue it first, in the same tenant"
    )
