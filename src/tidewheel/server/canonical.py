"""A request to make a job, as an enqueue rule sees it: one name and one form for everything it may say.

Clients may say the same in several ways: ``runAt`` or ``run_at`` or ``delay``, ``maxRetries`` or
``max_attempts``, ``Idempotency-Key`` or ``key``, ``"5000"`` or ``5000`` where the task wants a number. A rule
that saw what was sent would be passed by in another spelling.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tidewheel import payload
from tidewheel.clock import MICROSECONDS, seconds_to_microseconds, to_datetime, to_microseconds
from tidewheel.model import BodyFormat, JobRecord, NewJob
from tidewheel.signature import Signature
from tidewheel.task import Task

_UNLIMITED: Final = frozenset({"max_attempts", "timeout", "retention", "retention_failed"})
"""Options whose null means without a limit: more than any number, and not the same as nothing said."""


def canonical_body(
    said: Mapping[str, Any], *, topic: str, task: str, body: Any, body_format: str, now: int
) -> dict[str, Any]:
    """Return ``@request.body``: the options under their names in Python, and where the job goes with what.

    ``said`` has the options that were given, aliases and headers merged. ``run_at``, a text in UTC, and
    ``delay`` are both there if one of them was given. ``now``: microseconds, to tell one from the other.
    """
    known: dict[str, Any] = {}
    for name, value in said.items():
        if value is not None:
            known[name] = msgspec.to_builtins(value) if name in {"retry", "after"} else value
        elif name in _UNLIMITED:
            known[name] = math.inf
    due = None
    if "run_at" in known:
        due = to_microseconds(known["run_at"])
    elif "delay" in known:
        due = now + seconds_to_microseconds(known["delay"])
    if due is not None:
        text = to_datetime(due).isoformat(timespec="microseconds")
        known |= {"run_at": text.replace("+00:00", "Z"), "delay": max(0, due - now) / MICROSECONDS}
    return {**known, "topic": topic, "task": task, "payload": body, "format": body_format}


def validated_body(job: NewJob, task: Task[..., Any] | None) -> tuple[Any, str]:
    """Return the payload with what its task makes of the values, and its format."""
    if job.format is BodyFormat.BYTES:
        return base64.b64encode(job.payload).decode("ascii"), "bytes"
    if task is not None and isinstance(task.signature, Signature):
        return task.signature.as_read(job.payload), "json"
    return payload.decode(job.payload), "json"


def rule_fields(job: NewJob | JobRecord) -> dict[str, Any]:
    """Return what a rule can ask of the new job beside its owner, task and topic."""
    return {"priority": job.priority, "key": job.key, "correlation_id": job.correlation_id}
