"""Spans, made by the real SDK."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tests.patience import PATIENCE
from tests.worker.conftest import URLS
from tidewheel import Cancel, Context, Every, Fail, Retry, Snooze, Tidewheel
from tidewheel.core import headers
from tidewheel.errors import ConfigurationError, InvalidInput
from tidewheel.integrations.opentelemetry import instrument
from tidewheel.testing.clock import FrozenClock


class Spans:
    """What a program's SDK has got."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("tests")

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def all(self) -> str:
        return "\n".join(span.to_json() for span in self.exporter.get_finished_spans())


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture(params=URLS)
async def app(request: pytest.FixtureRequest, tmp_path: Path, spans: Spans) -> AsyncIterator[Tidewheel]:
    """An open app that is traced, on each store."""
    async with Tidewheel(URLS[request.param](tmp_path), poll_interval=0.05) as app:
        instrument(app, tracer_provider=spans.provider, metrics=False)
        yield app


@pytest.fixture
async def quick(spans: Spans) -> AsyncIterator[Tidewheel]:
    """The same where the store does not matter."""
    async with Tidewheel("memory://", poll_interval=0.05) as app:
        instrument(app, tracer_provider=spans.provider, metrics=False)
        yield app


def context_of(span: ReadableSpan) -> trace.SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


