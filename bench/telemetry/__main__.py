"""Drains of no-op jobs, in turn: with nothing told, with metrics, with spans, with both.

python -m bench.telemetry                    SQLite, five rounds
python -m bench.telemetry --postgres

Each drain is a fresh process and a fresh store. Rates and processor time are given as parts of what a drain
of the same round without any of it took, so that the machine's mood cancels out; the median round is told.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

VARIANTS = {
    "off": (),
    "off, again": (),
    "metrics": ("metrics",),
    "spans": ("spans",),
    "metrics and spans": ("metrics", "spans"),
    "metrics by OpenTelemetry": ("otel",),
    "spans of every job": ("spans", "every"),
    "of every job, 1/10 sampled": ("spans", "every", "tenth"),
}
"""What each drain has on. The first one twice: what differs between those two is noise."""


@contextmanager
def fresh_url(server: str | None) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        if server is None:
            yield f"sqlite:///{Path(directory) / 'jobs.db'}"
        else:
            from tests.servers.shared import empty_url

            yield empty_url()


def measured(server: str | None, jobs: int, parts: tuple[str, ...]) -> dict[str, float]:
    with fresh_url(server) as url:
        command = [sys.executable, "-m", "bench.telemetry.drain", url, str(jobs), *parts]
        told = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, float] = json.loads(told.stdout)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--jobs", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {name: [] for name in VARIANTS}
    for _ in range(given.rounds):
        for name, parts in VARIANTS.items():
            found[name].append(measured("postgres" if given.postgres else None, given.jobs, parts))
    print(f"{'':28} {'jobs/s':>9} {'rate':>7} {'CPU µs/job':>11} {'CPU':>7}")
    for name, figures in found.items():
        pairs = list(zip(figures, found["off"], strict=True))
        rate = statistics.median(figure["rate"] for figure in figures)
        cpu = statistics.median(figure["cpu_us"] for figure in figures)
        part = statistics.median(figure["rate"] / off["rate"] for figure, off in pairs)
        cpu_part = statistics.median(figure["cpu_us"] / off["cpu_us"] for figure, off in pairs)
        print(f"{name:28} {rate:9,.0f} {part:7.2f} {cpu:11.1f} {cpu_part:7.2f}")


if __name__ == "__main__":
    main()
