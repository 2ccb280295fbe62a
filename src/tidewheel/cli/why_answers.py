"""Print one answer of ``tidewheel why``: its sentence, a table of figures, the next steps.

On a terminal, sentences wrap at word boundaries. In a pipe, each sentence is one line. Commands to copy are
never wrapped.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from tidewheel.admin.reports.answers import (
    Attention,
    Duplicates,
    FailedJobs,
    Finding,
    FindingKind,
    JobDurations,
    LastHour,
    Outstanding,
    OutstandingLane,
    Severity,
    StuckJobs,
    StuckKind,
)
from tidewheel.admin.reports.questions import QUESTION_TEXTS
from tidewheel.admin.reports.stuck_jobs import lane_name
from tidewheel.cli import formats
from tidewheel.cli.stats import spark_bars
from tidewheel.cli.terminal import Cell, Column, console, is_terminal, print_table, supports_unicode
from tidewheel.core.clock import MICROSECONDS, to_microseconds
from tidewheel.core.text_format import printable

MAX_LINE_WIDTH: Final = 100
"""Prose in longer lines is hard to read, whatever the terminal's width."""
COMMAND_INDENT: Final = 4
"""Of a command on a line of its own: the less, the more of them fit."""
FINDING_INDENT: Final = 10
"""Of what is said of a finding, right of how bad it is."""
_COMMAND: Final = re.compile(
    r"""tidewheel[ ](?:jobs|topics)[ ][a-z-]+(?:[ ](?:--[a-z-]+|'[^']*'(?:"'"'[^']*')*|[^\s;']+))*""",
    re.VERBOSE,
)
"""As remedies have them: up to a semicolon or the end, with arguments as ``shlex.quote`` writes them."""
SEVERITY_COLOURS: Final = {Severity.CRITICAL: "red", Severity.WARNING: "yellow", Severity.INFO: "blue"}


def print_sentence(
    text: str, *, label: str = "", indent: int = 0, fg: str | None = None, bold: bool = False
) -> int:
    """A sentence below its own beginning, with a label before it in the style given; the rows it took."""
    text = printable(text)
    if is_terminal():
        width = min(console().width, MAX_LINE_WIDTH) - 1
        # A command is copied whole or not at all: nothing is broken but at spaces.
        text = textwrap.fill(
            text,
            max(20, width),
            initial_indent=" " * max(indent, len(label)),
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )[len(label) :]
    elif label:
        text = f"{'' if label.endswith(' ') else ' '}{text}"
    click.echo(click.style(label, fg=fg, bold=bold) + text)
    return text.count("\n") + 1


def print_command(command: str, what_for: str) -> None:
    """A command to copy: on a line of its own, never wrapped by us."""
    click.echo(f"  {click.style(printable(what_for) + ':', dim=True)}")
    click.echo(f"{' ' * COMMAND_INDENT}{printable(command)}")


def print_finding(finding: Finding, *, options: str = "", brief: bool = False) -> int:
    """What is wrong, then what to do, and which jobs it is about; how many rows that took.

    ``options``: what the commands in it have to be told, too. ``brief``: no more than what to do first.
    """
    colour = SEVERITY_COLOURS[finding.severity]
    rows = print_sentence(
        finding.title, label=f"{finding.severity.upper():9} ", indent=FINDING_INDENT, fg=colour, bold=True
    )
    if not brief:
        rows += print_sentence(finding.explanation, label=" " * FINDING_INDENT, indent=FINDING_INDENT)
    rows += _print_remedy(finding.remedy, options, brief=brief)
    if not brief and finding.where is not None and shlex.quote(finding.where) not in finding.remedy:
        rows += _print_command_line(
            f"tidewheel jobs list --where {shlex.quote(finding.where)}{options}", "see: "
        )
    return rows


