"""A diagnosis as text: Markdown that is also readable unrendered.

On a terminal, the report wraps at word boundaries and the important lines have colours.
"""

from __future__ import annotations

import os
import platform
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import click

from tidewheel.__about__ import __version__
from tidewheel.cli import formats
from tidewheel.cli.doctor.diagnosis import Diagnosis, PromiseResult, Verdict, promise_results
from tidewheel.cli.terminal import console, is_terminal
from tidewheel.core import text_format
from tidewheel.core.text_format import printable
from tidewheel.verification.fault_run import FaultRunResult
from tidewheel.verification.invariants import MAX_RECOVERY_SECONDS
from tidewheel.verification.store_checks import FindingLevel

_LEVELS: Final[Mapping[FindingLevel, str]] = {
    FindingLevel.PROBLEM: "WRONG",
    FindingLevel.DOUBT: "in doubt",
    FindingLevel.NOTE: "note",
}
_VERDICTS: Final[Mapping[Verdict, str]] = {
    Verdict.KEPT: "kept",
    Verdict.BROKEN: "BROKEN",
    Verdict.UNTRIED: "not tried",
}
_COUNT_LABELS: Final[Mapping[str, str]] = {
    "enqueues": "calls to enqueue",
    "enqueues ok": "acknowledged",
    "enqueues failed": "failed for certain",
    "enqueues unknown": "answer lost",
    "jobs": "jobs stored at the end",
    "jobs completed": "completed",
    "jobs failed": "failed",
    "jobs cancelled": "cancelled",
    "jobs run more than once": "run more than once",
    "claims": "claims",
    "grants": "leases granted",
    "runs": "runs of handlers",
    "extensions": "extensions of leases",
    "extensions refused": "refused, the lease was over",
    "endings": "endings of runs",
    "endings accepted": "accepted",
    "endings refused": "refused, the lease was over",
    "endings unknown": "answer lost",
    "orphans": "leases that nobody ended",
}
"""What is counted, in the words of the report; those with a space belong to the ones above them."""
_NOT_COVERED: Final = (
    "A sweep kills processes, freezes them and takes the store away from them. It does not cut the power or "
    "set a clock, and it cannot see a disk that says *written* too early or a standby that lags behind. What "
    "holds then, and with which settings, is in *Promises* "
    "(docs/explanation/promises.md)."
)


def report_lines(diagnosis: Diagnosis) -> list[str]:
    """The report, a paragraph or item on a line, whatever others' names and paths have in them."""
    return [printable(line) for line in _lines(diagnosis)]


def _lines(diagnosis: Diagnosis) -> list[str]:
    outcome = diagnosis.outcome
    lines = [f"# {_verdict(diagnosis)}", "", *_conditions(diagnosis), "", *_store(diagnosis)]
    if outcome is None:
        return lines
    lines += ["", "## The sweep", "", *_sweep(outcome)]
    lines += ["", "## The promises", "", *_promises(outcome)]
    if not outcome.promises_kept:
        lines += ["", *_what_to_do(diagnosis, outcome)]
    lines += ["", "## Recovery", "", *_recovery(outcome)]
    return [*lines, "", "## What this cannot show", "", _NOT_COVERED]


def _verdict(diagnosis: Diagnosis) -> str:
    problems, outcome = diagnosis.examination.problems, diagnosis.outcome
    store = diagnosis.examination.ground.store
    found = formats.plural(len(problems), "problem")
    if outcome is None:
        return f"WRONG: {found}" if problems else f"Well: {store}, nothing is wrong{_doubtful(diagnosis)}"
    during = f"in {_seconds_text(outcome.plan.seconds)} of faults on {store}"
    if not outcome.promises_kept:
        broken = [promise.name for promise in promise_results(outcome) if promise.verdict is Verdict.BROKEN]
        also = f"; also {found}" if problems else ""
        return f"BROKEN: {formats.plural(len(broken), 'promise')} ({', '.join(broken)}) {during}{also}"
    if problems:
        return f"WRONG: {found}; no promise was broken {during}"
    return f"Kept: no promise was broken {during}"


def _doubtful(diagnosis: Diagnosis) -> str:
    doubts = sum(finding.level is FindingLevel.DOUBT for finding in diagnosis.examination.findings)
    return f", {formats.plural(doubts, 'thing is', 'things are')} in doubt" if doubts else ""


def _conditions(diagnosis: Diagnosis) -> Iterator[str]:
    ground = diagnosis.examination.ground
    settings = [f"{name} {value}" for name, value in ground.settings.items()]
    settings += [
        f"{name} {text_format.format_size(number)}" for name, number in diagnosis.examination.sizes.items()
    ]
    yield f"- date: {diagnosis.date:%Y-%m-%d %H:%M:%S} UTC"
    yield f"- store: {diagnosis.url}"
    yield f"- database: {', '.join([ground.store, *settings])}"
    yield f"- tidewheel: {__version__}, Python {platform.python_version()}"
    cores = formats.plural(os.cpu_count() or 1, "core")
    yield f"- machine: {platform.system()} {platform.release()} {platform.machine()}, {cores}"


def _store(diagnosis: Diagnosis) -> Iterator[str]:
    examination = diagnosis.examination
    yield "## The store"
    yield ""
    if examination.checked and not examination.problems:
        yield "Its own check found nothing wrong: the database, the rules between its tables, the counters."
    elif not examination.checked:
        yield "Its own check was not run."
    elif any(
        finding.level is FindingLevel.PROBLEM and finding.kind == "store" for finding in examination.findings
    ):
        yield "Its own check found what must not be. Nothing was changed."
    else:
        yield "Its own check found nothing wrong, but there is something else. Nothing was changed."
    files = examination.files
    if files is not None:
        of = f"{formats.plural(files.files, 'file')} of {formats.plural(files.jobs, 'completed file job')}"
        differ = formats.plural(len(files.mismatches), "file differs", "files differ")
        yield f"{of} compared with the disk: {differ}."
    if examination.findings:
        yield ""
    for finding in examination.findings:
        yield f"- {_LEVELS[finding.level]}: {finding.text}"


