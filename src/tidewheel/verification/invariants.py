"""What must be true of every history, rule by rule. Each looks at the whole and says what cannot be."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from uuid import UUID

from tidewheel.core.model import FINAL_STATES, State
from tidewheel.verification.history import RequestedJob, Result, StoredJob
from tidewheel.verification.job_histories import (
    FOREVER,
    EnqueueCall,
    ExtendCall,
    HistoryIndex,
    JobHistory,
    LeaseHistory,
    SettleCall,
)

CLOCK_SLACK_SECONDS = 0.05
"""Seconds by which the store's clock may run apart from the one of the events over a lease (NTP slews it)."""
MAX_RECOVERY_SECONDS = 1.0
"""How long after its lease has ended an orphan may stay unnoticed: the second of the recovery promise."""
MAX_IN_FLIGHT_SECONDS = 10.0
"""Longest time, in seconds, that a call is thought to be on its way to the store after it was sent."""
UNCOUNTED_LOSSES = 2
"""Runs that crashes may cut off before they count: a job that lost two workers runs alone, and counts."""

CANCEL_VERDICTS = {"done", "requested"}
COUNTED_OUTCOMES = {"complete", "retry", "fail"}
"""Endings that count as an attempt."""

Findings = Iterator[str]


@dataclass(frozen=True, slots=True)
class Invariant:
    """One promise, as it can be checked."""

    name: str
    promise: str
    check: Callable[[HistoryIndex], Findings]
    counted_as: str = "jobs"
    """Of which it is true, as the report counts them: where there were none, nothing was tried."""


# -- 1 ------------------------------------------------------------------------------------------------------


def acknowledged_is_present(histories: HistoryIndex) -> Findings:
    keys: defaultdict[tuple[str, str, str], list[UUID]] = defaultdict(list)
    for life in histories.jobs.values():
        if len(life.stored) > 1:
            yield f"job {life.id} is stored {len(life.stored)} times"
        seen = life.leases or any(one.verdict in CANCEL_VERDICTS for one in life.cancel_calls)
        if (life.end is not None or seen) and life.request is None:
            yield f"job {life.id} is there though nobody asked for it"
        if seen and life.end is None and histories.drained_at:
            yield f"job {life.id} was there, and is gone"
        for stored in life.stored:
            if stored.key is not None:
                keys[stored.tenant, stored.task or stored.topic, stored.key].append(stored.id)
            if life.request is not None and (differences := _differences(life.request, stored)):
                yield f"job {life.id} is stored with {differences}, which is not what was asked for"
    for (tenant, task, key), holders in keys.items():
        if len(holders) > 1:
            yield f"{len(holders)} jobs hold the key {key!r} of {task} in tenant {tenant}"
    for enqueueing in histories.enqueue_calls:
        if enqueueing.result is Result.OK:
            yield from _acknowledged(histories, enqueueing)
        elif enqueueing.result is Result.FAILED:
            for job in enqueueing.called.jobs:
                life = histories.job_history(job.id)
                if life.request_count == 1 and (life.end is not None or life.leases):
                    yield f"job {job.id} is there though its enqueue failed for certain"


def _acknowledged(histories: HistoryIndex, enqueueing: EnqueueCall) -> Findings:
    answered = enqueueing.answered
    assert answered is not None  # noqa: S101 - it is the answer that acknowledges
    for job, job_id, duplicate in zip(enqueueing.called.jobs, answered.ids, answered.duplicates, strict=True):
        holder = histories.jobs.get(job_id)
        if holder is None or holder.end is None:
            yield f"job {job_id} was acknowledged to {answered.process} and is gone"
        elif duplicate and (job.key is None or _key(holder.request) != _key(job)):
            yield f"job {job.id} was called a duplicate of {job_id}, which does not hold its key"
        elif not duplicate and job_id != job.id:
            yield f"job {job.id} was acknowledged as {job_id}"


def _key(job: RequestedJob | None) -> tuple[str, str, str | None] | None:
    return None if job is None else (job.tenant, job.task or job.topic, job.key)


def _differences(asked: RequestedJob, stored: StoredJob) -> str:
    """What is stored otherwise than it was wanted; tenants are the sixth rule's."""
    pairs = {
        "topic": (asked.topic, stored.topic),
        "task": (asked.task, stored.task),
        "key": (asked.key, stored.key),
        "max_attempts": (asked.max_attempts, stored.max_attempts),
    }
    return ", ".join(f"{name} {is_!r}" for name, (wanted, is_) in pairs.items() if wanted != is_)


