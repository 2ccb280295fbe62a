"""OpenTelemetry: a span around each enqueue and each attempt, and the metrics as instruments.

instrument(app)

The API alone is used; what becomes of spans and metrics, and which of them are kept, is up to the SDK that
the program has set up. Nothing of a payload, a result or an error's message gets into a span.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import Token
from functools import lru_cache
from typing import Final

from msgspec.structs import replace
from opentelemetry import context as otel_context
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)
from opentelemetry.util.types import Attributes

from windlass import headers
from windlass.__about__ import __version__
from windlass.app import Windlass
from windlass.errors import ConfigurationError, LimitExceeded
from windlass.model import Claimed, Enqueued, NewJob
from windlass.options import check_integer
from windlass.outcome import Cancelled, Completed, Failed, Outcome, Released, Retried
from windlass.settings import MAX_COUNT
from windlass.telemetry.catalogue import BUCKETS, CATALOGUE, DURATION, WAIT, WORKERS, Metric
from windlass.telemetry.telemetry import Telemetry

SPANS_PER_SECOND: Final = 200
"""Attempts that a process records in a second, unless told otherwise. The SDK takes as long for a span as a
worker for two or three jobs without one, and drops what comes in too fast."""
CONTEXTS_KEPT: Final = 1000
"""Parents that were read from headers: jobs that were enqueued together share theirs."""
_EMPTY: Final = Context()
_unsampled: Final = re.compile(
    r'\{"traceparent":"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][02468ace]"(,"tracestate":"[^"\\]*")?\}'
).fullmatch
"""Headers that have nothing but the context of a trace whose last bit says that it was not sampled."""
_SYSTEM: Final = {"messaging.system": "windlass"}

_log = logging.getLogger("windlass.telemetry")


def instrument(
    app: Windlass,
    *,
    spans: bool = True,
    spans_per_second: int | None = SPANS_PER_SECOND,
    metrics: bool = True,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Have an app tell OpenTelemetry what it does. Call it where the app is made, before its workers are.

    ``spans_per_second``: attempts that a process records in a second; of more, those that begin later in it
    are left out, and what their handlers do belongs to the span that enqueued them. None: all.
    Without providers the global ones are used, also when they are set up later.
    """
    if app.telemetry.tracing is not None:
        raise ConfigurationError("this app is instrumented already; call instrument(app) once")
    if spans:
        if spans_per_second is not None:
            check_integer("spans_per_second", spans_per_second, 1, MAX_COUNT)
        tracer = trace.get_tracer("windlass", __version__, tracer_provider)
        app.telemetry.trace(_Tracing(tracer, spans_per_second))
    if metrics:
        _measure(app.telemetry, meter_provider)


# -- spans --------------------------------------------------------------------------------------------------


class _Tracing:
    """``windlass.telemetry.tracing.Tracing`` with a tracer."""

    def __init__(self, tracer: Tracer, per_second: int | None) -> None:
        self._tracer = tracer
        self._per_second = per_second
        self._left = 0  # of this second
        self._second = float("-inf")  # when it began

    @contextmanager
    def enqueueing(self, jobs: Sequence[NewJob]) -> Iterator[_EnqueueSpan]:
        """One span for one write, however many jobs: all of them carry its context."""
        told = {
            "messaging.destination.name": {job.topic for job in jobs},
            "windlass.task": {job.task or job.topic for job in jobs},
            "windlass.tenant": {job.tenant for job in jobs},
        }
        attributes = {
            **_SYSTEM,
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
            **{name: value for name, values in told.items() if len(values) == 1 for value in values},
        }
        span = self._start("job.enqueue", SpanKind.PRODUCER, attributes)
        try:
            yield _EnqueueSpan(span, jobs)
        except Exception as error:
            _fail(span, type(error).__name__)
            raise
        finally:
            _end(span)

    def executing(self, job: Claimed, task: str, worker: str) -> _ExecuteSpan | _Unrecorded:
        """The first attempt goes on with the trace of its enqueueing, later ones begin one and link to it.

        A trace that was not sampled when the job was enqueued is not recorded here either.
        """
        text = job.headers
        if self._exhausted() or (text is not None and _unsampled(text) is not None):
            around = trace.set_span_in_context(_Read(text), _EMPTY) if text is not None else _EMPTY
            return _Unrecorded(otel_context.attach(around))
        self._left -= 1
        parent = _parent(text)
        links: tuple[Link, ...] = ()
        if job.attempt > 1:
            enqueued = trace.get_current_span(parent).get_span_context()
            links = (Link(enqueued),) if enqueued.is_valid else ()
            parent = trace.set_span_in_context(trace.INVALID_SPAN, parent)  # the baggage stays
        span = self._start(
            "job.execute",
            SpanKind.CONSUMER,
            {
                **_SYSTEM,
                "messaging.operation.name": "execute",
                "messaging.operation.type": "process",
                "messaging.destination.name": job.topic,
                "messaging.message.id": str(job.lease.job_id),
                "windlass.task": task,
                "windlass.attempt": job.attempt,
                "windlass.tenant": job.tenant,
                "windlass.worker": worker,
            },
            parent,
            links,
        )
        return _ExecuteSpan(span, otel_context.attach(trace.set_span_in_context(span, parent)))

    def _exhausted(self) -> bool:
        """Whether this second has had all its spans. Those of several threads may be a few more."""
        if self._left > 0 or self._per_second is None:
            return False
        now = time.monotonic()
        if now - self._second < 1.0:
            return True
        self._second, self._left = now, self._per_second
        return False

    def _start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: Context | None = None,
        links: Sequence[Link] = (),
    ) -> Span:
        try:
            return self._tracer.start_span(name, parent, kind, attributes, links)
        except Exception:  # of a sampler or span processor: no reason not to do the work
            _log.exception("a span could not be begun")
            return trace.INVALID_SPAN

    def handed_over(self, job: Claimed) -> Claimed:
        carried = _carried(job.headers, None)
        return job if carried == job.headers else replace(job, headers=carried)

    def taken_over(self, job: Claimed) -> None:
        otel_context.attach(_parent(job.headers))


