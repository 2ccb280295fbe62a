"""Where worker processes and the tests that torment them meet: a queue, an event log, a producer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.shared import empty_url
from tests.worker.helpers import until
from tests.worker.worker_processes import Site
from tidewheel import Job

STORES = ["sqlite", "postgres"]
"""Those that several processes can share."""


def make_site(store: str, directory: Path, *, lease: float = 2.0) -> Site:
    """An empty queue whose workers run the handlers of ``victims``."""
    url = empty_url() if store == "postgres" else None
    return Site(directory, lease=lease, store_url=url, program="tests.faults.victims")


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


def runs_by_job(events: list[dict[str, Any]], kind: str = "start") -> Counter[str]:
    """How often each job's handler did this."""
    return Counter(event["job"] for event in of_kind(events, kind))


async def starts_recorded(jobs: Sequence[Job[Any]]) -> None:
    """Until the store knows that these run: only then a lost run counts as an attempt."""

    async def recorded() -> bool:
        for job in jobs:
            await job.refresh()
        return {job.shown_state for job in jobs} == {"running"}

    await until(recorded)
