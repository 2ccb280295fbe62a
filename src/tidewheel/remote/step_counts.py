"""How many steps jobs have that are run elsewhere: whoever runs one may not count."""

from __future__ import annotations

from typing import Final

from tidewheel.errors import LimitExceeded
from tidewheel.model import Lease
from tidewheel.stores.protocol import MAX_STEPS, Store

MAX_COUNTED: Final = 10_000
"""Runs whose counts are remembered; those that reported nothing for longest give way."""


class StepCounts:
    """What the store has is read once for each run, and counted on from there: it is read with all outputs.

    Steps that another server is told of meanwhile are missed here: behind several of them a job may have that
    many times the limit, at most.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._most: dict[Lease, int] = {}  # no run has more than this, those of other servers aside

    async def check(self, lease: Lease, new: set[str]) -> None:
        """``LimitExceeded`` when these names would be too many."""
        most = self._most.pop(lease, None)
        if most is None or most + len(new) > MAX_STEPS:  # some of them may be repeats, which count once
            known = {step.name for step in await self._store.steps(lease) or ()}
            if new - known and len(known | new) > MAX_STEPS:
                raise LimitExceeded(
                    f"step {max(new - known)!r} would be one too many; the limit is {MAX_STEPS:,} steps a job"
                )
            most = len(known - new)
        self._most[lease] = most + len(new)
        if len(self._most) > MAX_COUNTED:
            del self._most[next(iter(self._most))]
