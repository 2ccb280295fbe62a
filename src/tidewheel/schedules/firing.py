"""Firing: which jobs a schedule makes now, and what is remembered of it. No I/O."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import structs

from tidewheel import headers
from tidewheel.clock import to_datetime
from tidewheel.cron import Due
from tidewheel.errors import InvalidInput
from tidewheel.ids import new_id
from tidewheel.model import NewJob
from tidewheel.schedules.schedule import Body, Origin

if TYPE_CHECKING:
    from tidewheel.registry import Registry

MAX_TROUBLE: Final = 500
"""Longest reason that is kept, in characters."""


def fires_here(registry: Registry, name: str, body: Body) -> bool:
    """Whether this app's workers let it fire.

    One of the code's: where the code still declares it. Any other: where its task is known, whose signature
    the payload has to fit; or anywhere, if it is for whoever takes jobs of a topic.
    """
    if body.origin is Origin.DECLARED:
        return name in registry.schedules
    return not body.job.task or registry.named(body.job.task) is not None


def job_at(name: str, body: Body, fire_time: int) -> NewJob:
    """The job of one firing."""
    entries = {
        **headers.read(body.job.headers),
        headers.SCHEDULE: name,
        headers.FIRE_TIME: to_datetime(fire_time).isoformat(),
    }
    return structs.replace(body.job, id=new_id(), headers=headers.write(entries))


def check_payload(registry: Registry, body: Body) -> None:
    """``InvalidPayload`` when the payload does not fit the task any more."""
    job = body.job
    task = registry.named(job.task) if job.task else registry.resolve(job.topic, "")
    if task is not None:
        task.decode(job.payload, job.format)


def fired(registry: Registry, name: str, body: Body, due: Due, now: int) -> tuple[Body, list[NewJob]]:
    """The jobs of what is due, and the schedule after it.

    A payload that does not fit makes no jobs. That is remembered, and the schedule goes on.
    """
    firings = due.firings
    after = structs.replace(body, fired_until=due.until, missed=body.missed + due.dropped)
    if not firings:
        return after, []
    try:
        check_payload(registry, body)
    except Exception as error:  # also of a validator of the user's, which must not end the worker
        after.missed += len(firings)
        # Without the value, where the message has one: more people see schedules than may see payloads.
        words = getattr(error, "kept", None) or str(error)
        said = words if isinstance(error, InvalidInput) else f"{type(error).__name__}: {words}"
        return troubled(after, said, now), []
    jobs = [job_at(name, body, at) for at in firings]
    return ran(after, jobs, firings[-1], now), jobs


def ran(body: Body, jobs: list[NewJob], fire_time: int, now: int) -> Body:
    """The schedule after these jobs were made."""
    return structs.replace(
        body,
        fired=body.fired + len(jobs),
        last_fire_time=fire_time,
        last_fired_at=now,
        last_job_id=jobs[-1].id,
        trouble=None,
        trouble_at=None,
    )


def troubled(body: Body, reason: str, now: int) -> Body:
    """The schedule when it could make no job, and why."""
    return structs.replace(body, trouble=reason[:MAX_TROUBLE], trouble_at=now)
