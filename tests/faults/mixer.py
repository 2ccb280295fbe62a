"""The random fault mixer: everything that can go wrong, at random, for as long as you like; then the books.

``python -m tests.faults.mixer --store postgres --minutes 30 --seed 1`` is the full size; the suite runs a
short one. The seed decides what happens when, and to whom. With ``--keep`` the histories stay.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.faults.file_troubles import FileTroubles, small_disk
from tests.faults.network import Network
from tests.faults.server_troubles import ServerTroubles
from tests.servers import DURABLE, PostgresServer
from tidewheel.stores import make_temporary_store
from tidewheel.stores.postgres.location import parse_url
from tidewheel.verification.fault_run import FaultRunPlan, FaultRunResult, check_empty, run_with_faults
from tidewheel.verification.faults import available_faults


async def mix_on_postgres(plan: FaultRunPlan, directory: Path, server: PostgresServer) -> FaultRunResult:
    """Every process speaks with the server through a network that can fail for it alone."""
    async with make_temporary_store(server.url()) as scratch, Network(scratch.url) as network:
        schema = parse_url(scratch.url).schema
        troubles = [*available_faults(), *ServerTroubles(server, network, schema).all()]
        return await run_with_faults(
            scratch, plan, directory, watch=_quietly, url_for=network.url_for, troubles=troubles
        )


async def mix_on_sqlite(
    plan: FaultRunPlan, directory: Path, disk: Path, *, can_be_filled: bool
) -> FaultRunResult:
    async with make_temporary_store(f"sqlite:///{disk / 'jobs.db'}") as scratch:
        path = Path(scratch.location)
        troubles = [*available_faults(), *FileTroubles(path, small_disk=can_be_filled).all()]
        return await run_with_faults(scratch, plan, directory, watch=_quietly, troubles=troubles)


def _quietly(_what: str, _share: float) -> None:
    """Nobody watches a test."""


def summary(outcome: FaultRunResult) -> dict[str, Any]:
    """For people and for notes."""
    report = outcome.report
    return {
        "store": outcome.ground.store,
        "seed": outcome.plan.seed,
        "seconds": round(outcome.seconds, 1),
        "counts": report.counts,
        "faults": dict(sorted(report.faults.items())),
        "faults in all": sum(report.faults.values()),
        "orphans": report.recovery.orphans,
        "orphans timed": report.recovery.timed,
        "worst seconds after the lease": report.recovery.worst_after_lease,
        "violations": [f"{violation.rule}: {violation.text}" for violation in report.violations],
        "more violations": report.omitted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgres"], required=True)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, help="a directory for histories and logs")
    options = parser.parse_args()
    plan = FaultRunPlan(
        seconds=options.minutes * 60, seed=options.seed, fault_interval=0.6, max_parallel_faults=4
    )
    with ExitStack() as stack:
        directory = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        check_empty(directory)
        if options.store == "postgres":
            server = stack.enter_context(PostgresServer(settings=DURABLE))
            outcome = asyncio.run(mix_on_postgres(plan, directory, server))
        else:
            disk = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            mounted = stack.enter_context(small_disk(disk))
            if not mounted:
                print("no file system can be mounted here: the disk is never full in this run")
            outcome = asyncio.run(mix_on_sqlite(plan, directory, disk, can_be_filled=mounted))
    print(json.dumps(summary(outcome), indent=2))
    raise SystemExit(bool(outcome.report.violations))


if __name__ == "__main__":
    main()
