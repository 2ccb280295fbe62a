"""``python -m bench``: Windlass and its peers on the same work, in one run."""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from pathlib import Path

from bench import systems, workloads
from bench.environments import default_cache
from bench.results import Measurement
from bench.run import run
from bench.table import number, tables


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--systems", help="names separated by commas; all by default")
    parser.add_argument("--workloads", help="names separated by commas; all by default")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each measurement (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the jobs and seconds (1.0)")
    parser.add_argument("--output", type=Path, help="write every repetition here, as JSON")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where peers are installed")
    parser.add_argument("--list", action="store_true", help="list systems and workloads")
    options = parser.parse_args()
    if options.list:
        show_list()
        return
    many_files()
    # A polite request to end is an interruption: servers and programs are ended in order.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    chosen_systems = choose(parser, "system", options.systems, systems.BY_NAME)
    chosen_workloads = choose(parser, "workload", options.workloads, workloads.BY_NAME)
    try:
        results = run(
            chosen_systems,
            chosen_workloads,
            repeat=options.repeat,
            scale=options.scale,
            cache=options.cache,
            watcher=watch,
            output=options.output,
        )
    except KeyboardInterrupt:
        sys.exit(130)
    print()
    print(tables(results, chosen_workloads))


def choose(parser: argparse.ArgumentParser, what: str, names: str | None, known: dict) -> list:
    """Those that were named, in our order."""
    if names is None:
        return list(known.values())
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            parser.error(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return [each for name, each in known.items() if name in wanted]


def show_list() -> None:
    for system in systems.SYSTEMS:
        print(f"{system.name:28} {system.ground:10} {' '.join(system.requirements)}  {system.note}")
    print()
    for workload in workloads.WORKLOADS:
        print(f"{workload.name:28} {workload.title}")


def watch(measurement: Measurement) -> None:
    """One line for each measurement, as it comes."""
    said = (measurement.problem or "").splitlines() or [
        ", ".join(f"{name} {number(value)}" for name, value in measurement.figures.items())
    ]
    load = "–" if measurement.load_average is None else f"{measurement.load_average:.1f}"
    print(f"{measurement.workload:14} {measurement.system:26} load {load:>4}  {said[0]}", flush=True)
    for line in said[1:]:
        print(f"    {line}", flush=True)


def many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))


if __name__ == "__main__":
    main()