def _print_remedy(remedy: str, options: str, *, brief: bool) -> int:
    """A command in it has a line of its own, and is told which store it is about."""
    command = _COMMAND.search(remedy)
    if command is None:
        first = remedy.partition("; ")[0].partition(". ")[0] if brief else remedy
        return print_sentence(first, label=f"{'do: ':>{FINDING_INDENT}}", indent=FINDING_INDENT, bold=True)
    whole = command[0] + (options if " --where " in command[0] else without_tenant(options))
    before, after = remedy[: command.start()].rstrip(), remedy[command.end() :].lstrip("; ")
    if before:
        rows = print_sentence(
            before, label=f"{'do: ':>{FINDING_INDENT}}", indent=FINDING_INDENT, bold=True
        ) + _print_command_line(whole)
    else:
        rows = _print_command_line(whole, "do: ")
    if after and not brief:
        rows += print_sentence(
            f"{after[0].upper()}{after[1:]}", label=" " * FINDING_INDENT, indent=FINDING_INDENT
        )
    return rows


def _print_command_line(command: str, label: str = "") -> int:
    """A command is copied: not wrapped by us, and nothing before it but its label."""
    text, indent = printable(command), FINDING_INDENT if label else COMMAND_INDENT
    click.echo(click.style(f"{label:>{indent}}", bold=True) + text)
    return -(-(indent + len(text)) // console().width) if is_terminal() else 1


def without_tenant(options: str) -> str:
    """An id and a topic need none."""
    return options.partition(" --tenant ")[0]


ATTENTION: Final = "attention"
MAX_TABLE_ROWS: Final = 20
"""Of a table on a terminal; in a pipe it is complete, and so is --json."""
MAX_COMMANDS: Final = 3
"""Groups of failures that commands are written out for."""
HOUR_BARS: Final = 15
MINUTE: Final = 60 * MICROSECONDS
TREND_CHARACTERS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class QuestionAnswers:
    """The answers by name, and what is needed to show them."""

    answers: Mapping[str, Any]
    findings: tuple[Finding, ...]
    now: int
    options: str
    """What every command that is proposed has to be told, too."""


def print_answer(name: str, found: QuestionAnswers) -> None:
    """Everything there is to say about one question."""
    answer = found.answers[name]
    click.secho(QUESTION_TEXTS.get(name, "What needs attention?"), bold=True)
    print_sentence(answer.answer)
    _PRINTERS[name](answer, found)


# -- what is outstanding ------------------------------------------------------------------------------------


def _outstanding(answer: Outstanding, found: QuestionAnswers) -> None:
    columns = [
        Column("task and topic"),
        *_number_columns("due", "delayed", "running", "done/min", "empty in"),
    ]
    columns += [Column("")]
    rows = [
        [
            Cell(lane_name(lane.topic, lane.task)),
            _number_cell(lane.due, "yellow"),
            _number_cell(lane.pending - lane.due, "blue"),
            _number_cell(lane.running, "cyan"),
            Cell("-" if lane.completed_per_minute is None else f"{lane.completed_per_minute:,.1f}"),
            Cell(_drain_time(lane)),
            Cell("paused" if lane.paused else "", style="yellow"),
        ]
        for lane in answer.lanes
    ]
    _print_table(columns, rows)
    kinds = (FindingKind.NO_WORKER, FindingKind.UNKNOWN_TASK, FindingKind.PAUSED, FindingKind.LIMITED)
    _print_next_steps(found, (*kinds, FindingKind.BACKLOG))


def _drain_time(lane: OutstandingLane) -> str:
    """At the pace of the last ten minutes, should nothing come in."""
    if not lane.due or not lane.completed_per_minute:
        return "-"
    return formats.duration(lane.due / lane.completed_per_minute * 60)


# -- what failed --------------------------------------------------------------------------------------------


def _failed(answer: FailedJobs, found: QuestionAnswers) -> None:
    columns = [
        *_number_columns("jobs", "last"),
        Column("last hour" if is_terminal() else "trend", shrink_first=True),
    ]
    columns += [Column("task and topic", shrink_first=True), Column("error")]
    rows = [
        [
            _number_cell(group.jobs, "red"),
            Cell(
                formats.relative_time(to_microseconds(group.last_failed_at), found.now),
                plain_text=group.last_failed_at.isoformat(),
            ),
            Cell(_trend(group.trend), plain_text=",".join(map(str, group.trend))),
            Cell(lane_name(group.topic, group.task)),
            Cell(group.error),
        ]
        for group in answer.groups
    ]
    _print_table(columns, rows)
    if not answer.groups:
        return
    click.echo()
    click.secho("What to do next", bold=True)
    for index, group in enumerate(answer.groups[:MAX_COMMANDS], 1):
        filter_ = shlex.quote(group.where)
        print_sentence(
            f"{formats.job_count(group.jobs)} of {lane_name(group.topic, group.task)}: {group.error}",
            indent=2,
        )
        if index == 1:
            show = f"tidewheel jobs show {group.newest}{without_tenant(found.options)}"
            print_command(show, "the newest, with its traceback")
        print_command(f"tidewheel jobs list --where {filter_}{found.options}", "these jobs")
        print_command(
            f"tidewheel jobs requeue --where {filter_}{found.options}", "run them again, once it is put right"
        )
    rest = answer.errors - MAX_COMMANDS
    if rest > 0:
        print_sentence(
            f"{formats.plural(rest, 'more error')}: each has its filter in tidewheel why failed --json",
            indent=2,
        )


def _trend(numbers: Sequence[int]) -> str:
    """As bars, or as numbers where bars cannot be shown."""
    if not supports_unicode():
        return " ".join(map(str, numbers))
    top = max([*numbers, 1])
    return "".join(
        TREND_CHARACTERS[(number * len(TREND_CHARACTERS) - 1) // top] if number else "·" for number in numbers
    )


# -- what is stuck ------------------------------------------------------------------------------------------


def _stuck(answer: StuckJobs, found: QuestionAnswers) -> None:
    columns = [Column("why", shrink_first=True), *_number_columns("jobs", "for"), Column("what")]
    rows = [
        [
            Cell(thing.kind.replace("_", " "), plain_text=thing.kind),
            _number_cell(thing.jobs, "red"),
            Cell(
                "-"
                if thing.since is None
                else formats.relative_time(to_microseconds(thing.since), found.now),
                plain_text="" if thing.since is None else thing.since.isoformat(),
            ),
            Cell(thing.explanation),
        ]
        for thing in answer.things
    ]
    _print_table(columns, rows)
    _print_next_steps(found, [FindingKind(kind) for kind in StuckKind])


# -- how long jobs take -------------------------------------------------------------------------------------


def _durations(answer: JobDurations, found: QuestionAnswers) -> None:
    columns = [Column("task and topic")]
    columns += _number_columns("jobs", "run p50", "p95", "p99", "wait p50", "p95", "p99")
    rows = [
        [
            Cell(lane_name(lane.topic, lane.task)),
            _number_cell(lane.run_time.count, ""),
            *(
                Cell(formats.duration(seconds), plain_text="" if seconds is None else f"{seconds:.6f}")
                for times in (lane.run_time, lane.wait_time)
                for seconds in (times.p50, times.p95, times.p99)
            ),
        ]
        for lane in answer.tasks
    ]
    _print_table(columns, rows)
    _print_next_steps(
        found, (FindingKind.SLOW, FindingKind.TIMED_OUT, FindingKind.WORKER_LAGGING, FindingKind.BACKLOG)
    )


# -- duplicates ---------------------------------------------------------------------------------------------


def _duplicates(answer: Duplicates, found: QuestionAnswers) -> None:
    columns = [
        *_number_columns("jobs"),
        Column("same"),
        Column("task and topic"),
        Column("newest", keep_readable=True),
    ]
    groups = [*answer.same_payload, *answer.same_key]
    rows = [
        [
            _number_cell(group.jobs, "yellow"),
            Cell("payload" if group.key is None else f"key {group.key}"),
            Cell(lane_name(group.topic, group.task)),
            Cell(str(group.newest)),
        ]
        for group in groups
    ]
    _print_table(columns, rows)
    if not groups:
        return
    click.echo()
    click.secho("What to do next", bold=True)
    first = groups[0]
    print_command(f"tidewheel jobs show {first.newest}{without_tenant(found.options)}", "what they repeat")
    if answer.same_payload:
        print_sentence(
            "Jobs that may be there once only are enqueued with key=BY_PAYLOAD, or a key of their own.",
            indent=2,
        )
    if answer.same_key:
        print_sentence(
            'A key that is used again and again is one with until="finished"; that may be as you want it.',
            indent=2,
        )


# -- the last hour ------------------------------------------------------------------------------------------


def _last_hour(answer: LastHour, found: QuestionAnswers) -> None:
    columns = [Column("task and topic"), *_number_columns("in", "done", "failed", "retried", "avg run")]
    drawn = is_terminal() and supports_unicode()
    columns += [Column("done, by time", shrink_first=True)] if drawn else []
    rows = []
    for lane in answer.lanes:
        cells = [
            Cell(lane_name(lane.topic, lane.task)),
            _number_cell(lane.enqueued, ""),
            _number_cell(lane.completed, "green"),
            _number_cell(lane.failed, "red"),
            _number_cell(lane.retried, "magenta"),
            Cell(
                formats.duration(lane.average_run_seconds),
                plain_text="" if lane.average_run_seconds is None else f"{lane.average_run_seconds:.6f}",
            ),
        ]
        if drawn:
            series = [(minute.minute, minute.completed) for minute in lane.series]
            # The right end is now, also for a lane in which nothing has happened since.
            cells.append(
                Cell(
                    spark_bars(
                        [*series, (found.now // (60 * MICROSECONDS) * 60 * MICROSECONDS, 0)], 3600, HOUR_BARS
                    )
                )
            )
        rows.append(cells)
    _print_table(columns, rows)
    _print_next_steps(found, (FindingKind.FAILING_TASK,))


# -- what needs attention -----------------------------------------------------------------------------------


def _attention(answer: Attention, found: QuestionAnswers) -> None:
    for finding in answer.findings:
        click.echo()
        print_finding(finding, options=found.options)
    if answer.more:
        print_sentence(f"and {formats.plural(answer.more, 'more thing', 'more things')}", indent=2)


# -- in common ----------------------------------------------------------------------------------------------


def _print_next_steps(found: QuestionAnswers, kinds: Collection[FindingKind]) -> None:
    """What to do about the findings that belong to this question."""
    about = [finding for finding in found.findings if finding.kind in kinds]
    if about:
        click.echo()
        click.secho("What to do next", bold=True)
    for finding in about[:MAX_TABLE_ROWS]:
        print_finding(finding, options=found.options)


def _print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    if not rows:
        return
    click.echo()
    shown = rows[:MAX_TABLE_ROWS] if is_terminal() else rows
    print_table(columns, shown, empty="")
    if len(shown) < len(rows):
        click.secho(
            f"and {formats.plural(len(rows) - len(shown), 'more row')}; --json has them all", dim=True
        )


def _number_columns(*titles: str) -> list[Column]:
    return [Column(title, "right", shrink_first=True) for title in titles]


def _number_cell(number: int, style: str) -> Cell:
    return Cell(f"{number:,}", plain_text=str(number), style=style if number else "bright_black")


_PRINTERS: Final[Mapping[str, Callable[[Any, QuestionAnswers], None]]] = {
    "outstanding": _outstanding,
    "failed": _failed,
    "stuck": _stuck,
    "durations": _durations,
    "duplicates": _duplicates,
    "last_hour": _last_hour,
    ATTENTION: _attention,
}
