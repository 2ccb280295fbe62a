"""Find what needs attention in what live workers report with their heartbeat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from tidewheel.answers import Finding, FindingKind, Severity
from tidewheel.clock_guard import CONFIRM_SECONDS
from tidewheel.filtering.writing import written
from tidewheel.model import WorkerRecord
from tidewheel.wording import duration, plural, some_of

LAG_SECONDS: Final = 1.0
"""An event loop that lets things wait so long is held up by a handler that does not await."""


def of_workers(live: Sequence[WorkerRecord]) -> Iterator[Finding]:
    """Return what live workers report of themselves and of the store."""
    for worker in live:
        if worker.loop_lag_seconds >= LAG_SECONDS:
            yield Finding(
                kind=FindingKind.WORKER_LAGGING,
                severity=Severity.WARNING,
                title=f"The event loop of {worker.name} is held up",
                explanation=f"In the last seconds the event loop of worker {worker.name} let things wait for "
                f"{duration(worker.loop_lag_seconds)}: some handler works without awaiting.",
                remedy="Make that handler a plain function, which runs on a thread, or give its task "
                'isolation="process"; jobs it runs now are those to look at',
                worker=worker.name,
                where=f"state:running {written('worker', worker.name)}",
                details={"loop_lag_seconds": worker.loop_lag_seconds},
            )
    if step := max((worker.clock_step_seconds for worker in live), default=0.0):
        yield Finding(
            kind=FindingKind.CLOCK_STEP,
            severity=Severity.WARNING,
            title="The store's clock jumped ahead",
            explanation=f"It stepped ahead by {duration(step)}. Pruning, retention and expiry go by the time "
            f"before that, until the step has lasted for {duration(CONFIRM_SECONDS)}.",
            remedy="Set the clock right; if it is right, do nothing",
            details={"seconds": step},
        )
    polling = [worker.name for worker in live if worker.polling]
    if polling:
        yield Finding(
            kind=FindingKind.WORKER_POLLING,
            severity=Severity.WARNING,
            title=f"{plural(len(polling), 'worker hears', 'workers hear')} no wake-ups",
            explanation=f"To {names_of(polling)} no wake-ups come through: jobs are found by polling, up to "
            "poll_interval later.",
            remedy="The connection that listens is lost, and is made anew by itself when the server lets it; "
            "behind a pooler give workers a URL that leads to the server itself",
            worker=polling[0] if len(polling) == 1 else None,
            details={"workers": len(polling)},
        )
    versions = Counter(worker.version for worker in live)
    if len(versions) > 1:
        told = ", ".join(f"{plural(n, 'worker')} of {version}" for version, n in sorted(versions.items()))
        yield Finding(
            kind=FindingKind.MIXED_VERSIONS,
            severity=Severity.INFO,
            title="Workers of several versions",
            explanation=f"There are {told}.",
            remedy="Right while a deployment goes on; afterwards restart those of the older version",
            details=dict(versions),
        )


def names_of(names: Sequence[str]) -> str:
    """Return their names for a sentence, the first few of many."""
    return f"{'worker' if len(names) == 1 else 'workers'} {some_of(names)}"
