"""One drain of no-op jobs, in a process of its own; prints what it took as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence

from msgspec.structs import replace

from tidewheel import Tidewheel
from tidewheel.stores.bounds import MAX_ENQUEUE_BATCH
from tidewheel.tasks.job_factory import job_maker


def instrumented(app: Tidewheel, parts: Sequence[str]) -> None:
    """Have the SDK do all its work but the sending: every span is recorded, batched and thrown away."""
    if "otel" not in parts and "spans" not in parts:
        return
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    from tidewheel.integrations.opentelemetry import SPANS_PER_SECOND, instrument

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            del spans
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=20_000))
    instrument(
        app,
        spans="spans" in parts,
        spans_per_second=None if "every" in parts else SPANS_PER_SECOND,
        metrics="otel" in parts,
        tracer_provider=provider,
        meter_provider=MeterProvider([InMemoryMetricReader()]),
    )


def trace_of_its_own(*, sampled: bool) -> str:
    return f'{{"traceparent":"00-{os.urandom(16).hex()}-{os.urandom(8).hex()}-0{int(sampled)}"}}'


async def drain(url: str, jobs: int, parts: Sequence[str]) -> dict[str, float]:
    app = Tidewheel(url, metrics="metrics" in parts, check_on_start=False)
    instrumented(app, parts)
    ended = 0

    @app.task
    async def work(number: int) -> None:
        del number
        nonlocal ended
        ended += 1

    async with app:
        make = job_maker(app, work, {})
        for start in range(0, jobs, MAX_ENQUEUE_BATCH):
            batch = [make({"number": start + index}) for index in range(min(MAX_ENQUEUE_BATCH, jobs - start))]
            # Each from a request of its own, with a trace of its own; also where nobody looks at it.
            await app.store.enqueue(
                [
                    replace(job, headers=trace_of_its_own(sampled="tenth" not in parts or index % 10 == 0))
                    for index, job in enumerate(batch)
                ]
            )
        worker = app.worker(concurrency=100, handle_signals=False)
        began, cpu = time.perf_counter(), time.process_time()
        await worker.run_until_idle()
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert ended == jobs
    return {"rate": jobs / seconds, "cpu_us": cpu / jobs * 1e6}


if __name__ == "__main__":
    where, number, *wanted = sys.argv[1:]
    print(json.dumps(asyncio.run(drain(where, int(number), wanted))), flush=True)
    os._exit(0)  # what the SDK would still do at the end is not ours to wait for
