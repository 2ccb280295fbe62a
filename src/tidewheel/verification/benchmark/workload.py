"""The app that is measured: tasks that do nothing of their own, so that all time is the queue's."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidewheel.app import Tidewheel
from tidewheel.settings import SETTINGS
from tidewheel.tasks.task import Task

CONCURRENCY: Final = 100
MIN_PAYLOAD_BYTES: Final = len('{"text":""}')
MAX_PAYLOAD_BYTES: Final = SETTINGS["max_payload_bytes"].default
DEFAULTS: Final[Mapping[str, Any]] = {
    name: setting.default for name, setting in SETTINGS.items() if name != "url"
}
NOOP_TOPIC: Final = "bench_nothing"
THROUGHPUT_TOPIC: Final = "bench_flow"
PICK_UP_TOPIC: Final = "bench_stamp"


def make_text(payload_bytes: int) -> str:
    """What makes a payload of so many bytes, once encoded. Random, so that a database cannot pack it."""
    length = payload_bytes - MIN_PAYLOAD_BYTES
    return secrets.token_urlsafe(length)[:length]


@dataclass(frozen=True, slots=True)
class BenchApp:
    """The app and its tasks."""

    app: Tidewheel
    noop: Task[..., Any]
    throughput: Task[..., Any]
    pick_up: Task[..., Any]


def make_bench_app(url: str, poll_interval: float) -> BenchApp:
    """The same app in both processes, with the defaults: what a user's settings limit is not measured."""
    changes = {"concurrency": CONCURRENCY, "poll_interval": poll_interval, "shutdown_grace": 0.0}
    changes["check_on_start"] = False  # a look at what is measured would be measured, too
    app = Tidewheel(url, **{**DEFAULTS, **changes})

    @app.task(topic=NOOP_TOPIC)
    async def nothing(text: str) -> None:
        """The smallest job there is; it waits for the worker to come."""

    @app.task(topic=THROUGHPUT_TOPIC)
    async def flow(text: str) -> None:
        """The same on a topic of its own, for a worker that is there already."""

    @app.task(topic=PICK_UP_TOPIC)
    async def stamp(text: str) -> int:  # noqa: ARG001 - the payload, which is only carried
        """When the handler began. This clock is the same in every process of a machine."""
        return time.monotonic_ns()

    return BenchApp(app, nothing, flow, stamp)
