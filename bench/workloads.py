"""The workloads by name: which figure of each is compared, and who does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from bench.trial import Figures, Trial
from bench.work.draining import aged, deep, drain, pinned, together, topics
from bench.work.enqueueing import bulk, enqueue
from bench.work.growing import flat, look, memory
from bench.work.waiting import late, pickup, urgent


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of work. ``figure`` is what is compared; for ``higher`` more is better."""

    name: str
    title: str
    figure: str
    run: Callable[[Trial], Figures]
    higher: bool = True
    kind: str = "noop"
    grounds: tuple[str, ...] = ("postgres", "sqlite", "redis", "redis-durable")
    variants: bool = False  # also for the defaults of each peer
    baselines: bool = False  # also for the bare loops
    who: Literal["all", "strong", "ours"] = "all"  # strong: Tidewheel and the strongest peers


def _with(function: Callable[..., Figures], *arguments: Any, **more: Any) -> Callable[[Trial], Figures]:
    return lambda trial: function(trial, *arguments, **more)


RATE = "jobs_per_second"

WORKLOADS: tuple[Workload, ...] = (
    Workload("drain", "drain, 1 process", RATE, drain, variants=True, baselines=True),
    Workload("drain-2", "drain, 2 processes", RATE, _with(drain, 2)),
    Workload("drain-8", "drain, 8 processes", RATE, _with(drain, 8), who="strong"),
    *(
        Workload(
            f"enqueue-{callers}",
            f"enqueue, {callers:,} caller{'s' if callers > 1 else ''} awaiting each commit",
            RATE,
            _with(enqueue, callers),
            baselines=True,
        )
        for callers in (1, 10, 100, 1000)
    ),
    Workload("bulk", "bulk enqueue", RATE, bulk, baselines=True),
    Workload("together", "produce + drain together, 100 callers", RATE, together),
    Workload("pickup", "pick-up by an idle worker", "p50_ms", pickup, higher=False, variants=True),
    Workload(
        "pause",
        "drain, handlers of 1 ms",
        RATE,
        _with(drain, kind="pause", pace=0.5),
        kind="pause",
        who="strong",
    ),
    Workload(
        "sync", "drain, plain functions", RATE, _with(drain, kind="sync", pace=0.3), kind="sync", who="strong"
    ),
    Workload(
        "payload-2k", "drain, payloads of 2 kB", RATE, _with(drain, payload=2_000, pace=0.5), who="strong"
    ),
    Workload(
        "payload-10k", "drain, payloads of 10 kB", RATE, _with(drain, payload=10_000, pace=0.2), who="strong"
    ),
    Workload(
        "retries",
        "drain, 10 % fail once",
        RATE,
        _with(drain, kind="flaky", pace=0.5),
        kind="flaky",
        who="ours",
    ),
    Workload("deep", "drain, first 100,000 of 1 M", RATE, deep, who="strong"),
    Workload("aged", "drain beside 1 M finished jobs", RATE, aged, who="ours"),
    Workload("topics", "drain, 1,000 topics", RATE, topics, who="ours"),
    Workload(
        "pinned",
        "produce + drain, snapshot pinned",
        "last_of_first_percent",
        pinned,
        grounds=("postgres",),
        who="strong",
    ),
    Workload("urgent", "urgent jobs into 1 M under drain", "p99_ms", urgent, higher=False, who="ours"),
    Workload("late", "jobs committed late", "p99_ms", late, higher=False, grounds=("postgres",), who="ours"),
    Workload(
        "memory",
        "worker's memory over 1 M jobs",
        "growth_megabytes",
        _with(memory, 1_000_000),
        higher=False,
        who="ours",
    ),
    Workload(
        "memory-10k",
        "worker's memory, 100,000 jobs of 10 kB",
        "growth_megabytes",
        _with(memory, 100_000, 10_000),
        higher=False,
        who="ours",
    ),
    Workload(
        "flat", "claim at 1 M + 1 M + 1 M against empty", "full_of_empty", flat, higher=False, who="ours"
    ),
    Workload("look", "list and stats at 1 M jobs", "list_p99_ms", look, higher=False, who="ours"),
)

BY_NAME = {workload.name: workload for workload in WORKLOADS}
