"""``tidewheel workers``: who runs jobs, and how they are doing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import click

from tidewheel.admin.worker_info import WorkerInfo
from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import Cell, Column, json_option, print_json, print_table

SLOW_LOOP_SECONDS: Final = 0.5
"""An event loop that is this late is shown in yellow: a handler blocks it."""

_COLUMNS: Final = (
    Column("name", shrink_first=True),
    Column("seen"),
    Column("running", "right"),
    Column("claimed", "right"),
    Column("stuck", "right"),
    Column("lag", "right"),
    Column("ran", "right"),
    Column("failed", "right"),
    Column("since", "right", spare=True),
    Column("host", spare=True),
    Column("pid", "right", spare=True),
    Column("version", spare=True),
    Column("topics"),
)


@click.command
@json_option
@target_options
def workers(target: Target, as_json: bool) -> None:
    """List the workers, and how they are doing.

    A worker tells about itself every five seconds. One that was not seen for twenty is missing: killed, stuck
    or cut off from the store. It stays listed for a day. STUCK slots are held by handlers that were told to
    stop and go on; with half of them stuck a worker makes way for a fresh one. LAG is the longest its event
    loop let anything wait.
    """

    async def look(app: Tidewheel) -> list[WorkerInfo]:
        return await app.workers()

    found = target.run(look)
    if as_json:
        print_json([_as_json(worker) for worker in found])
    else:
        empty = "no workers: start one with tidewheel worker MODULE:APP"
        print_table(_COLUMNS, [_cells(worker) for worker in found], empty=empty)


def _as_json(worker: WorkerInfo) -> dict[str, Any]:
    return {
        **asdict(worker),
        "started_at": worker.started_at.isoformat(),
        "seen_at": worker.seen_at.isoformat(),
        "missing": worker.missing,
        "degraded": worker.degraded,
    }


def _cells(worker: WorkerInfo) -> list[Cell]:
    ago = formats.duration(worker.seconds_since_seen)
    up = (worker.seen_at - worker.started_at).total_seconds()
    lag = worker.loop_lag_seconds
    more = f" and {worker.more_lanes} more" if worker.more_lanes else ""
    return [
        Cell(worker.name),
        Cell(
            f"missing for {ago}" if worker.missing else f"{ago} ago",
            plain_text=worker.seen_at.isoformat(),
            style="red" if worker.missing else "green",
        ),
        Cell(f"{worker.running}/{worker.concurrency}", style="cyan" if worker.running else ""),
        Cell(f"{worker.claimed:,}", plain_text=str(worker.claimed)),
        Cell(str(worker.stuck), style="red" if worker.degraded else ""),
        Cell(formats.duration(lag), plain_text=str(lag), style="yellow" if lag >= SLOW_LOOP_SECONDS else ""),
        Cell(f"{worker.ran:,}", plain_text=str(worker.ran)),
        Cell(f"{worker.failed:,}", plain_text=str(worker.failed), style="red" if worker.failed else ""),
        Cell(formats.duration(up), plain_text=worker.started_at.isoformat()),
        Cell(worker.host),
        Cell(str(worker.pid)),
        Cell(worker.version),
        Cell(", ".join(worker.topics) + more),
    ]
