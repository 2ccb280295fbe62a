"""The systems that are measured: where each comes from, in which version, with which settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Ground = Literal["postgres", "sqlite", "redis", "redis-durable"]

OURS = "tidewheel"


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
    strong: bool = False  # does the workloads that only the strongest do
    program: str = ""  # must be on the path

    @property
    def family(self) -> str:
        """The system without the variant."""
        return self.name.partition(":")[0]

    @property
    def best(self) -> bool:
        return ":" not in self.name

    @property
    def baseline(self) -> bool:
        return self.name.startswith(("raw-", "bare-"))


# Versions are pinned here and nowhere else: the newest that run on Python 3.11 and Node 20.
ASYNCPG = "asyncpg==0.32.0"
PSYCOPG = "psycopg[binary]==3.3.8"
PGQUEUER = ("pgqueuer[asyncpg]==1.6.0", ASYNCPG)
GRAPHILE_WORKER = ("graphile-worker@0.17.3", "pg@8.23.1")
HUEY = ("huey==3.5.4",)
PROCRASTINATE = ("procrastinate==3.10.0", PSYCOPG)
OBAN = ("oban==0.7.0",)
CHANCY = ("chancy==0.26.0", PSYCOPG)
DBOS = ("dbos==3.3.0", PSYCOPG)
SAQ = ("saq[redis,hiredis]==0.26.4", "typing-extensions==4.16.0")  # it forgets to ask for the second
ARQ = ("arq==0.28.0", "hiredis==3.5.0")
DRAMATIQ = ("dramatiq[redis]==2.2.1", "hiredis==3.5.0")

ALL_KINDS = ("noop", "pause", "sync", "flaky")


def _both(
    name: str, adapter: str, ground: Ground, pace: int, requirements: tuple[str, ...], **more: Any
) -> list[System]:
    """A peer at its best, and as it comes: nothing set but 100 handlers, where it has such a setting."""
    note = more.pop("note", "")
    return [
        System(name, adapter, ground, pace, requirements, {"best": True}, note=note, **more),
        System(f"{name}:default", adapter, ground, pace, requirements, {"best": False}, **more),
    ]


def _on_redis(name: str, adapter: str, pace: int, requirements: tuple[str, ...]) -> list[System]:
    """A peer on a Redis that writes through to the disk, on one that does not, and as it comes."""
    kept = "no history"
    return [
        System(
            name,
            adapter,
            "redis-durable",
            pace,
            requirements,
            {"best": True},
            note=f"appendfsync always; {kept}",
        ),
        System(
            f"{name}:not-durable",
            adapter,
            "redis",
            pace,
            requirements,
            {"best": True},
            note=f"no fsync; {kept}",
        ),
        System(
            f"{name}:default", adapter, "redis", pace, requirements, {"best": False}, note=f"no fsync; {kept}"
        ),
    ]


SYSTEMS: tuple[System, ...] = (
    System("tidewheel-postgres", "run_tidewheel.py", "postgres", 40_000, kinds=ALL_KINDS, strong=True),
    System(
        "pgqueuer",
        "run_pgqueuer.py",
        "postgres",
        9_000,
        PGQUEUER,
        {"best": True, "pool": 10},
        note="batch_size 100, any number of handlers in flight",
        kinds=("noop", "pause", "sync"),
        strong=True,
    ),
    System(
        "pgqueuer:default",
        "run_pgqueuer.py",
        "postgres",
        3_000,
        PGQUEUER,
        {"best": False, "pool": 10},
        note="batch_size 10",
    ),
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
        {"best": False, "pool": 10},
        note="Node; nothing set but 100 handlers; deletes finished jobs",
    ),
    *_both(
        "procrastinate",
        "run_procrastinate.py",
        "postgres",
        400,
        PROCRASTINATE,
        note="psycopg's C part, 20 connections",
    ),
    *_both(
        "oban",
        "run_oban.py",
        "postgres",
        2_000,
        OBAN,
        python=(3, 12),
        note="looks for jobs every millisecond",
    ),
    *_both(
        "chancy",
        "run_chancy.py",
        "postgres",
        1_500,
        CHANCY,
        note="eager polling, completions written every 50 ms; the default writes them every second",
    ),
    *_both("dbos", "run_dbos.py", "postgres", 350, DBOS, note="a workflow without steps; polls every 20 ms"),
    System(
        "raw-postgres",
        "run_raw_postgres.py",
        "postgres",
        40_000,
        note="baseline: the functions of Tidewheel's schema in a bare asyncpg loop, 500 at a time",
    ),
    System(
        "raw-pgbench",
        "run_raw_pgbench.py",
        "postgres",
        40_000,
        note="baseline: the same functions driven by pgbench, one client",
        program="pgbench",
    ),
    System(
        "bare-postgres",
        "run_bare_postgres.py",
        "postgres",
        40_000,
        note="baseline: a minimal table in a bare asyncpg loop, batches of 500; no code of Tidewheel",
    ),
    System("tidewheel-sqlite", "run_tidewheel.py", "sqlite", 40_000, kinds=ALL_KINDS, strong=True),
    System(
        "huey",
        "run_huey.py",
        "sqlite",
        2_000,
        HUEY,
        {"best": True, "workers": 10},
        note="10 threads, fsync on; takes a job out before it runs, so a crash loses it; no history",
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
    System(
        "raw-sqlite",
        "run_raw_store.py",
        "sqlite",
        40_000,
        note="baseline: claim and settle of Tidewheel's store in a bare loop, batches of 500, no handlers",
    ),
    System(
        "bare-sqlite",
        "run_bare_sqlite.py",
        "sqlite",
        100_000,
        note="baseline: a minimal table in a bare sqlite3 loop, batches of 500; no code of Tidewheel",
    ),
    *_on_redis("saq", "run_saq.py", 1_000, SAQ),
    *_on_redis("dramatiq", "run_dramatiq.py", 1_800, DRAMATIQ),
    *_on_redis("arq", "run_arq.py", 800, ARQ),
)

BY_NAME = {system.name: system for system in SYSTEMS}