# -- 2 ------------------------------------------------------------------------------------------------------

_ENDS = {"complete": State.COMPLETED, "fail": State.FAILED, "cancel": State.CANCELLED}


def every_job_ends_once(histories: HistoryIndex) -> Findings:
    for life in histories.jobs.values():
        end = life.end
        if end is None:
            continue
        state = State(end.state)
        if state not in FINAL_STATES:
            if histories.drained_at:
                yield f"job {life.id} is still {state} though nothing is going on any more"
            continue
        ends = [(lease, settling) for lease in life.leases for settling in lease.accepted]
        for lease in life.leases:
            if len(lease.accepted) > 1:
                yield f"job {life.id}: {len(lease.accepted)} endings were accepted under fence {lease.fence}"
        final = [(lease, settling) for lease, settling in ends if settling.outcome in _ENDS]
        if len(final) > 1:
            yield f"job {life.id} ended {len(final)} times: {', '.join(one.outcome for _, one in final)}"
        for lease, settling in final:
            if _ENDS[settling.outcome] is not state:
                yield (
                    f"job {life.id} is {state}, but {settling.outcome!r} of fence {lease.fence} was accepted"
                )
            elif lease.fence != end.fence:
                yield f"job {life.id} was ended under fence {lease.fence}, but has fence {end.fence}"
        if not final and (why_not := _unexplained(histories, life, state)):
            yield f"job {life.id} is {state}, {why_not}"
        if any(lease.fence > end.fence for lease in life.leases):
            yield f"job {life.id} was granted again after it had ended under fence {end.fence}"
        if state is not State.CANCELLED and any(one.verdict == "done" for one in life.cancel_calls):
            yield f"job {life.id} is {state} though it was cancelled"


def _unexplained(histories: HistoryIndex, history: JobHistory, state: State) -> str | None:
    """None when its end has another reason than an ending that was accepted in somebody's hearing."""
    end = history.end
    assert end is not None  # noqa: S101 - callers look at stored jobs
    winner = next((lease for lease in history.leases if lease.fence == end.fence), None)
    undecided = winner.unknown_outcomes if winner is not None else set()
    asked_to_cancel = any(
        one.verdict in {"done", "requested", None}
        and (end.ended is None or histories.clock_stepped or one.sent <= end.ended + CLOCK_SLACK_SECONDS)
        for one in history.cancel_calls
    )
    match state:
        case State.COMPLETED:
            return None if "complete" in undecided else f"but nobody completed it under fence {end.fence}"
        case State.FAILED:
            tried = end.max_attempts is not None and end.attempt >= end.max_attempts
            by_retry = winner is not None and any(
                one.outcome == "retry" and one.accepted is not False for one in winner.settle_calls
            )
            lost = end.error == "worker_lost" and _was_lost(histories, winner, end)
            if "fail" in undecided or (tried and (by_retry or lost)):
                return None
            return f"but nobody failed it, and attempt {end.attempt} was not its last ({end.error})"
        case _:
            expired = end.error == "expired"
            by_parent = (
                end.error == "parent_failed" and history.request is not None and history.request.after != ()
            )
            if asked_to_cancel or expired or by_parent or "cancel" in undecided:
                return None
            return "but nobody asked for that"


def _was_lost(histories: HistoryIndex, winner: LeaseHistory | None, end: StoredJob) -> bool:
    """Whether its last lease, or one nobody heard of, had ended when the job was given up for it."""
    if winner is None:
        return bool(histories.unanswered_claims)
    if histories.clock_stepped or end.ended is None:
        return True
    return end.ended >= winner.held_at_least_as_of(end.ended) - CLOCK_SLACK_SECONDS


# -- 3 ------------------------------------------------------------------------------------------------------


def leases_do_not_overlap(histories: HistoryIndex) -> Findings:
    given: dict[int, JobHistory] = {}
    for life, lease in histories.leases:
        other = given.setdefault(lease.fence, life)
        if other is not life:
            yield f"fence {lease.fence} was given out for job {other.id} and for job {life.id}"
    for life in histories.jobs.values():
        for earlier, later in pairwise(life.leases):
            if earlier.fence == later.fence:
                yield f"job {life.id}: fence {later.fence} was given out twice"
            elif earlier.granted_at < later.claimed_at and later.fence < earlier.fence:
                yield f"job {life.id}: fence {later.fence} came after fence {earlier.fence}"
        if histories.clock_stepped:
            continue  # leases are counted by that clock: then only fences keep holders apart
        granted = life.grants
        for index, earlier in enumerate(granted):
            for later in granted[index + 1 :]:
                if later.granted_at < earlier.held_at_least_until - CLOCK_SLACK_SECONDS:
                    overlap = earlier.held_at_least_until - later.granted_at
                    yield (
                        f"job {life.id}: {later.process} got it {overlap:.3f} s before the lease of "
                        f"{earlier.process} "
                        f"(fence {earlier.fence}, then {later.fence}) could have ended"
                    )


