"""Claim due jobs of a ``JobTable``: the best of several lanes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.model import (
    FOREVER,
    Claim,
    ClaimRequest,
)
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.memory import maintenance, topic_limits
from tidewheel.stores.memory.job_rows import (
    JobHeap,
    JobRow,
)
from tidewheel.stores.memory.job_table import JobTable

Lanes = Mapping[tuple[str, str], JobHeap]
"""Due jobs by topic and task."""


def claim(table: JobTable, request: ClaimRequest, now: int) -> Claim:
    maintenance.rescue(table, now, MAX_BATCH)
    table.promote(now)
    lanes = table.lanes(request.lanes)
    room_at, kept_back = None, False
    if table.limits and any(topic in table.limits for topic, _ in lanes):
        jobs, room_at, kept_back = topic_limits.choose_jobs(table, request, lanes, now)
        jobs, stopped_early = _cut_at_suspect(jobs, request.limit)
    else:
        jobs, stopped_early = _choose_jobs(table, request, lanes, now)
    next_due_in = 0.0 if stopped_early else _next_due_in(table, lanes, room_at, now)
    granted = []
    for job in jobs:
        lease_seconds = request.lease_seconds if job.lease_seconds is None else job.lease_seconds
        table.grant(job, request.worker, now + seconds_to_microseconds(lease_seconds), now)
        job.counts_if_lost = len(jobs) == 1 and not request.reports_starts
        topic_limits.advance_job_meters(table, job, now)
        granted.append(job.to_claimed(lease_seconds))
    return Claim(tuple(granted), next_due_in, kept_back)


def _next_due_in(table: JobTable, lanes: Lanes, room_at: int | None, now: int) -> float | None:
    """Seconds until a claim may find more: a delayed job, a lease that ends, a pause that ends, a rate that
    allows.

    Leases granted by the claim at hand are not looked at: their worker knows of them.
    """
    moments = [table.waiting.first_key(), table.leases.first_key(), room_at]
    moments += [table.paused_until(topic, now) for (topic, _), ready in lanes.items() if ready]
    moment = min((moment for moment in moments if moment is not None and moment < FOREVER), default=None)
    return None if moment is None else max(0, moment - now) / MICROSECONDS


def _choose_jobs(table: JobTable, request: ClaimRequest, lanes: Lanes, now: int) -> tuple[list[JobRow], bool]:
    """The best jobs across the lanes, taken out of them.

    True when the limit or a suspect ended the choice, so that asking again at once may find more.
    """
    room = dict(request.topic_limits)
    heads = [
        (-job.priority, job.number, ready)
        for (topic, _), ready in lanes.items()
        if not table.paused_until(topic, now) and (job := ready.first())
    ]
    heapq.heapify(heads)
    chosen: list[JobRow] = []
    while heads and len(chosen) < request.limit:
        ready = heads[0][2]
        job = ready.first()
        if job is None or room.get(job.topic, 1) <= 0:
            heapq.heappop(heads)
            continue
        if job.suspect and chosen:
            return chosen, True
        ready.remove(job)
        chosen.append(job)
        if job.suspect:
            return chosen, True
        if job.topic in room:
            room[job.topic] -= 1
        if following := ready.first():
            heapq.heapreplace(heads, (-following.priority, following.number, ready))
    return chosen, len(chosen) >= request.limit


def _cut_at_suspect(jobs: list[JobRow], limit: int) -> tuple[list[JobRow], bool]:
    """A suspect is the only one when it comes first, and the end of the choice otherwise. Best first."""
    stopped_early = len(jobs) >= limit
    suspect = next((position for position, job in enumerate(jobs) if job.suspect), None)
    if suspect is not None:
        stopped_early = True
        del jobs[max(suspect, 1) :]
    return sorted(jobs, key=lambda job: (-job.priority, job.number)), stopped_early