async def test_a_job_goes_on_with_the_trace_that_enqueued_it(app: Tidewheel, spans: Spans) -> None:
    """Request, enqueue, attempt, and what the handler does there: one trace, each inside the one before."""

    @app.task(topic="mail")
    async def send(number: int) -> None:
        with spans.tracer.start_as_current_span("inside"):
            await asyncio.sleep(0)

    with spans.tracer.start_as_current_span("request"):
        job = await send.enqueue(number=1)
    await app.run_until_idle(name="ada")
    (request,), (enqueue,), (execute,), (inside,) = map(
        spans.named, ("request", "job.enqueue", "job.execute", "inside")
    )
    for parent, child in ((request, enqueue), (enqueue, execute), (execute, inside)):
        assert child.parent is not None
        assert child.parent.span_id == context_of(parent).span_id
        assert context_of(child).trace_id == context_of(request).trace_id
    assert (enqueue.kind, execute.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(enqueue.attributes or {}) == {
        "messaging.system": "tidewheel",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "tidewheel.task": "send",
        "tidewheel.tenant": "root",
        "tidewheel.duplicate": False,
    }
    assert dict(execute.attributes or {}) == {
        "messaging.system": "tidewheel",
        "messaging.operation.name": "execute",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "tidewheel.task": "send",
        "tidewheel.attempt": 1,
        "tidewheel.tenant": "root",
        "tidewheel.worker": "ada",
        "tidewheel.outcome": "completed",
    }
    assert execute.status.status_code is StatusCode.UNSET


async def test_a_later_attempt_begins_a_trace_and_links_to_the_enqueue(
    quick: Tidewheel, spans: Spans
) -> None:
    """A job that is tried for a week must not make a trace of a week."""

    @quick.task(max_attempts=3, retry=Retry.fixed(0))
    async def work(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise ValueError("no")

    await work.enqueue()
    await quick.run_until_idle()
    (enqueue,) = spans.named("job.enqueue")
    first, *later = spans.named("job.execute")
    assert first.parent is not None
    assert first.links == ()
    assert len(later) == 2
    for span in later:
        assert span.parent is None
        assert context_of(span).trace_id != context_of(enqueue).trace_id
        assert [link.context.span_id for link in span.links] == [context_of(enqueue).span_id]
    outcomes = [(span.attributes or {})["tidewheel.outcome"] for span in (first, *later)]
    assert outcomes == ["retried", "retried", "completed"]


async def test_how_an_attempt_ended_is_told_by_a_code(quick: Tidewheel, spans: Spans) -> None:
    """Errors by their code, without a message; a job that is cancelled or given back is no error."""

    @quick.task(max_attempts=1)
    async def end(ctx: Context, how: str) -> None:
        match how:
            case "raise":
                raise ValueError("no")
            case "fail":
                raise Fail("no", code="not_today")
            case "cancel":
                raise Cancel("no")
            case "snooze" if not ctx.checkpoint:
                await ctx.checkpoint({})
                raise Snooze(0)

    for how in ("raise", "fail", "cancel", "snooze"):
        await end.enqueue(how=how)
    await quick.run_until_idle()
    told = {
        (span.attributes or {})["tidewheel.outcome"]: (
            span.status.status_code,
            span.status.description,
            (span.attributes or {}).get("error.type"),
        )
        for span in spans.named("job.execute")
        if (span.attributes or {}).get("error.type") != "not_today"
    }
    assert told == {
        "failed": (StatusCode.ERROR, "handler_error", "handler_error"),
        "cancelled": (StatusCode.UNSET, None, None),
        "released": (StatusCode.UNSET, None, None),
        "completed": (StatusCode.UNSET, None, None),
    }
    assert [span.events for span in spans.named("job.execute") if span.events] == []


async def test_a_plain_function_on_a_thread_is_inside_its_span(quick: Tidewheel, spans: Spans) -> None:
    """And so is a job it enqueues."""

    @quick.task
    async def after() -> None: ...

    @quick.task
    def work() -> None:
        with spans.tracer.start_as_current_span("inside"):
            after.sync.enqueue()

    await work.enqueue()
    await quick.run_until_idle()
    await asyncio.to_thread(quick.sync.close)
    (inside,) = spans.named("inside")
    of_work, of_after = spans.named("job.execute")
    assert inside.parent is not None
    assert inside.parent.span_id == context_of(of_work).span_id
    assert context_of(of_after).trace_id == context_of(of_work).trace_id


async def test_jobs_side_by_side_do_not_get_into_each_others_traces(quick: Tidewheel, spans: Spans) -> None:
    """A slot runs one job after another, and several slots take turns."""

    @quick.task
    async def work(number: int) -> None:
        await asyncio.sleep(0.001 * (number % 3))
        with spans.tracer.start_as_current_span("inside") as span:
            span.set_attribute("number", number)
            await asyncio.sleep(0)

    for number in range(20):
        with spans.tracer.start_as_current_span("request") as span:
            span.set_attribute("number", number)
            await work.enqueue(number=number)
    await quick.run_until_idle(concurrency=4)
    traces = {
        name: {(span.attributes or {})["number"]: context_of(span).trace_id for span in spans.named(name)}
        for name in ("request", "inside")
    }
    assert len(set(traces["request"].values())) == 20
    assert traces["inside"] == traces["request"]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_jobs_written_together_share_one_span(quick: Tidewheel, spans: Spans) -> None:
    """A span for each of ten thousand would cost more than writing them."""

    @quick.task
    async def work(number: int) -> None: ...

    await work.enqueue_many([{"number": number} for number in range(5)])
    (enqueue,) = spans.named("job.enqueue")
    assert (enqueue.attributes or {})["messaging.batch.message_count"] == 5
    await quick.run_until_idle()
    executed = spans.named("job.execute")
    assert len(executed) == 5
    assert {context_of(span).trace_id for span in executed} == {context_of(enqueue).trace_id}


async def test_a_job_in_a_transaction_of_yours_carries_the_trace(tmp_path: Path, spans: Spans) -> None:
    """The span ends when it is written; whether that commits nobody can say by then."""
    async with Tidewheel(f"sqlite:///{tmp_path / 'jobs.db'}") as app:
        instrument(app, tracer_provider=spans.provider, metrics=False)

        @app.task
        async def work() -> None: ...

        connection = sqlite3.connect(tmp_path / "jobs.db")
        with connection:
            work.using(connection).enqueue()
        connection.close()
        await app.run_until_idle()
    (enqueue,), (execute,) = spans.named("job.enqueue"), spans.named("job.execute")
    assert execute.parent is not None
    assert execute.parent.span_id == context_of(enqueue).span_id


async def test_an_enqueue_that_fails_is_an_error_without_its_message(
    quick: Tidewheel, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its span ends, and the caller gets the error as ever."""

    async def refuse(jobs: object) -> None:
        raise OSError("hunter2")

    @quick.task
    async def work() -> None: ...

    monkeypatch.setattr(quick.store, "enqueue", refuse)
    with pytest.raises(OSError, match="hunter2"):
        await work.enqueue()
    (span,) = spans.named("job.enqueue")
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "OSError")
    assert "hunter2" not in spans.all()


@contextmanager
def with_baggage(**entries: str) -> Iterator[None]:
    context = otel_context.get_current()
    for name, value in entries.items():
        context = baggage.set_baggage(name, value, context)
    token = otel_context.attach(context)
    try:
        yield
    finally:
        otel_context.detach(token)


async def test_baggage_goes_along_as_far_as_there_is_room(quick: Tidewheel, spans: Spans) -> None:
    """What does not fit into the headers is left behind; the trace and the job are not."""
    seen: list[int] = []

    @quick.task
    async def work() -> None:
        seen.append(len(str(baggage.get_baggage("who") or "")))

    with with_baggage(who="ada"):
        await work.enqueue()
    with with_baggage(who="x" * headers.MAX_HEADERS_BYTES):
        await work.enqueue()
    await quick.run_until_idle()
    assert seen == [3, 0]
    enqueued = [context_of(span).span_id for span in spans.named("job.enqueue")]
    executed = [span.parent.span_id for span in spans.named("job.execute") if span.parent is not None]
    assert executed == enqueued


async def test_a_broken_span_processor_harms_no_job(
    quick: Tidewheel, caplog: pytest.LogCaptureFixture
) -> None:
    """What others plug into the SDK may raise; the job runs, is settled, and somebody is told."""

    class Broken(SpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            del span, parent_context
            raise OSError("broken at the start")

        def on_end(self, span: Any) -> None:
            del span
            raise OSError("broken at the end")

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Broken())
    async with Tidewheel("memory://") as app:
        instrument(app, tracer_provider=provider, metrics=False)

        @app.task
        async def work() -> str:
            return "done"

        job = await work.enqueue()
        await app.run_until_idle()
        assert await job.result(timeout=PATIENCE) == "done"
    assert "a span could not be begun" in caplog.text


async def test_an_app_is_instrumented_once(quick: Tidewheel, spans: Spans) -> None:
    """Twice would be two of everything."""
    with pytest.raises(ConfigurationError, match="instrumented already"):
        instrument(quick, tracer_provider=spans.provider)
    measured = Tidewheel("memory://")
    provider = MeterProvider(shutdown_on_exit=False)
    instrument(measured, spans=False, meter_provider=provider)
    with pytest.raises(ConfigurationError, match="instrumented already"):
        instrument(measured, spans=False, meter_provider=provider)


async def test_the_same_metrics_are_instruments(spans: Spans) -> None:
    """By the same names, with the same labels as attributes."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    async with Tidewheel("memory://") as app:
        instrument(app, spans=False, meter_provider=provider)

        @app.task
        async def work() -> None: ...

        await work.enqueue_many([{}, {}])
        await app.run_until_idle(name="ada")
        data = reader.get_metrics_data()
    assert data is not None
    found = {
        (metric.name, *dict(point.attributes or {}).values()): point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    submitted: Any = found["tidewheel_jobs_submitted_total", "work", "work"]
    completed: Any = found["tidewheel_jobs_completed_total", "work", "completed"]
    ran: Any = found["tidewheel_job_duration_seconds", "work"]
    waited: Any = found["tidewheel_job_wait_seconds", "work"]
    assert (submitted.value, completed.value) == (2, 2)
    assert (ran.count, waited.count) == (2, 2)
    assert ran.explicit_bounds[0] == 0.001
    provider.shutdown()


async def test_a_second_has_so_many_spans(spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of more attempts the later ones have none; what their handlers do belongs to the enqueue."""
    now = 0.0
    monkeypatch.setattr("tidewheel.integrations.opentelemetry.time.monotonic", lambda: now)
    async with Tidewheel("memory://") as app:
        instrument(app, tracer_provider=spans.provider, metrics=False, spans_per_second=3)

        @app.task
        async def work() -> None:
            with spans.tracer.start_as_current_span("inside"):
                pass

        await work.enqueue_many([{}] * 5)
        await app.run_until_idle()
        assert len(spans.named("job.execute")) == 3
        (enqueue,) = spans.named("job.enqueue")
        outside = [one for one in spans.named("inside") if one.parent.span_id == context_of(enqueue).span_id]  # type: ignore[union-attr]
        assert len(outside) == 2
        now = 1.0
        await work.enqueue()
        await app.run_until_idle()
        assert len(spans.named("job.execute")) == 4


async def test_a_trace_that_nobody_keeps_is_not_recorded_here_either(spans: Spans) -> None:
    """It was decided when the job was enqueued; what the handler does goes by the same word."""
    seen: list[trace.SpanContext] = []
    unsampled = TracerProvider(sampling.ALWAYS_OFF, shutdown_on_exit=False)
    async with Tidewheel("memory://") as app:
        instrument(app, tracer_provider=spans.provider, metrics=False)

        @app.task
        async def work() -> None:
            seen.append(trace.get_current_span().get_span_context())
            with spans.tracer.start_as_current_span("inside"):
                pass

        with unsampled.get_tracer("tests").start_as_current_span("request") as request:
            await work.enqueue()
        await app.run_until_idle()
    assert spans.named("job.execute") == spans.named("inside") == []
    (context,) = seen
    assert context.trace_id == request.get_span_context().trace_id


async def test_a_batch_is_one_span_that_links_to_the_enqueueing_of_each_job(
    app: Tidewheel, spans: Spans
) -> None:
    """It belongs to no trace of theirs alone; what the handler does is inside it."""

    @app.task(batch=10, max_attempts=1)
    async def work(numbers: list[int]) -> list[int | Fail]:
        with spans.tracer.start_as_current_span("inside"):
            return [Fail("no") if number == 1 else number for number in numbers]

    jobs = [await work.enqueue(number) for number in range(3)]
    await app.run_until_idle(name="ada")
    (execute,), (inside,) = spans.named("job.execute"), spans.named("inside")
    assert inside.parent is not None
    assert inside.parent.span_id == context_of(execute).span_id
    enqueued = [context_of(span) for span in spans.named("job.enqueue")]
    assert context_of(execute).trace_id not in {context.trace_id for context in enqueued}
    assert [link.context.span_id for link in execute.links] == [context.span_id for context in enqueued]
    assert [dict(link.attributes or {}) for link in execute.links] == [
        {"messaging.message.id": str(job.id), "tidewheel.attempt": 1} for job in jobs
    ]
    assert dict(execute.attributes or {}) == {
        "messaging.system": "tidewheel",
        "messaging.operation.name": "execute",
        "messaging.operation.type": "process",
        "messaging.destination.name": "work",
        "messaging.batch.message_count": 3,
        "tidewheel.task": "work",
        "tidewheel.tenant": "root",
        "tidewheel.worker": "ada",
        "tidewheel.outcome": "mixed",
        "tidewheel.errors": 1,
    }
    assert execute.status.status_code is StatusCode.UNSET, "some failed, the call did not"


async def test_a_batch_of_one_is_a_run_like_any_other(quick: Tidewheel, spans: Spans) -> None:
    """And a call that fails for all is an error, with a code that they share."""

    @quick.task(batch=10, max_attempts=1)
    async def work(numbers: list[int]) -> None:
        raise ValueError(numbers)

    await work.enqueue(1)
    await quick.run_until_idle()
    (alone,), (enqueue,) = spans.named("job.execute"), spans.named("job.enqueue")
    assert alone.parent is not None
    assert alone.parent.span_id == context_of(enqueue).span_id
    await work.enqueue_many([{"numbers": number} for number in (2, 3)])
    await quick.run_until_idle()
    together = spans.named("job.execute")[1]
    assert (alone.status.description, together.status.description) == ("handler_error", "handler_error")
    assert (together.attributes or {})["tidewheel.outcome"] == "failed"
    assert (together.attributes or {})["tidewheel.errors"] == 2


async def test_a_batch_beyond_the_bound_is_not_recorded(spans: Spans) -> None:
    """One call is one of so many in a second, and nothing of it leaks into what the slot does next."""
    async with Tidewheel("memory://") as app:
        instrument(app, tracer_provider=spans.provider, metrics=False, spans_per_second=1)

        @app.task(batch=2)
        async def work(numbers: list[int]) -> list[str]:
            current = trace.get_current_span().get_span_context()
            return [format(current.span_id, "x")] * len(numbers)

        jobs = await work.enqueue_many([{"numbers": number} for number in range(4)])
        await app.run_until_idle(concurrency=1)
        (execute,), (enqueue,) = spans.named("job.execute"), spans.named("job.enqueue")
        own, outside = context_of(execute).span_id, context_of(enqueue).span_id
        found = [await job.result(timeout=PATIENCE) for job in jobs]
        assert found == [format(span, "x") for span in (own, own, outside, outside)]


async def test_baggage_goes_along_also_without_a_span(spans: Spans) -> None:
    """A handler that goes by it must not do something else when there is much to do."""
    seen: list[object] = []
    async with Tidewheel("memory://") as app:
        instrument(app, tracer_provider=spans.provider, metrics=False, spans_per_second=1)

        @app.task
        async def work() -> None:
            seen.append(baggage.get_baggage("who"))

        with with_baggage(who="ada"):
            await work.enqueue_many([{}] * 3)
        await app.run_until_idle()
    assert len(spans.named("job.execute")) == 1
    assert seen == ["ada"] * 3


async def test_an_unsampled_trace_stays_so_beside_carried_variables(spans: Spans) -> None:
    """Whatever else is in the headers, and whatever the sampler here says."""
    unsampled = TracerProvider(sampling.ALWAYS_OFF, shutdown_on_exit=False)
    always = TracerProvider(sampling.ALWAYS_ON, shutdown_on_exit=False)
    always.add_span_processor(SimpleSpanProcessor(spans.exporter))
    shift: ContextVar[str] = ContextVar("shift")
    async with Tidewheel("memory://") as app:
        instrument(app, tracer_provider=unsampled, metrics=False)
        app.carry(shift)

        @app.task
        async def work() -> None: ...

        shift.set('night "traceparent":"00-')
        await work.enqueue()
        app.telemetry.trace(type(app.telemetry.tracing)(always.get_tracer("tests"), None))  # type: ignore[call-arg, misc]
        await app.run_until_idle()
    assert spans.named("job.execute") == []


async def test_a_copy_has_nothing_of_the_trace_before(quick: Tidewheel, spans: Spans) -> None:
    """The state and the baggage of another trace do not belong to the one that the copy is part of."""

    seen: list[dict[str, str]] = []

    @quick.task
    async def work(ctx: Context) -> None:
        seen.append(dict(ctx.headers))

    with with_baggage(who="ada"):
        job = await work.enqueue()
    await quick.enqueue_copy(job.id)
    await quick.run_until_idle()
    assert [sorted(one) for one in seen] == [["baggage", "traceparent"], ["traceparent"]]
    assert seen[0]["traceparent"] != seen[1]["traceparent"]


@pytest.fixture
def propagators() -> Iterator[None]:
    """The program's own are there again afterwards."""
    before = propagate.get_global_textmap()
    yield
    propagate.set_global_textmap(before)


@pytest.mark.usefixtures("propagators")
async def test_a_broken_propagator_harms_no_job(quick: Tidewheel, caplog: pytest.LogCaptureFixture) -> None:
    """Neither where jobs come in nor where they run."""

    class Broken(TraceContextTextMapPropagator):
        broken = "inject"

        def inject(self, *args: Any, **kwargs: Any) -> None:
            if self.broken == "inject":
                raise OSError("broken")
            super().inject(*args, **kwargs)

        def extract(self, *args: Any, **kwargs: Any) -> Any:
            del args, kwargs
            raise OSError("broken")

    @quick.task(max_attempts=1)
    async def work() -> str:
        return "done"

    propagate.set_global_textmap(broken := Broken())
    jobs = [await work.enqueue()]
    broken.broken = "extract"
    jobs.append(await work.enqueue())
    await quick.run_until_idle()
    assert [await job.result(timeout=PATIENCE) for job in jobs] == ["done", "done"]
    assert "could not be written" in caplog.text
    assert "could not be read" in caplog.text


async def test_a_broken_meter_harms_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    """What was settled is settled; who measures it is told of in the log."""

    def broken(task: str, run_seconds: float, wait_seconds: float) -> None:
        raise OSError(task, run_seconds, wait_seconds)

    async with Tidewheel("memory://", metrics=True) as app:
        app.telemetry.count().run_listeners += (broken,)

        @app.task
        async def work() -> None: ...

        await work.enqueue_many([{}, {}])
        assert await app.run_until_idle() == 2
        assert 'tidewheel_jobs_completed_total{task="work",state="completed"} 2' in app.telemetry.prometheus()
    assert "runs could not be told" in caplog.text


async def test_what_a_schedule_makes_is_traced_and_counted(spans: Spans) -> None:
    """By its time or by hand: it is an enqueue of the process that does it."""
    clock = FrozenClock()
    async with Tidewheel("memory://", clock=clock, metrics=True) as app:
        instrument(app, tracer_provider=spans.provider, metrics=False)

        @app.task(schedule=Every(60))
        async def tick() -> None: ...

        await app.run_until_idle()
        clock.advance(60)
        await app.run_until_idle()
        await app.schedules.run("tick")
        await app.run_until_idle()
        told = app.telemetry.prometheus()
    assert 'tidewheel_jobs_submitted_total{task="tick",topic="tick"} 2' in told
    parents = [span.parent.span_id for span in spans.named("job.execute") if span.parent is not None]
    assert parents == [context_of(span).span_id for span in spans.named("job.enqueue")]
    assert len(parents) == 2


def test_a_limit_of_spans_is_a_number_of_them(spans: Spans) -> None:
    """Zero would be tracing without spans, which is another switch."""
    with pytest.raises(InvalidInput, match="spans_per_second is 0"):
        instrument(Tidewheel("memory://"), tracer_provider=spans.provider, spans_per_second=0)


PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from tidewheel import Tidewheel
from tidewheel.integrations.opentelemetry import instrument

provider = TracerProvider(shutdown_on_exit=False)
trace.set_tracer_provider(provider)
app = Tidewheel("memory://")
instrument(app, metrics=False)


@app.task(isolation="process")
def work() -> str:
    return format(trace.get_current_span().get_span_context().span_id, "x")


if __name__ == "__main__":
    executed = []

    class Keep(SimpleSpanProcessor):
        def on_end(self, span):
            if span.name == "job.execute":
                executed.append(format(span.context.span_id, "x"))

    provider.add_span_processor(Keep(ConsoleSpanExporter()))

    async def main():
        async with app:
            job = await work.enqueue()
            await app.run_until_idle()
            assert [await job.result(timeout=5)] == executed, (await job.result(), executed)

    import asyncio
    asyncio.run(main())
    print("the same")
"""


def test_a_handler_in_a_process_of_its_own_is_inside_its_span(tmp_path: Path) -> None:
    """Its process is told the worker's span, not that of the enqueue."""
    program = tmp_path / "traced_program.py"
    program.write_text(PROGRAM)
    told = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False)
    assert told.stdout == "the same\n", told.stderr
