"""Leases of jobs that came before anybody asked: never believed to be longer than they are at the server."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from msgspec.structs import replace as replace_struct

from tidewheel.model import Claim, Claimed, Lease
from tidewheel.stores.http.working import Working

FRESH_SECONDS: Final = 0.5
"""Jobs that came longer ago than this get their leases anew before they are handed out."""
ON_ITS_WAY_SECONDS: Final = 0.1
"""How long an answer may have been on its way."""
SHORT_LEASE: Final = 5.0
"""Seconds: of a shorter lease too little would be left, so it is made anew, too."""


class Renewing:
    """The leases of what lay here, of one opened store."""

    def __init__(self, working: Working) -> None:
        self._working = working

    async def of_now(self, claim: Claim, age: float) -> Claim:
        """Its jobs, with leases that count from now; without those that somebody else has by now.

        ``age``: the server's count began at most so many seconds ago.
        """
        if not claim.jobs or age <= 0:
            return claim
        if age <= FRESH_SECONDS and all(job.lease_seconds >= SHORT_LEASE for job in claim.jobs):
            return replace_struct(claim, jobs=tuple(map(_shortened, claim.jobs)))
        held = await self._extended(claim.jobs)
        return replace_struct(claim, jobs=tuple(job for job in claim.jobs if job.lease in held))

    async def _extended(self, jobs: tuple[Claimed, ...]) -> set[Lease]:
        """Not asked for again under the claim's id: a server that does not know it would have other jobs for
        us, and these would be nobody's until their leases end. Any server extends a lease.
        """
        by_length: defaultdict[float, list[Lease]] = defaultdict(list)
        for job in jobs:
            by_length[job.lease_seconds].append(job.lease)
        held: set[Lease] = set()
        for lease_seconds, leases in by_length.items():
            answers = await self._working.extend(leases, lease_seconds)
            held.update(lease for lease, kept in zip(leases, answers, strict=True) if kept)
        return held


def _shortened(job: Claimed) -> Claimed:
    """By as much for every job, however long ago it came: those with leases of one length are extended
    together.
    """
    return replace_struct(job, lease_seconds=job.lease_seconds - FRESH_SECONDS - ON_ITS_WAY_SECONDS)
