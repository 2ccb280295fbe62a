"""From a task, a time and a payload to the work of a schedule; and what an app's code declares of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tidewheel.core.cron import Timing, check_timing
from tidewheel.core.model import NewJob
from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, InvalidInput, LimitExceeded
from tidewheel.schedules.schedule import MAX_PAYLOAD_BYTES, check_schedule_name, job_pattern
from tidewheel.tasks.job_factory import find_task, task_job_maker
from tidewheel.tasks.task import Task

if TYPE_CHECKING:
    from tidewheel.settings import Settings
    from tidewheel.tasks.registry import Registry

_RESERVED_OPTIONS: Final = ("run_at", "delay")
"""Options that a schedule decides by itself."""


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule that code declares, as it was written there."""

    name: str
    target: str | Task[..., Any]
    when: Timing
    payload: Any
    options: Mapping[str, Any]

    def make_job(self, registry: Registry, settings: Settings) -> NewJob:
        """The jobs it makes, checked against what is registered by now."""
        return make_schedule_job(registry, settings, self.target, self.payload, self.options)


def declare_schedule(
    registry: Registry,
    settings: Settings,
    name: Any,
    target: str | Task[..., Any],
    when: Any,
    payload: Any,
    options: Mapping[str, Any],
) -> None:
    """Take a schedule of the code in. ``ConfigurationError`` for one that cannot work."""
    try:
        declared = DeclaredSchedule(
            check_schedule_name(name), target, check_timing(when), payload, dict(options)
        )
        declared.make_job(registry, settings)
    except InvalidInput as error:
        raise ConfigurationError(f"schedule {shorten(name)}: {error}") from None
    registry.add_schedule(declared)


def make_schedule_job(
    registry: Registry,
    settings: Settings,
    target: str | Task[..., Any],
    payload: Any,
    options: Mapping[str, Any],
) -> NewJob:
    """What all jobs of a schedule have in common; everything is checked as for an enqueue."""
    for name in _RESERVED_OPTIONS:
        if options.get(name) is not None:
            raise InvalidInput(
                f"{name} is {shorten(options[name])}, but the schedule says when; leave it out"
            )
    if options.get("after") is not None:
        raise InvalidInput(
            f"after is {shorten(options['after'])}, but those jobs end once, and a schedule goes on; "
            "leave it out"
        )
    if isinstance(options.get("expires"), datetime):
        raise InvalidInput(
            f"expires is {options['expires']}, which would be over for later firings; give seconds"
        )
    task = target if isinstance(target, Task) else find_task(registry, settings, target)
    if task is not None and not task.durable:
        raise InvalidInput(
            f"task {task.name!r} is not durable: its jobs are in no store, where schedules are; make it "
            "durable"
        )
    job = task_job_maker(settings, task, target if isinstance(target, str) else "", options)(payload)
    if len(job.payload) > MAX_PAYLOAD_BYTES:
        raise LimitExceeded(
            f"the payload of the schedule is {len(job.payload):,} bytes; the limit is {MAX_PAYLOAD_BYTES:,}. "
            "Give its jobs a name to look the rest up by"
        )
    return job_pattern(job)
