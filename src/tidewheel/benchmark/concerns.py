"""What looks wrong in a run: sentences for people, each with what can be done."""

from __future__ import annotations

from typing import Final

from tidewheel.benchmark.figures import Figures, Measurement
from tidewheel.remedies import said

SLOW_ROUND_TRIP_SECONDS: Final = 0.005
SLOW_COMMIT_SECONDS: Final = 0.02
BUSY_SHARE: Final = 0.75
"""Of the processors, wanted in the minute before the run."""


def concerns(run: Figures) -> list[str]:
    """The store's own doubts first, then what the figures say."""
    found = [said(doubt).sentence for doubt in run.ground.doubts]
    round_trip = _p50(run, Measurement.ROUND_TRIP)
    commit = _p50(run, Measurement.COMMIT)
    if round_trip is not None and round_trip > SLOW_ROUND_TRIP_SECONDS:
        found.append(
            f"the server is {round_trip * 1000:.1f} ms away, and every call waits for that; less than "
            f"{SLOW_ROUND_TRIP_SECONDS * 1000:.0f} ms is usual inside one data centre: bring them together"
        )
    # What the way there and back costs has been said; this is about the disk at its end.
    on_disk = None if commit is None else commit - (round_trip or 0.0)
    if on_disk is not None and on_disk > SLOW_COMMIT_SECONDS:
        found.append(
            f"a durable commit takes {on_disk * 1000:.0f} ms on this disk, and everything waits for it; less "
            f"than {SLOW_COMMIT_SECONDS * 1000:.0f} ms is usual even without flash: look for a slow or "
            "shared disk, or another program that writes a lot"
        )
    if run.load is not None and run.load > BUSY_SHARE * run.cores:
        found.append(
            f"this machine was busy in the minute before the run (load {run.load:.1f}, {run.cores} "
            f"{'core' if run.cores == 1 else 'cores'}): an idle one shows better figures"
        )
    return found


def _p50(run: Figures, measurement: Measurement) -> float | None:
    figure = run.figures.get(measurement)
    return None if figure is None else figure.p50_seconds
