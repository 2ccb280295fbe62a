"""``app.telemetry``: metrics of an app's work, and the tracer and listeners that observe it.

``tidewheel.integrations.opentelemetry`` has a tracer.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidewheel.core.model import Claimed, Enqueued, NewJob, Outcome, RescuedJob
from tidewheel.settings import Settings
from tidewheel.stores.external_transaction import Joined, Work
from tidewheel.telemetry import job_log, metric_gauges, samples
from tidewheel.telemetry.metric_counters import Metrics
from tidewheel.telemetry.metric_gauges import TopicFigures
from tidewheel.telemetry.samples import Sample

if TYPE_CHECKING:
    from tidewheel.worker import Worker


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


Answers = TypeVar("Answers", list[Enqueued], list[Enqueued] | None)


class Telemetry:
    """Of one app in one process. Off, until the settings, a server or an integration switch it on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers: tuple[Worker, ...] = ()  # that run; replaced, never changed: others read it meanwhile
        self._changing = threading.Lock()
        self.metrics: Metrics | None = Metrics() if settings.metrics else None
        self.tracing: Tracing | None = None
        self.off = self.metrics is None  # and no tracing: the only question enqueueing asks

    # -- switching it on ----------------------------------------------------------------------------------

    def count(self) -> Metrics:
        """Count from now on, whatever the setting says."""
        if self.metrics is None:
            self.metrics = Metrics()
            self.off = False
        return self.metrics

    def served(self) -> None:
        """Somebody can ask for them: count, unless the setting says not to. Before workers are made."""
        if self._settings.metrics is None:
            self.count()

    def trace(self, tracing: Tracing) -> None:
        """Have spans made by this from now on; workers that exist go on as they were."""
        self.tracing = tracing
        self.off = False

    # -- what happens -------------------------------------------------------------------------------------

    async def enqueue(
        self, write: Callable[[Sequence[NewJob]], Awaitable[Answers]], jobs: Sequence[NewJob]
    ) -> Answers:
        """Have jobs written, counted and traced. None: ``write`` found that they are not to be written."""
        if self.tracing is None:
            answers = await write(jobs)
        else:
            with self.tracing.enqueueing(jobs) as span:
                answers = await write(span.jobs)
                if answers is not None:
                    span.answered(answers)
        if self.metrics is not None and answers is not None:
            self.metrics.submitted(jobs, answers)
        return answers

    def join(self, write: Callable[[Sequence[NewJob]], Work[Joined]], jobs: Sequence[NewJob]) -> Work[Joined]:
        """The same in a transaction of the caller's own, which nobody can say whether it will commit."""
        if self.tracing is None:
            joined = yield from write(jobs)
        else:
            with self.tracing.enqueueing(jobs) as span:
                joined = yield from write(span.jobs)
                span.answered(joined.answers)
        if self.metrics is not None:
            self.metrics.submitted(jobs, joined.answers)
        return joined

    def rescued(self, jobs: Sequence[RescuedJob]) -> None:
        """A store tells whom it brought back; on any thread."""
        if self._settings.log_jobs:
            job_log.rescued(jobs)
        if self.metrics is not None:
            self.metrics.rescued(jobs)

    def handed_over(self, job: Claimed) -> Claimed:
        """A job for a process of its own handler's, which goes on with the trace."""
        return job if self.tracing is None else self.tracing.handed_over(job)

    def taken_over(self, job: Claimed) -> None:
        """There, in the handler's context variables."""
        if self.tracing is not None:
            self.tracing.taken_over(job)

    def works(self, worker: Worker) -> None:
        """A worker runs from now on, and tells how it is doing."""
        with self._changing:
            self._workers = (*self._workers, worker)

    def rests(self, worker: Worker) -> None:
        """It has ended."""
        with self._changing:
            self._workers = tuple(one for one in self._workers if one is not worker)

    # -- what is told -------------------------------------------------------------------------------------

    def counted(self) -> list[Sample]:
        """Counters of this process."""
        return [] if self.metrics is None else self.metrics.samples()

    def samples(self) -> Iterator[Sample]:
        """Everything this process knows without asking anybody: its counters, how its workers are, and what
        they last saw of the queue.
        """
        yield from self.counted()
        yield from metric_gauges.of_topics(self.topics())
        workers = sorted(self._workers, key=lambda worker: worker.name)
        looks = [look for worker in workers if (look := worker.queue) is not None]
        if looks:
            yield from metric_gauges.of_queue(min(looks, key=lambda look: look.age_seconds))
        for worker in workers:
            yield from metric_gauges.of_worker(worker.health())

    def topics(self) -> tuple[TopicFigures, ...]:
        """The busiest, as one of its workers saw them last."""
        return next((worker.topics for worker in self._workers if worker.topics), ())

    def prometheus(self) -> str:
        """The same as text (``samples.MEDIA_TYPE``), for a program that answers scrapes itself."""
        return samples.text(self.samples())