def valid_leases_are_honoured(histories: HistoryIndex) -> Findings:
    if histories.clock_stepped:
        return
    for life, lease in histories.leases:
        writes: list[ExtendCall | SettleCall] = [*lease.extensions, *lease.settle_calls]
        for write in writes:
            if not write.refused or write.answered is None:
                continue
            ended = [
                one.sent for one in lease.settle_calls if one is not write and one.sent <= write.answered
            ]
            until = lease.held_at_least_as_of(write.sent)
            if not ended and write.answered < until - CLOCK_SLACK_SECONDS:
                what = write.outcome if isinstance(write, SettleCall) else "extend"
                yield (
                    f"job {life.id}: {what!r} of {lease.process} under fence {lease.fence} was refused "
                    f"{until - write.answered:.3f} s before the lease could have ended"
                )


# -- 4 ------------------------------------------------------------------------------------------------------


def late_writes_are_refused(histories: HistoryIndex) -> Findings:
    for life, lease in histories.leases:
        newer = min((other.granted_at for other in life.leases if other.fence > lease.fence), default=None)
        over = None if histories.clock_stepped else lease.held_at_most_until + CLOCK_SLACK_SECONDS
        writes = [(lease.earliest_settled_at(one), one.outcome) for one in lease.accepted]
        writes += [(one.sent, "extend") for one in lease.extensions if one.kept]
        for sent, what in writes:
            if newer is not None and sent > newer:
                yield (
                    f"job {life.id}: {what!r} of {lease.process} under fence {lease.fence} was accepted, "
                    "though "
                    f"it was sent {sent - newer:.3f} s after a newer lease had been received"
                )
            elif over is not None and sent > over and what != "extend":
                yield (
                    f"job {life.id}: {what!r} of {lease.process} under fence {lease.fence} was accepted, "
                    "though "
                    f"it was sent {sent - over:.3f} s after the lease had ended"
                )
        yield from _late_extensions(histories, life, lease)
    for life in histories.jobs.values():
        end = life.end
        if end is not None and end.state == State.COMPLETED:
            winners = [lease for lease in life.leases if lease.fence == end.fence]
            if not any(well for lease in winners for _, well in lease.ended):
                yield f"job {life.id} is completed under fence {end.fence}, where no run ended well"


def _late_extensions(histories: HistoryIndex, history: JobHistory, lease: LeaseHistory) -> Findings:
    """Each extension must have been sent before the lease had ended as of the extensions before it."""
    if histories.clock_stepped:
        return
    until = lease.granted_at + lease.seconds
    ended = min((one.answered for one in lease.accepted if one.answered is not None), default=None)
    for extension in lease.extensions:
        if extension.kept is None or extension.answered is None:
            until += extension.seconds  # it may have come into force as late as the lease held
            continue
        if extension.kept and ended is not None and extension.sent > ended:
            yield (
                f"job {history.id}: {lease.process} extended fence {lease.fence} "
                "after its ending was accepted"
            )
        if extension.kept and extension.sent > until + CLOCK_SLACK_SECONDS:
            yield (
                f"job {history.id}: {lease.process} extended fence {lease.fence} "
                f"{extension.sent - until:.3f} s after it had ended"
            )
        if extension.kept:
            until = max(until, extension.answered + extension.seconds)


# -- 5 ------------------------------------------------------------------------------------------------------


