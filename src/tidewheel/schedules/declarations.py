"""From a task, a time and a payload to the work of a schedule; and what an app's code declares of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from tidewheel.core.cron import When, check_when
from tidewheel.core.model import NewJob
from tidewheel.core.names import shorten
from tidewheel.errors import ConfigurationError, InvalidInput, LimitExceeded
from tidewheel.schedules.schedule import MAX_PAYLOAD_BYTES, check_schedule_name, pattern_of
from tidewheel.tasks.job_factory import make_for, task_named
from tidewheel.tasks.task import Task

if TYPE_CHECKING:
    from tidewheel.settings import Settings
    from tidewheel.tasks.registry import Registry

_DECIDED: Final = ("run_at", "delay")
"""Options that a schedule decides by itself."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A schedule that code declares, as it was written there."""

    name: str
    target: str | Task[..., Any]
    when: When
    payload: Any
    options: Mapping[str, Any]

    def job(self, registry: Registry, settings: Settings) -> NewJob:
        """The jobs it makes, checked against what is registered by now."""
        return job_of(registry, settings, self.target, self.payload, self.options)


def declare(
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
        declared = Declared(check_schedule_name(name), target, check_when(when), payload, dict(options))
        declared.job(registry, settings)
    except InvalidInput as error:
        raise ConfigurationError(f"schedule {shorten(name)}: {error}") from None
    registry.declare(declared)


def job_of(
    registry: Registry,
    settings: Settings,
    target: str | Task[..., Any],
    payload: Any,
    options: Mapping[str, Any],
) -> NewJob:
    """What all jobs of a schedule have in common; everything is checked as for an enqueue."""
    for name in _DECIDED:
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
    task = target if isinstance(target, Task) else task_named(registry, settings, target)
    if task is not None and not task.durable:
        raise InvalidInput(
            f"task {task.name!r} is not durable: its jobs are in no store, where schedules are; make it "
            "durable"
        )
    job = make_for(settings, task, target if isinstance(target, str) else "", options)(payload)
    if len(job.payload) > MAX_PAYLOAD_BYTES:
        raise LimitExceeded(
            f"the payload of the schedule is {len(job.payload):,} bytes; the limit is {MAX_PAYLOAD_BYTES:,}. "
            "Give its jobs a name to look the rest up by"
        )
    return pattern_of(job)
