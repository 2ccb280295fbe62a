"""What the figures of a run mean for whoever reads them, and what limits them, a sentence or two each."""

from __future__ import annotations

from typing import Final

from tidewheel.benchmark import Figure, Figures, Measurement
from tidewheel.cli.words import about, latency

MOSTLY: Final = 0.5
"""The part of a time from which on it is the reason for it."""


def meanings(run: Figures) -> list[tuple[str, str]]:
    """Pairs of a name and what to say about it."""
    figures = run.figures
    one = figures[Measurement.ENQUEUE_ONE]
    return [
        ("enqueue", _one(run, one)),
        ("callers", _callers(run, figures[Measurement.ENQUEUE_CALLERS])),
        ("in bulk", _many(figures[Measurement.ENQUEUE_MANY], one)),
        ("worker", _drain(run, figures[Measurement.DRAIN])),
        ("together", _together(run, figures[Measurement.TOGETHER])),
        ("pick-up", _pick_up(run, figures[Measurement.PICK_UP])),
    ]


def _one(run: Figures, one: Figure) -> str:
    rate = about(one.jobs_per_second)
    said = f"A program that awaits each job before it makes the next gets {rate} a second."
    call = one.p50_seconds or 0.0
    commit = _p50(run, Measurement.COMMIT)
    round_trip = _p50(run, Measurement.ROUND_TRIP) or 0.0
    if commit is None:
        return f"{said} Nothing reaches a disk: this is the processor's work alone."
    if round_trip > MOSTLY * call:
        return f"{said} Most of a call is the way to the server and back, {latency(round_trip)}."
    if commit > MOSTLY * call:
        return f"{said} Most of a call is waiting for the durable commit, {latency(commit)}."
    return f"{said} The durable commit is {latency(commit)} of a call; the rest is the processors' work."


def _callers(run: Figures, callers: Figure) -> str:
    said = f"With {run.callers} of them at once, as in a web server, "
    rate = about(callers.jobs_per_second)
    commit = _p50(run, Measurement.COMMIT)
    if commit is None:
        return f"{said}it is {rate} jobs a second. One processor limits this."
    limit = "The disk" if commit > MOSTLY * (callers.p50_seconds or 0.0) else "The processor, not the disk,"
    return (
        f"{said}calls share their commits: {rate} jobs a second, 99 % answered within "
        f"{latency(callers.p99_seconds)}. {limit} limits this."
    )


def _many(many: Figure, one: Figure) -> str:
    each = _each(many)
    said = f"A job handed over with a thousand others costs {latency(each)}"
    if each is not None and one.p50_seconds is not None and one.p50_seconds > 2 * each:
        said += f", one alone {latency(one.p50_seconds)}: use enqueue_many for imports"
    return said + "."


def _drain(run: Figures, drain: Figure) -> str:
    return (
        f"One worker process runs at most {about(drain.jobs_per_second)} jobs a second, {run.concurrency} at "
        f"a time: {latency(_each(drain))} of queueing for each. What your handlers do comes on top."
    )


def _together(run: Figures, together: Figure) -> str:
    where = "in another process" if run.ground.shared else "beside them"
    return (
        f"While {run.callers} callers enqueue as fast as they can, one worker {where} completes "
        f"{about(together.jobs_per_second)} jobs a second; they share processors and store."
    )


def _pick_up(run: Figures, pick_up: Figure) -> str:
    where = "another process" if run.ground.shared else "the same process"
    said = (
        f"An idle worker in {where} begins a job {latency(pick_up.p50_seconds)} after enqueue was called, "
        f"99 % within {latency(pick_up.p99_seconds)}"
    )
    if not run.ground.hints:
        return f"{said}: it polls, every {latency(run.poll_interval)} (poll_interval)."
    return f"{said}." if _p50(run, Measurement.COMMIT) is None else f"{said}, the commit included."


def _each(figure: Figure) -> float | None:
    """Seconds a job took of a whole stretch."""
    return figure.seconds / figure.count if figure.count else None


def _p50(run: Figures, measurement: Measurement) -> float | None:
    figure = run.figures.get(measurement)
    return None if figure is None else figure.p50_seconds