def attempts_and_times_are_kept(histories: HistoryIndex) -> Findings:
    for life in histories.jobs.values():
        asked, end = life.request, life.end
        if asked is None:
            continue
        limit = asked.max_attempts
        if limit is not None:
            if end is not None and end.attempt > limit:
                yield f"job {life.id} has had {end.attempt} attempts of {limit}"
            for lease in life.leases:
                if lease.granted.attempt > limit:
                    yield f"job {life.id} was granted for attempt {lease.granted.attempt} of {limit}"
            counted = [
                one for lease in life.leases for one in lease.accepted if one.outcome in COUNTED_OUTCOMES
            ]
            if len(counted) > limit:
                yield f"job {life.id} had {len(counted)} attempts accepted of {limit}"
            cut_off = [
                one for one in life.leases if one.started and not one.accepted and not one.unknown_outcomes
            ]
            if len(cut_off) > limit + UNCOUNTED_LOSSES:
                yield f"job {life.id} was started and cut off {len(cut_off)} times with {limit} attempts"
        # One that runs is asked to end; whatever else becomes of that run, it gets no other.
        cancelled = min(
            (
                one.answered
                for one in life.cancel_calls
                if one.verdict in {"done", "requested"} and one.answered
            ),
            default=None,
        )
        if any(one.verdict == "not_found" for one in life.cancel_calls) and end is not None:
            yield f"job {life.id} was not found when it was to be cancelled"
        due = life.requested_at + asked.delay
        for lease in life.grants:
            if lease.granted_at < due - CLOCK_SLACK_SECONDS and not histories.clock_stepped:
                yield f"job {life.id} was granted {due - lease.granted_at:.3f} s before it was due"
            if cancelled is not None and lease.claimed_at > cancelled:
                yield f"job {life.id} was granted to {lease.process} after it had been cancelled"
            for one in lease.accepted:
                if one.outcome in {"retry", "release"}:
                    due = max(due, lease.earliest_settled_at(one) + one.delay)


# -- 6 ------------------------------------------------------------------------------------------------------


def calls_are_whole_and_tenants_apart(histories: HistoryIndex) -> Findings:
    for enqueueing in histories.enqueue_calls:
        # Of jobs with keys others may hold them, which is known only from the answer.
        plain = [job for job in enqueueing.called.jobs if job.key is None]
        there = sum(histories.job_history(job.id).end is not None for job in plain)
        if 0 < there < len(plain):
            yield (
                f"{there} of the {len(plain)} jobs that {enqueueing.called.process} enqueued together are "
                "there"
            )
    for life in histories.jobs.values():
        if life.request is None:
            continue
        tenant = life.request.tenant
        for lease in life.leases:
            if lease.granted.tenant != tenant:
                yield f"job {life.id} of tenant {tenant} was granted as one of {lease.granted.tenant}"
        if life.end is not None and life.end.tenant != tenant:
            yield f"job {life.id} of tenant {tenant} is stored as one of {life.end.tenant}"
    for listed in histories.listed:
        for job_id in listed.ids:
            owner = histories.job_history(job_id).request
            if owner is not None and owner.tenant != listed.tenant:
                yield f"job {job_id} of tenant {owner.tenant} was shown to tenant {listed.tenant}"
    yield from _counters(histories)


def _counters(histories: HistoryIndex) -> Findings:
    if not histories.counted:
        return
    real: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for life in histories.jobs.values():
        for stored in life.stored:
            real[stored.topic][stored.state] += 1
    said = {counted.topic: counted.states for counted in histories.counted}
    for topic in sorted(real.keys() | said.keys()):
        counts = {state: number for state, number in said.get(topic, {}).items() if number}
        if counts != dict(real[topic]):
            yield f"topic {topic} is said to have {counts}, and has {dict(real[topic])}"


# -- 7 ------------------------------------------------------------------------------------------------------


def parents_end_first(histories: HistoryIndex) -> Findings:
    for life in histories.jobs.values():
        asked = life.request
        if asked is None or not asked.after:
            continue
        ends = [None if (parent := histories.jobs.get(one)) is None else parent.end for one in asked.after]
        all_well = all(end is not None and end.state == State.COMPLETED for end in ends)
        if life.end is not None and life.end.error == "parent_failed" and (asked.after_any or all_well):
            yield f"job {life.id} was cancelled for a parent, though {asked.after} gave no reason"
        for parent_id, end in zip(asked.after, ends, strict=True):
            for lease in life.leases:
                if end is None or end.state not in FINAL_STATES:
                    yield f"job {life.id} was granted, though its parent {parent_id} has not ended"
                elif not asked.after_any and end.state != State.COMPLETED:
                    yield f"job {life.id} was granted, though its parent {parent_id} is {end.state}"
                elif (
                    not histories.clock_stepped
                    and end.ended is not None
                    and lease.granted_at < end.ended - CLOCK_SLACK_SECONDS
                ):
                    yield f"job {life.id} was granted before its parent {parent_id} had ended"


