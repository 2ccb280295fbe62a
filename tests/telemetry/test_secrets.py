"""What is planted in payloads, headers and errors gets into no metric and no span."""

from __future__ import annotations

from opentelemetry import baggage, context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tidewheel import Context, Fail, Retry, Tidewheel
from tidewheel.integrations.opentelemetry import instrument

PLANTED = "hunter2-7f3a"


async def test_secrets_and_tenants_stay_out_of_metrics_and_secrets_out_of_spans() -> None:
    """Payload, key, result, checkpoint, progress, message and traceback of an error, baggage, headers."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    traces, meters = TracerProvider(shutdown_on_exit=False), MeterProvider([reader], shutdown_on_exit=False)
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    async with Tidewheel("memory://") as app:
        instrument(app, tracer_provider=traces, meter_provider=meters)

        @app.task(max_attempts=2, retry=Retry.fixed(0))
        async def work(ctx: Context, password: str) -> str:
            await ctx.checkpoint({"password": password})
            await ctx.progress(10, password)
            if ctx.attempt == 1:
                raise ValueError(f"wrong: {password}")
            if password.endswith("!"):
                raise Fail(password)
            return password

        for password in (PLANTED, PLANTED + "!"):
            options = work.options(key=password, correlation_id="c-1", user_id=password, tenant="acme")
            token = context.attach(baggage.set_baggage("password", password))
            await options.enqueue(password=password)
            context.detach(token)
        await app.run_until_idle()
        text = app.telemetry.prometheus()
        spans = [span.to_json() for span in exporter.get_finished_spans()]
        data = reader.get_metrics_data()
    meters.shutdown()
    assert data is not None
    assert len(spans) == 6, "two enqueues, four attempts"
    assert "tidewheel_job_retries_total" in text
    for told in (text, *spans, data.to_json()):
        assert PLANTED not in told
    for told in (text, data.to_json()):
        assert "acme" not in told
