"""Whether a history can be true of a store that keeps its promises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidewheel.verification.history import Event, Result
from tidewheel.verification.invariants import INVARIANTS, find_orphaned_leases
from tidewheel.verification.job_histories import HistoryIndex

MAX_FINDINGS_PER_RULE = 20
"""Of one rule that are told; a store that is broken breaks a rule thousands of times."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that must not be."""

    rule: str
    text: str


@dataclass(slots=True)
class RecoveryTimes:
    """What became of the jobs of workers that died, or stood still."""

    orphans: int = 0
    timed: int = 0
    """Those of which is known when their leases ended: no call was lost that may have lengthened them."""
    worst_after_lease: float | None = None
    """Of these: seconds from the end of the lease until somebody else had the job; the promise is one. Time
    in which the store itself was away does not count."""


@dataclass(slots=True)
class CheckReport:
    """What was looked at, and what was found."""

    violations: list[Violation]
    counts: dict[str, int]
    """How many of what the history is made of: jobs, grants, endings, …"""
    faults: dict[str, int]
    """Faults that were injected, by kind."""
    recovery: RecoveryTimes
    omitted: dict[str, int] = field(default_factory=dict)
    """Findings beyond the first of each rule."""


def check_history(events: Iterable[Event]) -> CheckReport:
    """Read a history and try every rule on it."""
    book = HistoryIndex(events)
    violations: list[Violation] = []
    left_out: dict[str, int] = {}
    for rule in INVARIANTS:
        findings = list(rule.check(book))
        violations += [Violation(rule.name, text) for text in findings[:MAX_FINDINGS_PER_RULE]]
        if len(findings) > MAX_FINDINGS_PER_RULE:
            left_out[rule.name] = len(findings) - MAX_FINDINGS_PER_RULE
    recovery = _recovery(book)
    counts = {**_counts(book), "orphans": recovery.orphans}
    return CheckReport(violations, counts, dict(book.faults), recovery, left_out)


def _counts(histories: HistoryIndex) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for enqueueing in histories.enqueue_calls:
        counts["enqueues"] += 1
        counts[f"enqueues {enqueueing.result}"] += 1
    counts["jobs"] = sum(bool(life.stored) for life in histories.jobs.values())
    counts["claims"] = len(histories.claim_calls)
    for _, lease in histories.leases:
        counts["grants"] += 1
        counts["runs"] += len(lease.started)
        counts["extensions"] += len(lease.extensions)
        for extension in lease.extensions:
            counts["extensions refused"] += extension.kept is False
        for settling in lease.settle_calls:
            word = {True: "accepted", False: "refused", None: "unknown"}[settling.accepted]
            counts["endings"] += 1
            counts[f"endings {word}"] += 1
    for life in histories.jobs.values():
        runs = sum(len(lease.started) for lease in life.leases)
        counts["jobs run more than once"] += runs > 1
        if life.end is not None:
            counts[f"jobs {life.end.state}"] += 1
    counts["processes gone"] = len(histories.ended_processes)
    counts["processes frozen"] = len(histories.freezes)
    counts["events without a grant"] = len(histories.events_without_grant)
    return {name: number for name, number in sorted(counts.items()) if number or " " not in name}


def _recovery(histories: HistoryIndex) -> RecoveryTimes:
    recovery = RecoveryTimes()
    for orphan in find_orphaned_leases(histories):
        recovery.orphans += 1
        due = orphan.due
        if orphan.found is None or not orphan.certain:
            continue
        recovery.timed += 1
        # Nobody can be found by a store that is away: count from its return.
        for span in histories.store_outages:
            if not span.process and span.begin <= max(due, orphan.found) and span.end > due:
                due = min(span.end, orphan.found)
        late = max(0.0, orphan.found - due)
        recovery.worst_after_lease = max(late, recovery.worst_after_lease or 0.0)
    return recovery


__all__ = ["CheckReport", "RecoveryTimes", "Result", "Violation", "check_history"]
