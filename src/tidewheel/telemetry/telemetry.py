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
from tidewheel.stores.external_transaction import ExternalEnqueueResult, TransactionSteps
from tidewheel.telemetry import job_log, metric_gauges, samples
from tidewheel.telemetry.metric_counters import MetricCounters
from tidewheel.telemetry.metric_gauges import TopicCounts
from tidewheel.telemetry.samples import Sample

if TYPE_CHECKING:
    from tidewheel.worker import Worker


class EnqueueSpan(Protocol):
    """Around one write of new jobs."""

    @property
    def jobs(self) -> Sequence[NewJob]:
        """The same jobs with the span's context in their headers."""

    def record_answers(self, answers: Sequence[Enqueued]) -> None: ...


class ExecuteSpan(Protocol):
    """Around one attempt, or one call for several jobs. It is the current one of the task that began it,
    until that ends it.
    """

    def end(self, *outcomes: Outcome | None) -> None:
        """One for each job, in their order; None where the lease was lost."""


class Tracing(Protocol):
    """Spans around the two things a job consists of."""

    def start_enqueue(self, jobs: Sequence[NewJob]) -> AbstractContextManager[EnqueueSpan]: ...

    def start_attempt(self, job: Claimed, task: str, worker: str) -> ExecuteSpan: ...

    def start_batch(self, jobs: Sequence[Claimed], task: str, worker: str) -> ExecuteSpan: ...

    def inject_context(self, job: Claimed) -> Claimed:
        """The job for another process, with the current span's context in its headers."""

    def extract_context(self, job: Claimed) -> None:
        """Make that context the current one, in the context variables at hand."""


Answers = TypeVar("Answers", list[Enqueued], list[Enqueued] | None)


class Telemetry:
    """Of one app in one process. Off, until the settings, a server or an integration switch it on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._workers: tuple[Worker, ...] = ()  # that run; replaced, never changed: others read it meanwhile
        self._changing = threading.Lock()
        self.metrics: MetricCounters | None = MetricCounters() if settings.metrics else None
        self.tracing: Tracing | None = None
        self.off = self.metrics is None  # and no tracing: the only question enqueueing asks

    # -- switching it on ----------------------------------------------------------------------------------

    def count(self) -> MetricCounters:
        """Count from now on, whatever the setting says."""
        if self.metrics is None:
            self.metrics = MetricCounters()
            self.off = False
        return self.metrics

    def count_if_allowed(self) -> None:
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
            with self.tracing.start_enqueue(jobs) as span:
                answers = await write(span.jobs)
                if answers is not None:
                    span.record_answers(answers)
        if self.metrics is not None and answers is not None:
            self.metrics.count_submitted(jobs, answers)
        return answers

    def join_transaction(
        self,
        write: Callable[[Sequence[NewJob]], TransactionSteps[ExternalEnqueueResult]],
        jobs: Sequence[NewJob],
    ) -> TransactionSteps[ExternalEnqueueResult]:
        """The same in a transaction of the caller's own, which nobody can say whether it will commit."""
        if self.tracing is None:
            joined = yield from write(jobs)
        else:
            with self.tracing.start_enqueue(jobs) as span:
                joined = yield from write(span.jobs)
                span.record_answers(joined.enqueued)
        if self.metrics is not None:
            self.metrics.count_submitted(jobs, joined.enqueued)
        return joined

    def record_rescued(self, jobs: Sequence[RescuedJob]) -> None:
        """A store tells whom it brought back; on any thread."""
        if self._settings.log_jobs:
            job_log.log_rescued(jobs)
        if self.metrics is not None:
            self.metrics.count_rescued(jobs)

    def inject_context(self, job: Claimed) -> Claimed:
        """A job for a process of its own handler's, which goes on with the trace."""
        return job if self.tracing is None else self.tracing.inject_context(job)

    def extract_context(self, job: Claimed) -> None:
        """There, in the handler's context variables."""
        if self.tracing is not None:
            self.tracing.extract_context(job)

    def add_worker(self, worker: Worker) -> None:
        """A worker runs from now on, and tells how it is doing."""
        with self._changing:
            self._workers = (*self._workers, worker)

    def remove_worker(self, worker: Worker) -> None:
        """It has ended."""
        with self._changing:
            self._workers = tuple(one for one in self._workers if one is not worker)

    # -- what is told -------------------------------------------------------------------------------------

    def counter_samples(self) -> list[Sample]:
        """Counters of this process."""
        return [] if self.metrics is None else self.metrics.samples()

    def samples(self) -> Iterator[Sample]:
        """Everything this process knows without asking anybody: its counters, how its workers are, and what
        they last saw of the queue.
        """
        yield from self.counter_samples()
        yield from metric_gauges.topic_samples(self.topics())
        workers = sorted(self._workers, key=lambda worker: worker.name)
        looks = [look for worker in workers if (look := worker.queue_snapshot) is not None]
        if looks:
            yield from metric_gauges.queue_samples(min(looks, key=lambda look: look.age_seconds))
        for worker in workers:
            yield from metric_gauges.worker_samples(worker.health())

    def topics(self) -> tuple[TopicCounts, ...]:
        """The busiest, as one of its workers saw them last."""
        return next((worker.topic_counts for worker in self._workers if worker.topic_counts), ())

    def prometheus(self) -> str:
        """The same as text (``samples.MEDIA_TYPE``), for a program that answers scrapes itself."""
        return samples.format_prometheus(self.samples())
