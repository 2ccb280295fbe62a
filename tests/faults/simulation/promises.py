"""What can be asked of a simulation only, where nothing but what is simulated takes time.

On a real machine a process may stand still between any two instructions, so nobody can promise when a handler
starts or is stopped. Here that happens only when it is meant to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from tidewheel.verification.history import Event
from tidewheel.verification.job_histories import HistoryIndex, JobHistory, LeaseHistory, Outage

TICK = 0.5
"""How often the keeper looks at least."""
OPENING = 5.0
"""How long it may take to connect."""


@dataclass(frozen=True, slots=True)
class Known:
    """What only the simulation knows about a run."""

    plans: Mapping[UUID, str]
    """What each job does."""
    impatient: Collection[UUID]
    """Jobs with a timeout."""
    well_connected: Collection[str]
    """Processes that never had any trouble with the network."""
    stalls: bool
    """Whether threads had to wait for a processor."""


def broken_promises(events: list[Event], known: Known) -> Iterator[str]:
    """What a worker did with a lease that it must not, or did not though it should have."""
    histories = HistoryIndex(events)
    still = _still(histories, known)
    connected: dict[str, float] = {}  # keepers, by when the store had first answered them
    for _, lease in histories.leases:
        for extension in lease.extensions:
            if extension.kept is not None and extension.answered is not None:
                connected[lease.process] = min(
                    extension.answered, connected.get(lease.process, extension.answered)
                )
    frozen = {span.process for span in histories.freezes}
    for life, lease in histories.leases:
        yield from _started_late(life, lease)
        plan = known.plans.get(life.id)
        if known.stalls or plan == "ignore":
            continue
        if plan != "block":
            yield from _stopped_late(life, lease, connected.get(lease.process), still)
        steady = (
            lease.process in known.well_connected
            and lease.process not in frozen
            and not histories.clock_stepped
        )
        if steady and life.id not in known.impatient:
            yield from _lost_for_no_reason(life, lease)


def _still(histories: HistoryIndex, known: Known) -> list[Outage]:
    """When the event loop of a process did not run: it was frozen, or some handler blocked it."""
    spans = list(histories.freezes)
    for life, lease in histories.leases:
        if known.plans.get(life.id) == "block":
            ends = [end for end, _ in lease.ended] or [float("inf")]
            spans += [Outage(lease.process, start, ends[-1]) for start in lease.started]
    return sorted(spans, key=lambda span: span.end)


def _started_late(history: JobHistory, lease: LeaseHistory) -> Iterator[str]:
    """No handler starts under a lease that is over for all its worker knows."""
    for start in lease.started:
        late = start - _known_end(lease, start)
        if late >= 0:
            yield (
                f"started late: {lease.process} started job {history.id} "
                f"{late:.3f} s after its lease had ended"
            )


def _stopped_late(
    history: JobHistory, lease: LeaseHistory, connected: float | None, still: list[Outage]
) -> Iterator[str]:
    """A handler that obeys does not run on for long after its lease, whatever the store does."""
    for end, _ in lease.ended:
        due = _known_end(lease, end)
        for span in still:
            if span.process == lease.process and span.begin <= end and span.end >= due:
                due = span.end  # from then on it can be stopped
        late = end - due
        # For an answer of the store the keeper waits that long; for its connection, before that.
        patience = max(lease.seconds / 4, 0.0 if connected is not None and connected < end else OPENING)
        if late > TICK + patience + 0.001:
            yield (
                f"stopped late: {lease.process} ran job {history.id} "
                f"for {late:.3f} s after its lease had ended"
            )


def _lost_for_no_reason(history: JobHistory, lease: LeaseHistory) -> Iterator[str]:
    """A worker that runs and reaches the store keeps its jobs, also when a handler blocks its event loop."""
    if not lease.started or history.cancel_calls:
        return
    # An extension may be overtaken by the settlement, and is then refused with good reason.
    given_up = min((one.sent for one in lease.settle_calls), default=float("inf"))
    refused = [one.answered for one in lease.extensions if one.kept is False and one.answered is not None]
    if any(answered < given_up for answered in refused):
        yield f"lost for no reason: {lease.process} lost job {history.id} though nothing was wrong with it"
    elif any(one.accepted is False for one in lease.settle_calls):
        yield f"lost for no reason: the outcome of job {history.id} was refused to {lease.process}"


def _known_end(lease: LeaseHistory, now: float) -> float:
    """When its holder must think that the lease ends, by what it had heard by then."""
    heard = (one for one in lease.extensions if one.kept and one.answered is not None and one.answered <= now)
    return max([lease.claimed_at, *(one.sent for one in heard)]) + lease.seconds
