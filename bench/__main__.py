"""``python -m bench``: Tidewheel and its peers on the same work, in one run. See bench/README.md."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from bench import plot, quick, systems, workloads
from bench.environments import default_cache
from bench.results import Measurement, Results
from bench.run import run
from bench.table import number, tables

T = TypeVar("T")


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["plot"]:
        return make_plot(words[1:])
    if words[:1] == ["table"]:
        return make_table(words[1:])
    options, chosen_systems, chosen_workloads = read_arguments(words)
    if options.list:
        show_list()
        return 0
    many_files()
    # A polite request to end is an interruption: programs and servers are ended in order.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if options.quick:
            return quick.quick(watch, options.cache, save=options.save)
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
        print("\ninterrupted; everything that was started has been ended", file=sys.stderr)
        return 130
    print()
    print(tables(results, chosen_workloads))
    return 0


def read_arguments(
    words: list[str],
) -> tuple[argparse.Namespace, list[systems.System], list[workloads.Workload]]:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, epilog="python -m bench plot|table RESULTS.json"
    )
    parser.add_argument("--systems", help="names separated by commas, * at the end matches; all by default")
    parser.add_argument("--workloads", help="names separated by commas, * at the end matches; all by default")
    parser.add_argument("--repeat", type=int, default=3, help="repetitions of each measurement (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the jobs and seconds (1.0)")
    parser.add_argument("--output", type=Path, help="write every repetition here, as JSON")
    parser.add_argument("--cache", type=Path, default=default_cache(), help="where peers are installed")
    parser.add_argument("--list", action="store_true", help="list systems and workloads")
    parser.add_argument("--quick", action="store_true", help="only: has Tidewheel become slower?")
    parser.add_argument("--save", action="store_true", help="with --quick: make this the reference")
    options = parser.parse_args(words)
    if options.repeat < 1 or not 0 < options.scale <= 10:
        parser.error("--repeat is at least 1, --scale more than 0 and at most 10")
    if options.save and not options.quick:
        parser.error("--save goes with --quick")
    try:
        return (
            options,
            choose("system", options.systems, systems.BY_NAME),
            choose("workload", options.workloads, workloads.BY_NAME),
        )
    except ValueError as error:
        parser.error(str(error))


def choose(what: str, names: str | None, known: Mapping[str, T]) -> list[T]:
    """Those that were named, in our order. Raises ``ValueError`` for a name nobody has."""
    if names is None:
        return list(known.values())
    wanted: set[str] = set()
    for name in names.split(","):
        word = name.strip()
        found = {
            each for each in known if each == word or (word.endswith("*") and each.startswith(word[:-1]))
        }
        if not found:
            raise ValueError(f"there is no {what} {word!r}; there are {', '.join(known)}")
        wanted |= found
    return [each for name, each in known.items() if name in wanted]


def show_list() -> None:
    for system in systems.SYSTEMS:
        print(f"{system.name:26} {system.ground:14} {' '.join(system.requirements)}  {system.note}".rstrip())
    print()
    for workload in workloads.WORKLOADS:
        print(f"{workload.name:26} {workload.title}")


def watch(measurement: Measurement) -> None:
    """One line for each measurement, as it comes; more for one that failed."""
    said = (measurement.problem or "").splitlines() or [
        ", ".join(f"{name} {number(value)}" for name, value in measurement.figures.items())
    ]
    load = "–" if measurement.load_average is None else f"{measurement.load_average:.1f}"
    took = f"{measurement.took_seconds:5.0f} s, load {load:>4}"
    print(f"{measurement.workload:12} {measurement.system:24} {took}  {said[0]}", flush=True)
    for line in said[1:]:
        print(f"    {line}", flush=True)


def make_plot(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench plot", description=plot.__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--output", type=Path, default=plot.DEFAULT, help="a PNG (docs/images/benchmark.png)")
    options = parser.parse_args(words)
    plot.plot(Results.load(options.results), options.output)
    print(options.output)
    return 0


def make_table(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench table", description="The tables of a result file.")
    parser.add_argument("results", type=Path)
    print(tables(Results.load(parser.parse_args(words).results), workloads.WORKLOADS))
    return 0


def many_files() -> None:
    """A thousand callers may need as many connections."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4096)), hard))


if __name__ == "__main__":
    sys.exit(main())