# -- 8 ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OrphanedLease:
    """A job whose lease ended by time: its worker died, stood still or was cut off before it could end it."""

    life: JobHistory
    lease: LeaseHistory
    due: float  # when its lease must have ended
    found: float | None  # when somebody else got it, or it was ended by time; None: never
    certain: bool  # whether no call may have lengthened it of which nobody knows


def find_orphaned_leases(histories: HistoryIndex) -> Iterator[OrphanedLease]:
    """Every lease that nobody ended."""
    for life in histories.jobs.values():
        grants = life.grants
        for index, lease in enumerate(grants):
            following = grants[index + 1 :]
            # An ending whose answer was lost may have been accepted; but a job granted again has not ended.
            perhaps = lease.unknown_outcomes & {"retry", "release"} if following else lease.unknown_outcomes
            if lease.accepted or perhaps:
                continue
            if following:
                found: float | None = following[0].granted_at
            else:
                found = life.end.ended if life.end is not None else None
            due = lease.held_at_most_until
            unheard = list(_unheard(histories, lease, found))
            yield OrphanedLease(life, lease, max([due, *unheard]), found, lease.end_is_known and not unheard)


def _unheard(histories: HistoryIndex, lease: LeaseHistory, found: float | None) -> Iterator[float]:
    """Until when somebody may have held it without ever hearing of that."""
    for called in histories.unanswered_claims:
        if (
            lease.claimed_at - MAX_IN_FLIGHT_SECONDS <= called.at < (found or FOREVER)
            and lease.granted.topic in called.topics
        ):
            yield called.at + MAX_IN_FLIGHT_SECONDS + lease.seconds


def orphans_are_found_in_time(histories: HistoryIndex) -> Findings:
    if histories.clock_stepped:
        return  # their leases may have been made longer by it
    empty = [
        (claiming.called, claiming.answered.at)
        for claiming in histories.claim_calls
        if claiming.answered is not None
        and claiming.answered.result is Result.OK
        and not claiming.answered.grants
    ]
    sent = [called.at for called, _ in empty]
    for orphan in find_orphaned_leases(histories):
        end = orphan.life.end
        following = [lease for lease in orphan.life.grants if lease.fence > orphan.lease.fence]
        if following:
            waited_until = following[0].claimed_at  # from then on it may have been on its way to somebody
        elif end is not None and end.state in FINAL_STATES:
            waited_until = end.ended if end.ended is not None else orphan.due
        else:
            waited_until = float("inf")
        for index in range(bisect_right(sent, orphan.due + MAX_RECOVERY_SECONDS), len(empty)):
            called, answered = empty[index]
            if called.at >= waited_until:
                break
            if answered < waited_until - CLOCK_SLACK_SECONDS and orphan.lease.granted.topic in called.topics:
                yield (
                    f"job {orphan.life.id}: {called.process} was told that nothing waits "
                    f"{answered - orphan.due:.3f} s after the lease of {orphan.lease.process} had ended"
                )
                break


INVARIANTS = (
    Invariant(
        "acknowledged",
        "What was acknowledged is there, what failed for certain left nothing, and a key has one job.",
        acknowledged_is_present,
        "enqueues",
    ),
    Invariant(
        "ended",
        "Every job reaches one final state, once, and it is that of the ending that was accepted.",
        every_job_ends_once,
    ),
    Invariant(
        "leases",
        "No fence is given out twice, fences grow, and no two valid leases of a job overlap.",
        leases_do_not_overlap,
        "grants",
    ),
    Invariant(
        "honoured",
        "What is written under a valid lease is accepted: a worker that reaches the store keeps its jobs.",
        valid_leases_are_honoured,
        "grants",
    ),
    Invariant(
        "fenced",
        "Nothing is accepted under a lease that is over; completed means that a run ended well under it.",
        late_writes_are_refused,
        "endings",
    ),
    Invariant(
        "attempts",
        "No job has more attempts than it may, runs before it is due, or is granted once cancelled.",
        attempts_and_times_are_kept,
    ),
    Invariant(
        "whole",
        "Calls are all or nothing, tenants see their own, and the counters equal a recount.",
        calls_are_whole_and_tenants_apart,
        "enqueues",
    ),
    Invariant(
        "order",
        "No job begins before those it runs after have ended, and not at all where it must not.",
        parents_end_first,
    ),
    Invariant(
        "recovered",
        "A second after a lease has ended by time nobody is told that nothing waits while its job does.",
        orphans_are_found_in_time,
        "orphans",
    ),
)