class _EnqueueSpan:
    """``windlass.telemetry.tracing.EnqueueSpan``."""

    def __init__(self, span: Span, jobs: Sequence[NewJob]) -> None:
        self._span = span
        around = trace.set_span_in_context(span)
        texts = {text: _carried(text, around) for text in {job.headers for job in jobs}}
        self.jobs: Sequence[NewJob] = [replace(job, headers=texts[job.headers]) for job in jobs]

    def answered(self, answers: Sequence[Enqueued]) -> None:
        if not self._span.is_recording():
            return
        if len(answers) == 1:
            self._span.set_attribute("messaging.message.id", str(answers[0].job_id))
            self._span.set_attribute("windlass.duplicate", answers[0].duplicate)
        else:
            self._span.set_attribute("messaging.batch.message_count", len(answers))


class _ExecuteSpan:
    """``windlass.telemetry.tracing.ExecuteSpan``."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span, token: Token[Context]) -> None:
        self._span = span
        self._token = token

    def end(self, outcome: Outcome | None) -> None:
        otel_context.detach(self._token)
        span = self._span
        if span.is_recording():
            match outcome:
                case Completed():
                    told = "completed"
                case Retried(error=error):
                    told = "retried"
                    _fail(span, error.code)
                case Failed(error=error):
                    told = "failed"
                    _fail(span, error.code)
                case Cancelled():
                    told = "cancelled"
                case Released():
                    told = "released"
                case None:
                    told = "lost"
                    _fail(span, "lease_lost")
            span.set_attribute("windlass.outcome", told)
        _end(span)


class _Unrecorded:
    """The same for a trace that nobody keeps."""

    __slots__ = ("_token",)

    def __init__(self, token: Token[Context]) -> None:
        self._token = token

    def end(self, outcome: Outcome | None) -> None:
        del outcome
        otel_context.detach(self._token)


class _Read(NonRecordingSpan):
    """The span that headers name, read when somebody wants to know: that costs more than all the rest."""

    def __init__(self, text: str) -> None:
        self._text = text

    def get_span_context(self) -> SpanContext:
        return trace.get_current_span(_parent(self._text)).get_span_context()


def _end(span: Span) -> None:
    try:
        span.end()
    except Exception:  # of a span processor: what it is about has ended all the same
        _log.exception("a span could not be ended")


def _fail(span: Span, code: str) -> None:
    """Without the error's message, and so without its traceback: what a payload had may be in them."""
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR, code))


@lru_cache(maxsize=CONTEXTS_KEPT)
def _parent(text: str | None) -> Context:
    """The context that a job carries; nothing of whoever happens to be at work here."""
    return propagate.extract(headers.read(text), context=_EMPTY)


def _carried(text: str | None, around: Context | None) -> str | None:
    """A job's headers with a context: that of ``around``, or the current one."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context=around)
    if not carrier:
        return text
    own = headers.read(text)
    try:
        return headers.write({**own, **carrier})
    except LimitExceeded:
        # Somebody's baggage is too much. The trace goes on without it, or ends where not even that fits.
        kept = {name: carrier[name] for name in ("traceparent",) if name in carrier}
        try:
            return headers.write({**own, **kept})
        except LimitExceeded:
            _log.warning("a job's headers have no room for its trace, which ends here")
            return text


# -- metrics ------------------------------------------------------------------------------------------------


def _measure(telemetry: Telemetry, provider: MeterProvider | None) -> None:
    """Counters and gauges are looked at when somebody collects them; only runs are told one by one."""
    counted = telemetry.count()
    meter = metrics.get_meter("windlass", __version__, provider)
    for metric in CATALOGUE.values():
        unit = "s" if metric.name.endswith("_seconds") else ""
        if metric.kind == "counter":
            meter.create_observable_counter(metric.name, [_observer(telemetry, metric)], unit, metric.help)
        elif metric.kind == "gauge" and metric is not WORKERS:  # which only a server knows
            meter.create_observable_gauge(metric.name, [_observer(telemetry, metric)], unit, metric.help)
    duration, wait = (
        meter.create_histogram(
            metric.name, "s", metric.help, explicit_bucket_boundaries_advisory=list(BUCKETS)
        )
        for metric in (DURATION, WAIT)
    )
    by_task: dict[str, Mapping[str, str]] = {}

    def tell(task: str, run_seconds: float, wait_seconds: float) -> None:
        attributes = by_task.setdefault(task, {"task": task})
        duration.record(run_seconds, attributes)
        wait.record(wait_seconds, attributes)

    counted.run_listeners += (tell,)


def _observer(telemetry: Telemetry, metric: Metric) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        for sample in telemetry.samples():
            if sample.name == metric.name:
                yield Observation(sample.values[0], dict(zip(metric.labels, sample.labels, strict=True)))

    return observe
