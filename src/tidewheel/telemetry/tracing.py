"""What a tracer is, for those who call one; ``tidewheel.integrations.opentelemetry`` has one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tidewheel.model import Claimed, Enqueued, NewJob
from tidewheel.outcome import Outcome


class EnqueueSpan(Protocol):
    """Around one write of new jobs."""

    @property
    def jobs(self) -> Sequence[NewJob]:
        """The same jobs with the span's context in their headers."""

    def answered(self, answers: Sequence[Enqueued]) -> None: ...


class ExecuteSpan(Protocol):
    """Around one attempt, or one call for several jobs. It is the current one of the task that began it,
    until that ends it.
    """

    def end(self, *outcomes: Outcome | None) -> None:
        """One for each job, in their order; None where the lease was lost."""


class Tracing(Protocol):
    """Spans around the two things a job consists of."""

    def enqueueing(self, jobs: Sequence[NewJob]) -> AbstractContextManager[EnqueueSpan]: ...

    def executing(self, job: Claimed, task: str, worker: str) -> ExecuteSpan: ...

    def executing_batch(self, jobs: Sequence[Claimed], task: str, worker: str) -> ExecuteSpan: ...

    def handed_over(self, job: Claimed) -> Claimed:
        """The job for another process, with the current span's context in its headers."""

    def taken_over(self, job: Claimed) -> None:
        """Make that context the current one, in the context variables at hand."""
