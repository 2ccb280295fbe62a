"""Tasks of Django's interface, as its decorator makes them for this backend: with a few options more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from tidewheel.integrations.django.interface import Task
from tidewheel.options import ByFields, ByPayload
from tidewheel.retry import Retry

AS_CONFIGURED: Final[Any] = ...
"""An option that was not given: ``None`` means something, no limit."""

OF_TASKS: Final = ("max_attempts", "timeout", "retry", "expires", "key", "until", "on_duplicate")
"""Options of Tidewheel that may be given to ``@task`` and to ``using``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TidewheelTask(Task):  # type: ignore[misc]
    """A task of Django's interface that runs with Tidewheel."""

    max_attempts: int | None = AS_CONFIGURED
    timeout: float | timedelta | None = AS_CONFIGURED
    retry: Retry = AS_CONFIGURED
    expires: float | timedelta | None = AS_CONFIGURED
    key: str | ByPayload | ByFields | None = AS_CONFIGURED
    until: Literal["pruned", "finished"] = AS_CONFIGURED
    on_duplicate: Literal["keep", "replace"] = AS_CONFIGURED

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> TidewheelTask:
        """The task with other defaults, for the jobs to come."""
        given = {"priority": priority, "queue_name": queue_name, "run_after": run_after, "backend": backend}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return replace(self, **changes, **options)


def options_of(task: Any) -> dict[str, Any]:
    """What a task says for Tidewheel."""
    return {
        name: value for name in OF_TASKS if (value := getattr(task, name, AS_CONFIGURED)) is not AS_CONFIGURED
    }