def _sweep(outcome: FaultRunResult) -> Iterator[str]:
    plan, report = outcome.plan, outcome.report
    producers, workers = (
        formats.plural(plan.producers, "producer"),
        formats.plural(plan.workers + 1, "worker"),
    )
    gone = report.counts.get("processes gone", 0)
    yield f"- place: {outcome.place}, gone again"
    yield f"- faults: for {_seconds_text(plan.seconds)}, seed {plan.seed}"
    yield f"- leases: {plan.lease:g} s"
    yield f"- processes: {producers} and {workers} at a time, one of which nobody harmed; {gone:,} in all"
    yield f"- took: {_seconds_text(outcome.seconds)}, until everything had come to its end"
    yield ""
    yield (
        "Every process wrote down its calls before it made them, and the answers. In the end that was "
        "compared with what is stored."
    )
    yield ""
    if report.faults:
        yield from _table("fault", sorted(report.faults.items(), key=lambda item: (-item[1], item[0])))
    else:
        yield "No fault was injected: the time was too short."
    yield ""
    counted = [
        (f"{'- ' if ' ' in name else ''}{title}", report.counts[name])
        for name, title in _COUNT_LABELS.items()
        if name in report.counts
    ]
    yield from _table("looked at", counted)


def _table(title: str, rows: Sequence[tuple[str, int]]) -> Iterator[str]:
    """Padded, so that it is a table without being rendered."""
    left = max(len(title), *(len(name) for name, _ in rows))
    numbers = [f"{number:,}" for _, number in rows]
    right = max(6, *(len(number) for number in numbers))
    yield f"| {title:{left}} | {'number':>{right}} |"
    yield f"|{'-' * (left + 2)}|{'-' * (right + 1)}:|"
    for (name, _), number in zip(rows, numbers, strict=True):
        yield f"| {name:{left}} | {number:>{right}} |"


def _promises(outcome: FaultRunResult) -> Iterator[str]:
    for promise in promise_results(outcome):
        yield f"- {_VERDICTS[promise.verdict]}: {promise.text.removesuffix('.')} ({_examined(promise)})."
        for finding in promise.findings:
            yield f"  - {finding}"
        if promise.left_out:
            yield f"  - and {promise.left_out:,} more of this kind"


def _examined(promise: PromiseResult) -> str:
    if promise.examines is None:
        return promise.name
    return f"{promise.name}: {promise.examined:,} {_COUNT_LABELS[promise.examines]}"


def _what_to_do(diagnosis: Diagnosis, outcome: FaultRunResult) -> Iterator[str]:
    yield (
        f"**This must not happen.** Please report it: open an issue of Tidewheel with this report and the "
        f"histories, which are kept in {diagnosis.histories}: what each process of the sweep did and "
        "logged, with no job and no password of yours. "
        f"`tidewheel doctor --verify --seed {outcome.plan.seed} --keep DIRECTORY` tries the same faults "
        "again and keeps the histories in a place of your choice."
    )


def _recovery(outcome: FaultRunResult) -> Iterator[str]:
    recovery = outcome.report.recovery
    worst = recovery.worst_after_lease
    if not recovery.orphans:
        yield "Every lease was ended by its worker, so recovery was not tried; --seconds 60 or more tries it."
        return
    left = formats.plural(recovery.orphans, "lease was", "leases were")
    left += " ended by nobody but time: their workers had died, stood still or lost the store."
    if worst is None:
        yield f"{left} Of none it is known when it ended: calls that may have lengthened it were lost."
        return
    if recovery.timed < recovery.orphans:
        left += f" Of {recovery.timed:,} it is known for certain when they ended."
    when = f"{formats.latency(worst)} after" if worst else "no later than"
    said = f"{left} The slowest job was found again {when} the end of its lease;"
    said += f" promised is {MAX_RECOVERY_SECONDS:g} s."
    if worst > MAX_RECOVERY_SECONDS and outcome.promises_kept:
        said += " Nobody who asked for work was turned away meanwhile: workers, or the machine, were busy."
    yield said


def _seconds_text(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else formats.duration(seconds)


MAX_LINE_WIDTH: Final = 100
"""Prose in longer lines is hard to read, whatever the terminal's width."""
_STYLES: Final = (
    (("# Kept", "# Well"), "bold green"),
    (("# ", "- BROKEN", "- WRONG", "**"), "bold red"),
    (("- in doubt", "- not tried"), "yellow"),
    (("## ",), "bold"),
)


def print_report(lines: Sequence[str]) -> None:
    """As it is in a pipe."""
    if not is_terminal():
        click.echo("\n".join(lines))
        return
    from rich.text import Text

    terminal = console()
    width = min(terminal.width, MAX_LINE_WIDTH)
    rows = 0
    for line in lines:
        text = _wrapped(line, width)
        rows += text.count("\n") + 1
        terminal.print(Text(text, style=_style(line)))
    if rows >= terminal.height:  # the verdict has scrolled away, and is what was asked for
        terminal.print(Text(f"\n{lines[0].removeprefix('# ')}", style=_style(lines[0])))


def _style(line: str) -> str:
    return next((style for beginnings, style in _STYLES if line.startswith(beginnings)), "")


def _wrapped(line: str, width: int) -> str:
    if line.startswith("|") or len(line) <= width:
        return line
    item = line.lstrip(" ")
    indent = len(line) - len(item) + (2 if item.startswith("- ") else 0)
    return textwrap.fill(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )
