"""OpenTelemetry: a span around each enqueue and each attempt, and the metrics as instruments.

instrument(app)

The API alone is used; what becomes of spans and metrics, and which of them are kept, is up to the SDK that
the program has set up. Nothing of a payload, a result or an error's message gets into a span.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from msgspec.structs import replace
from opentelemetry import context as otel_context
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.propagators.textmap import TextMapPropagator
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
from opentelemetry.util.types import Attributes, AttributeValue

from tidewheel.__about__ import __version__
from tidewheel.app import Tidewheel
from tidewheel.core import headers
from tidewheel.core.model import (
    Cancelled,
    Claimed,
    Completed,
    Enqueued,
    Failed,
    NewJob,
    Outcome,
    Released,
    Retried,
)
from tidewheel.core.validation import check_integer
from tidewheel.errors import ConfigurationError, LimitExceeded
from tidewheel.settings import MAX_COUNT
from tidewheel.telemetry.samples import BUCKETS, CATALOGUE, DURATION, WAIT, WORKERS, Metric
from tidewheel.telemetry.telemetry import Telemetry

SPANS_PER_SECOND: Final = 200
"""Attempts that a process records in a second, unless told otherwise. The SDK takes as long for a span as a
worker for two or three jobs without one, and drops what comes in too fast."""
MAX_CACHED_CONTEXTS: Final = 1000
"""Parents that were read from headers: jobs that were enqueued together share theirs."""
MAX_LINKS: Final = 128
"""Jobs of a batch that its span links to: as many as an SDK keeps, unless told otherwise."""
MIXED: Final = "mixed"
"""What is said of the jobs of a batch where they do not agree."""
_EMPTY: Final = Context()
(_SPAN,) = trace.set_span_in_context(trace.INVALID_SPAN, _EMPTY)  # the key of the current span
_unsampled: Final = re.compile(
    r'"traceparent":"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][02468ace]"'  # no value has it: a quote is escaped
).search
"""Headers with the context of a trace whose last bit says that it was not sampled."""
_FIELDS: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""Headers of the propagators that OpenTelemetry has by default."""
_SYSTEM: Final = {"messaging.system": "tidewheel"}

_log = logging.getLogger("tidewheel.telemetry")


def instrument(
    app: Tidewheel,
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
    counted = app.telemetry.metrics
    if app.telemetry.tracing is not None or (counted is not None and counted.run_listeners):
        raise ConfigurationError("this app is instrumented already; call instrument(app) once")
    if spans:
        if spans_per_second is not None:
            check_integer("spans_per_second", spans_per_second, 1, MAX_COUNT)
        tracer = trace.get_tracer("tidewheel", __version__, tracer_provider)
        app.telemetry.trace(_Tracing(tracer, spans_per_second))
    if metrics:
        _register_instruments(app.telemetry, meter_provider)


# -- spans --------------------------------------------------------------------------------------------------


class _Tracing:
    """``tidewheel.telemetry.telemetry.Tracing`` with a tracer."""

    def __init__(self, tracer: Tracer, per_second: int | None) -> None:
        self._tracer = tracer
        self._per_second: float = math.inf if per_second is None else per_second
        self._left = 0.0  # of this second
        self._second_ends = -math.inf
        self._propagator: TextMapPropagator | None = None
        self._reads_more = False  # than spans and baggage

    @contextmanager
    def start_enqueue(self, jobs: Sequence[NewJob]) -> Iterator[_EnqueueSpan]:
        """One span for one write, however many jobs: all of them carry its context."""
        told = {
            "messaging.destination.name": {job.topic for job in jobs},
            "tidewheel.task": {job.task or job.topic for job in jobs},
            "tidewheel.tenant": {job.tenant for job in jobs},
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

    def start_attempt(self, job: Claimed, task: str, worker: str) -> _ExecuteSpan | _UnrecordedSpan:
        """The first attempt goes on with the trace of its enqueueing, later ones begin one and link to it.

        A trace that was not sampled when the job was enqueued is not recorded here either.
        """
        text = job.headers
        if self._over_limit() or (text is not None and _unsampled(text) is not None):
            return self._outside(text)
        self._left -= 1
        parent = _extract(text)
        links: tuple[Link, ...] = ()
        if job.attempt > 1:
            enqueued = trace.get_current_span(parent).get_span_context()
            links = (Link(enqueued),) if enqueued.is_valid else ()
            parent = _without_span(parent)
        attributes = {
            **_attempt_attributes(task, job.topic, job.tenant, worker),
            **_job_attributes(job),
        }
        span = self._start("job.execute", SpanKind.CONSUMER, attributes, parent, links)
        return _ExecuteSpan(span, parent)

    def start_batch(
        self, jobs: Sequence[Claimed], task: str, worker: str
    ) -> _ExecuteSpan | _BatchSpan | _UnrecordedSpan:
        """Begins a trace that links to the enqueueing of each job; the call belongs to none of theirs."""
        if len(jobs) == 1:
            return self.start_attempt(jobs[0], task, worker)
        texts = {job.headers for job in jobs}
        alike = texts.pop() if len(texts) == 1 else None
        kept = alike is None or _unsampled(alike) is None
        if alike is None:
            kept = any(job.headers is None or _unsampled(job.headers) is None for job in jobs)
        if not kept or self._over_limit():
            return self._outside(alike)
        self._left -= 1
        topics = {job.topic for job in jobs}
        attributes = {
            **_attempt_attributes(task, topics.pop() if len(topics) == 1 else None, jobs[0].tenant, worker),
            "messaging.batch.message_count": len(jobs),
        }
        parent = _without_span(_extract(alike))
        span = self._start("job.execute", SpanKind.CONSUMER, attributes, parent, _links(jobs))
        return _BatchSpan(span, parent)

    def _outside(self, text: str | None) -> _UnrecordedSpan:
        """Go on with what the headers say, and record nothing.

        The way of every job beyond the bound, so the span they name is not read before somebody asks for it.
        """
        if propagate.get_global_textmap() is not self._propagator:  # it may be set after us
            self._propagator = propagate.get_global_textmap()
            self._reads_more = bool(self._propagator.fields - _FIELDS)
        if text is None:
            around = _EMPTY
        elif self._reads_more or '"baggage":' in text:
            around = _extract(text)
        else:
            around = Context({_SPAN: _LazyRemoteSpan(text)})
        otel_context.attach(around)
        return _UNRECORDED

    def _over_limit(self) -> bool:
        """Whether this second has had all its spans. Those of several threads may be a few more."""
        if self._left > 0:
            return False
        now = time.monotonic()
        if now < self._second_ends:
            return True
        self._second_ends, self._left = now + 1.0, self._per_second
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

    def inject_context(self, job: Claimed) -> Claimed:
        carried = _inject(job.headers, None)
        return job if carried == job.headers else replace(job, headers=carried)

    def extract_context(self, job: Claimed) -> None:
        otel_context.attach(_extract(job.headers))


class _EnqueueSpan:
    """``tidewheel.telemetry.telemetry.EnqueueSpan``."""

    def __init__(self, span: Span, jobs: Sequence[NewJob]) -> None:
        self._span = span
        around = trace.set_span_in_context(span)
        texts = {text: _inject(text, around) for text in {job.headers for job in jobs}}
        self.jobs: Sequence[NewJob] = [replace(job, headers=texts[job.headers]) for job in jobs]

    def record_answers(self, answers: Sequence[Enqueued]) -> None:
        if not self._span.is_recording():
            return
        if len(answers) == 1:
            self._span.set_attribute("messaging.message.id", str(answers[0].job_id))
            self._span.set_attribute("tidewheel.duplicate", answers[0].duplicate)
        else:
            self._span.set_attribute("messaging.batch.message_count", len(answers))


class _Current:
    """A span that is the current one until it ends."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: Span, around: Context) -> None:
        self._span = span
        self._token = otel_context.attach(trace.set_span_in_context(span, around))

    def _end(self, told: str, code: str | None, errors: int | None = None) -> None:
        otel_context.detach(self._token)
        span = self._span
        if span.is_recording():
            if code is not None:
                _fail(span, code)
            span.set_attribute("tidewheel.outcome", told)
            if errors is not None:
                span.set_attribute("tidewheel.errors", errors)
        _end(span)


class _ExecuteSpan(_Current):
    """``tidewheel.telemetry.telemetry.ExecuteSpan``."""

    __slots__ = ()

    def end(self, *outcomes: Outcome | None) -> None:
        (outcome,) = outcomes
        self._end(*_outcome_and_code(outcome))


class _BatchSpan(_Current):
    """The same for several jobs."""

    __slots__ = ()

    def end(self, *outcomes: Outcome | None) -> None:
        told, codes = zip(*map(_outcome_and_code, outcomes), strict=True)
        errors = sum(code is not None for code in codes)
        # The call is an error where all of its jobs are; some are what partial success is for.
        code = None if errors < len(codes) else _common_value(codes)
        self._end(_common_value(told), code, errors)


class _UnrecordedSpan:
    """The same for what nobody records: there is nothing to know of it, so one does for all."""

    __slots__ = ()

    def end(self, *_: Outcome | None) -> None:
        """Nothing is current in a slot between two jobs."""
        otel_context.attach(_EMPTY)


_UNRECORDED: Final = _UnrecordedSpan()


def _outcome_and_code(outcome: Outcome | None) -> tuple[str, str | None]:
    """How an attempt ended, in a word, and the code of its error."""
    match outcome:
        case Completed():
            return "completed", None
        case Retried(error=error):
            return "retried", error.code
        case Failed(error=error):
            return "failed", error.code
        case Cancelled():
            return "cancelled", None
        case Released():
            return "released", None
        case None:
            return "lost", "lease_lost"


def _common_value(words: Sequence[str]) -> str:
    return words[0] if len(set(words)) == 1 else MIXED


def _attempt_attributes(task: str, topic: str | None, tenant: str, worker: str) -> dict[str, AttributeValue]:
    return {
        **_SYSTEM,
        "messaging.operation.name": "execute",
        "messaging.operation.type": "process",
        **({} if topic is None else {"messaging.destination.name": topic}),
        "tidewheel.task": task,
        "tidewheel.tenant": tenant,
        "tidewheel.worker": worker,
    }


def _job_attributes(job: Claimed) -> dict[str, AttributeValue]:
    return {"messaging.message.id": str(job.lease.job_id), "tidewheel.attempt": job.attempt}


def _links(jobs: Sequence[Claimed]) -> list[Link]:
    links = []
    for job in jobs[:MAX_LINKS]:
        enqueued = trace.get_current_span(_extract(job.headers)).get_span_context()
        if enqueued.is_valid:
            links.append(Link(enqueued, _job_attributes(job)))
    return links


class _LazyRemoteSpan(NonRecordingSpan):
    """The span that headers name, read when somebody wants to know: that costs more than all the rest."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return f"NonRecordingSpan({self.get_span_context()!r})"

    def get_span_context(self) -> SpanContext:
        return trace.get_current_span(_extract(self._text)).get_span_context()


def _end(span: Span) -> None:
    try:
        span.end()
    except Exception:  # of a span processor: what it is about has ended all the same
        _log.exception("a span could not be ended")


def _fail(span: Span, code: str) -> None:
    """Without the error's message, and so without its traceback: what a payload had may be in them."""
    span.set_attribute("error.type", code)
    span.set_status(Status(StatusCode.ERROR, code))


@lru_cache(maxsize=MAX_CACHED_CONTEXTS)
def _extract(text: str | None) -> Context:
    """The context that a job carries; nothing of whoever happens to be at work here."""
    try:
        return propagate.extract(headers.read_headers(text), context=_EMPTY)
    except Exception:  # of a propagator, and anybody may have written the headers: no reason not to work
        _log.exception("the context of a trace could not be read")
        return _EMPTY


def _without_span(context: Context) -> Context:
    """Where a trace begins; the baggage stays."""
    return trace.set_span_in_context(trace.INVALID_SPAN, context)


def _inject(text: str | None, around: Context | None) -> str | None:
    """A job's headers with a context: that of ``around``, or the current one."""
    carrier: dict[str, str] = {}
    try:
        propagate.inject(carrier, context=around)
    except Exception:  # of a propagator
        _log.exception("the context of a trace could not be written")
        return text
    if not carrier:
        return text
    # Nothing of a context before: the state or the baggage of one trace does not belong to another.
    before = propagate.get_global_textmap().fields
    own = {name: value for name, value in headers.read_headers(text).items() if name not in before}
    try:
        return headers.write_headers({**own, **carrier})
    except LimitExceeded:
        # Somebody's baggage is too much. The trace goes on without it, or ends where not even that fits.
        kept = {name: carrier[name] for name in ("traceparent",) if name in carrier}
        try:
            return headers.write_headers({**own, **kept})
        except LimitExceeded:
            _log.warning("a job's headers have no room for its trace, which ends here")
            return text


# -- metrics ------------------------------------------------------------------------------------------------


def _register_instruments(telemetry: Telemetry, provider: MeterProvider | None) -> None:
    """Counters and gauges are looked at when somebody collects them; only runs are told one by one."""
    counted = telemetry.count()
    meter = metrics.get_meter("tidewheel", __version__, provider)
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
