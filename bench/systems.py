"""The systems that are measured: where each comes from, in which version, with which settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Ground = Literal["postgres", "sqlite", "redis", "redis-durable"]

OURS = "windlass"


@dataclass(frozen=True, slots=True)
class System:
    """One job queue with one set of settings."""

    name: str
    adapter: str  # a file of adapters/
    ground: Ground
    pace: int  # jobs a second it is expected to drain, so that no measurement takes long; a guess is enough
    requirements: tuple[str, ...] = ()  # pip's, or npm's for a .cjs adapter; () runs where the harness runs
    options: dict[str, Any] = field(default_factory=dict)
    python: tuple[int, int] = (3, 11)  # the oldest it installs on
    note: str = ""  # what a reader of its figures must know
    kinds: tuple[str, ...] = ("noop",)  # handlers the adapter has: noop, pause, sync, flaky
    peer: bool = True  # someone else's queue, not ours and not a baseline
    strong: bool = False  # does the workloads that only the strongest do

    @property
    def family(self) -> str:
        """The system without the variant."""
        return self.name.partition(":")[0]

    @property
    def best(self) -> bool:
        return ":" not in self.name


# Versions are pinned here and nowhere else. The newest at the time of writing that run on Python 3.11 and Node 20.
ASYNCPG = "asyncpg==0.32.0"
PGQUEUER = ("pgqueuer[asyncpg]==1.6.0", ASYNCPG)
GRAPHILE_WORKER = ("graphile-worker@0.17.3", "pg@8")
HUEY = ("huey==3.5.4",)

ALL_KINDS = ("noop", "pause", "sync", "flaky")

SYSTEMS: tuple[System, ...] = (
    System(
        "windlass-postgres", "run_windlass.py", "postgres", 40_000, kinds=ALL_KINDS, peer=False, strong=True
    ),
    System(
        "pgqueuer",
        "run_pgqueuer.py",
        "postgres",
        9_000,
        PGQUEUER,
        {"best": True},
        note="batch_size 100, any number of handlers in flight",
        kinds=("noop", "pause", "sync"),
        strong=True,
    ),
    System("pgqueuer:default", "run_pgqueuer.py", "postgres", 3_000, PGQUEUER, {"best": False}, note="batch_size 10"),
    System(
        "graphile-worker",
        "run_graphile_worker.cjs",
        "postgres",
        15_000,
        GRAPHILE_WORKER,
        {"best": True, "prefetch": 500, "batch_delay": 0, "pool": 10},
        note="Node; localQueue 500, completions batched; deletes finished jobs",
        kinds=("noop", "pause", "flaky"),
        strong=True,
    ),
    System(
        "graphile-worker:default",
        "run_graphile_worker.cjs",
        "postgres",
        1_000,
        GRAPHILE_WORKER,
        {"best": False},
        note="Node; nothing set but 100 handlers; deletes finished jobs",
    ),
    System(
        "windlass-sqlite", "run_windlass.py", "sqlite", 40_000, kinds=ALL_KINDS, peer=False, strong=True
    ),
    System(
        "huey",
        "run_huey.py",
        "sqlite",
        2_000,
        HUEY,
        {"best": True, "workers": 1},
        note="SQLite with fsync; takes a job out before it runs, so a crash loses it; no history",
        kinds=("noop", "pause", "sync"),
        strong=True,
    ),
    System(
        "huey:default",
        "run_huey.py",
        "sqlite",
        1_500,
        HUEY,
        {"best": False},
        note="one worker, polls every 0.1 s and more; fsync on",
    ),
)

BY_NAME = {system.name: system for system in SYSTEMS}
