"""Apps with the tasks that reach out, for tests in one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

import tidewheel
from tidewheel import Job, Retry, State, Tidewheel
from tidewheel.builtin import IncludeOptions

AT_ONCE = Retry.fixed(0)


def fetching_app(root: Path, url: str = "memory://", **given: Unpack[IncludeOptions]) -> Tidewheel:
    """An app whose downloads may go to this machine's first loopback address, and are tried again at once."""
    app = Tidewheel(url, poll_interval=0.05, lease=2)
    options: IncludeOptions = {
        "roots": [root],
        "allowed_hosts": ["*"],
        "allowed_networks": ["127.0.0.1/32"],
        "options": {"download_file": {"retry": AT_ONCE, "max_attempts": 3}},
        **given,
    }
    app.include(tidewheel.builtin, **options)
    return app


async def run(app: Tidewheel, task: str, payload: Mapping[str, Any], **options: Any) -> Job[Any]:
    """One job, from enqueueing to its end."""
    async with app:
        job = await app.enqueue(task, payload, **options)
        await app.run_until_idle()
        return await app.get(job.id)


def hidden(directory: Path) -> list[str]:
    """Drafts that were left behind."""
    return [path.name for path in directory.rglob(".tidewheel-*")]


def error_of(job: Job[Any]) -> tuple[State, str, bool]:
    """How a job ended that errored: its state, the code, and whether that was retryable."""
    assert job.error is not None
    return job.state, job.error.code, job.error.retryable
