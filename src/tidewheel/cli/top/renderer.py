"""From what is known to the lines of a screen of any size. No terminal is needed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tidewheel.admin.reports.answers import Severity
from tidewheel.admin.reports.queue_snapshot import QueueSnapshot
from tidewheel.admin.reports.stuck_jobs import lane_name
from tidewheel.cli import formats
from tidewheel.cli.top.state import TopState
from tidewheel.cli.top.styled_text import Line, StyledPiece, align_left, align_right, truncate
from tidewheel.core.clock import (
    MICROSECONDS,
    seconds_to_microseconds,
    to_datetime,
    to_microseconds,
)
from tidewheel.core.model import JobRecord

SPARK_CHARACTERS: Final = "▁▂▃▄▅▆▇█"
MAX_ALARMS: Final = 2
STALE_POLL_SECONDS: Final = 3.0
"""An answer that takes longer is worth a word."""
STALE_DETAILS_SECONDS: Final = 1.5
"""What is so much older than the counts beside it says so."""
MIN_TALL_ROWS: Final = 20
"""From so many rows on there is room for the line of bars and for blank lines."""
MIN_WIDE_COLUMNS: Final = 60
"""From so many columns on there is room for what can wait."""
PROGRESS_BAR_WIDTH: Final = 10
MIN_NAME_WIDTH: Final = 12
MAX_NAME_WIDTH: Final = 40
_ALARM_STYLES: Final = {Severity.CRITICAL: "alarm", Severity.WARNING: "yellow", Severity.INFO: "blue"}


@dataclass(frozen=True, slots=True)
class Canvas:
    """What there is to draw on. ``height`` None: as many lines as it takes, for a pipe."""

    width: int
    height: int | None
    unicode: bool = True


@dataclass(frozen=True, slots=True)
class _Topic:
    name: str
    due: int
    delayed: int
    running: int
    failed: int
    paused: str


def render(state: TopState, canvas: Canvas, *, now: float, clock: datetime | None = None) -> list[Line]:
    """The whole screen, exactly as high as the canvas; ``now`` is monotonic."""
    glance, width = state.glance, canvas.width
    lines = [_title(state, width, clock or datetime.now(UTC))]
    if glance is None:
        lines.append([StyledPiece(state.error or "looking at the store for the first time…", "dim")])
        return _fill_height(lines, state, canvas, now)
    tall = canvas.height is None or canvas.height >= MIN_TALL_ROWS
    lines += [_counts(state, glance, width), _rates(state, glance)]
    if tall and canvas.height is not None and canvas.unicode:
        lines.append(_history(state, width))
    lines += _alarms(state, width)
    topics = [_topic_line(topic, state, width) for topic in _topics(glance)]
    running = [_running_line(job, glance.now, canvas) for job in glance.running]
    failed = list(_failed_lines(state, glance.now, width))
    sections = [
        (_topic_head(width), topics, "no topics yet: the first job makes one"),
        (_running_head(glance, width), running, "no job runs"),
        (_failed_head(state, glance, width), failed, "no job has failed"),
    ]
    wanted = [max(1, len(rows)) for _, rows, _ in sections]
    room = None
    if canvas.height is not None:
        room = canvas.height - len(lines) - 1
        # A head without a row below it says nothing: where there is no room for all, what runs goes first.
        drawn = sorted((0, 2, 1)[: max(0, room // 2)])
        wanted = [wish if place in drawn else 0 for place, wish in enumerate(wanted)]
        room -= len(drawn)
    shares = wanted if room is None else share_rows(room, wanted)
    spaced = room is None or room - sum(shares) >= len(sections)
    for (head, rows, empty), room in zip(sections, shares, strict=True):
        if room < 1:
            continue
        lines += [[], head] if spaced else [head]
        lines += rows[:room] or [[StyledPiece(f"  {empty}", "dim")]]
    return _fill_height(lines, state, canvas, now)


def share_rows(room: int, wanted: Sequence[int]) -> list[int]:
    """Rows for each, as evenly as their wishes allow; what one does not need the others get."""
    shares = [0] * len(wanted)
    while room > 0:
        hungry = [place for place, wish in enumerate(wanted) if shares[place] < wish]
        if not hungry:
            break
        for place in hungry[:room]:
            shares[place] += 1
        room -= len(hungry)
    return shares


def _fill_height(lines: list[Line], state: TopState, canvas: Canvas, now: float) -> list[Line]:
    """With the last line at the bottom."""
    if canvas.height is None:
        return lines
    lines = lines[: max(0, canvas.height - 1)]
    lines += [[]] * (canvas.height - 1 - len(lines))
    return [*lines, _footer(state, canvas, now)]


# -- the lines above ----------------------------------------------------------------------------------------


def _title(state: TopState, width: int, clock: datetime) -> Line:
    name = " tidewheel top "
    time = f" {clock:%H:%M:%S} UTC "
    about = f" {state.url}  {state.store}"
    return [
        StyledPiece(name, "head"),
        align_left(about, max(0, width - len(name) - len(time))),
        StyledPiece(time, "head"),
    ]


def _counts(state: TopState, glance: QueueSnapshot, width: int) -> Line:
    stats = glance.stats
    due = max(0, stats.pending - stats.delayed)
    pieces = [*_figure(due, "due", "yellow"), *_figure(stats.running, "running", "cyan")]
    if width >= MIN_WIDE_COLUMNS:
        pieces += _figure(stats.delayed, "delayed", "blue")
    pieces += _figure(stats.failed, "failed", "red")
    missing = sum(worker.missing for worker in state.workers)
    live = len(state.workers) - missing
    pieces += _figure(live, "worker" if live == 1 else "workers", "green" if live else "alarm", always=True)
    if missing:
        pieces += _figure(missing, "missing", "alarm")
    if stats.oldest_due_at is not None:
        waited = formats.duration(max(0.0, (glance.now - stats.oldest_due_at) / MICROSECONDS))
        pieces += [StyledPiece(" oldest "), StyledPiece(waited, "bold")]
    return pieces


def _figure(number: int, name: str, style: str, *, always: bool = False) -> list[StyledPiece]:
    return [StyledPiece(f" {number:,}", style if number or always else "dim"), StyledPiece(f" {name} ")]


def _rates(state: TopState, glance: QueueSnapshot) -> Line:
    rates, stats = state.rates.overall, glance.stats
    pieces: list[StyledPiece] = []
    for name, shown, style in (
        ("enqueued", "in", "bold"),
        ("completed", "done", "green"),
        ("failed", "failed", "red"),
        ("retried", "retried", "magenta"),
    ):
        rate = rates.get(name)
        pieces += [StyledPiece(f" {shown} "), StyledPiece(f"{_rate(rate)}/s ", style if rate else "dim")]
    if stats.run_time.count:
        pieces += [StyledPiece(" p95: run "), StyledPiece(formats.duration(stats.run_time.p95), "bold")]
        pieces += [StyledPiece(", wait "), StyledPiece(formats.duration(stats.wait_time.p95), "bold")]
    return pieces


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 9.95 or rate == 0 else f"{rate:.1f}"


def _history(state: TopState, width: int) -> Line:
    """Completed a second since this began, the newest at the right end."""
    room = max(0, width - 10)
    samples = list(state.history)[-room:] if room else []
    top = max([*samples, 0.0]) or 1.0
    bars = "".join(
        SPARK_CHARACTERS[min(len(SPARK_CHARACTERS) - 1, int(rate / top * len(SPARK_CHARACTERS)))]
        if rate
        else " "
        for rate in samples
    )
    return [StyledPiece(" done/s "), StyledPiece(bars.rjust(room), "green")]


def _alarms(state: TopState, width: int) -> Iterator[Line]:
    attention = state.attention
    if attention is None:
        return
    found = [finding for finding in attention.findings if finding.severity is not Severity.INFO]
    if not found:
        yield [StyledPiece(f" nothing needs attention{_as_of(state)}", "green")]
        return
    for finding in found[:MAX_ALARMS]:
        title = f" {finding.severity}: {finding.title}"
        more = "" if not finding.jobs else f" ({formats.job_count(finding.jobs)})"
        yield [StyledPiece(truncate(title + more, width), _ALARM_STYLES[finding.severity])]
    more_found = len(found) - MAX_ALARMS + attention.more
    if more_found > 0:
        yield [StyledPiece(f" and {more_found:,} more{_as_of(state)}: tidewheel why", "dim")]
    else:
        yield [StyledPiece(f" what to do{_as_of(state)}: tidewheel why", "dim")]


# -- topics -------------------------------------------------------------------------------------------------


def _topics(glance: QueueSnapshot) -> list[_Topic]:
    due: dict[str, int] = {}
    for lane in glance.lanes:
        due[lane.topic] = due.get(lane.topic, 0) + lane.due
    topics = [
        _Topic(
            topic.topic,
            min(topic.pending, due.get(topic.topic, 0)),
            max(0, topic.pending - due.get(topic.topic, 0)),
            topic.running,
            topic.failed,
            formats.pause_end(topic.paused_until, glance.now),
        )
        for topic in glance.stats.topics
    ]
    # By the size of their numbers, so that rows do not change places with every job.
    topics.sort(key=lambda topic: (-topic.due.bit_length(), -topic.running.bit_length(), topic.name))
    return topics


_TOPIC_COLUMNS: Final = (
    ("DUE", 9),
    ("DELAYED", 9),
    ("RUNNING", 8),
    ("IN/S", 8),
    ("DONE/S", 8),
    ("FAIL/S", 7),
    ("FAILED", 8),
)
_TOPIC_NUMBERS: Final = sum(size for _, size in _TOPIC_COLUMNS)


def _name_width(width: int) -> int:
    return min(MAX_NAME_WIDTH, max(MIN_NAME_WIDTH, width - _TOPIC_NUMBERS))


def _topic_head(width: int) -> Line:
    room = _name_width(width)
    titles = [align_right(title, size, "head") for title, size in _TOPIC_COLUMNS]
    return [
        align_left(" TOPIC", room, "head"),
        *titles,
        align_left("", max(0, width - room - _TOPIC_NUMBERS), "head"),
    ]


def _topic_line(topic: _Topic, state: TopState, width: int) -> Line:
    rates = state.rates.topics.get(topic.name, {})
    sizes = [size for _, size in _TOPIC_COLUMNS]
    cells = (
        (f"{topic.due:,}", "yellow" if topic.due else "dim"),
        (f"{topic.delayed:,}", "blue" if topic.delayed else "dim"),
        (f"{topic.running:,}", "cyan" if topic.running else "dim"),
        *(
            (
                _rate(rates.get(name, 0.0 if state.rates.overall else None)),
                style if rates.get(name) else "dim",
            )
            for name, style in (("enqueued", ""), ("completed", "green"), ("failed", "red"))
        ),
        (f"{topic.failed:,}", "red" if topic.failed else "dim"),
    )
    room = _name_width(width)
    name = align_left(f" {topic.name}" + (f" ({topic.paused})" if topic.paused else ""), room)
    return [
        StyledPiece(name.text, "yellow" if topic.paused else ""),
        *(align_right(text, size, style) for (text, style), size in zip(cells, sizes, strict=True)),
    ]


# -- running jobs -------------------------------------------------------------------------------------------


def _job_width(width: int) -> int:
    return min(MAX_NAME_WIDTH, max(MIN_NAME_WIDTH, width // 3))


def _head(name: str, columns: str, width: int) -> Line:
    room = _job_width(width)
    return [align_left(name, room, "head"), align_left(columns, max(0, width - room), "head")]


def _running_head(glance: QueueSnapshot, width: int) -> Line:
    name = f" RUNNING {glance.stats.running:,}, by age"
    return _head(name, "     FOR  TRY  PROGRESS", width)


def _running_line(job: JobRecord, now: int, canvas: Canvas) -> Line:
    began = job.started_at or job.claimed_at or job.run_at
    seconds = max(0.0, (now - began) / MICROSECONDS)
    tries = f"{job.attempt}/{job.max_attempts}" if job.max_attempts is not None else str(job.attempt)
    ended = job.leased_until is not None and job.leased_until <= now
    pieces = [
        align_left(f" {lane_name(job.topic, job.task)}", _job_width(canvas.width)),
        align_right(formats.duration(seconds), 8, "cyan"),
        align_right(tries, 5, "magenta" if job.attempt > 1 else "dim"),
        StyledPiece("  "),
    ]
    if ended:
        return [*pieces, StyledPiece("its lease is over: its worker is gone", "alarm")]
    if job.cancel_requested:
        pieces.append(StyledPiece("asked to stop ", "yellow"))
    progress = job.progress
    if progress is None:
        where = "on" if job.started_at is not None else "claimed by"
        return [*pieces, StyledPiece(f"{where} {job.worker}" if job.worker else "", "dim")]
    said = ": ".join(part for part in (progress.stage, progress.message) if part)
    return [
        *pieces,
        StyledPiece(_bar(progress.percent, canvas), "cyan"),
        StyledPiece(f" {progress.percent:3.0f} % "),
        StyledPiece(said),
    ]


def _bar(percent: float, canvas: Canvas) -> str:
    done = round(PROGRESS_BAR_WIDTH * min(100.0, max(0.0, percent)) / 100)
    full, empty = ("━", "─") if canvas.unicode else ("#", ".")
    return full * done + empty * (PROGRESS_BAR_WIDTH - done)


# -- failures -----------------------------------------------------------------------------------------------


def _failed_head(state: TopState, glance: QueueSnapshot, width: int) -> Line:
    """Of what stands below it: the counts above may be of a later moment."""
    found = state.failed
    if found is None:
        return _head(f" FAILED {glance.stats.failed:,}", "    JOBS LAST  ERROR", width)
    groups = f", {formats.plural(found.errors, 'error')}" if found.errors else ""
    more = "" if found.complete else "+"
    return _head(f" FAILED {found.jobs:,}{more}{groups}", f"    JOBS LAST  ERROR{_as_of(state)}", width)


def _as_of(state: TopState) -> str:
    """That what is shown is older than the counts, where it is."""
    age = state.details_age
    if state.glance is None or age < STALE_DETAILS_SECONDS:
        return ""
    return f", as of {to_datetime(state.glance.now - seconds_to_microseconds(age)):%H:%M:%S}"


def _failed_lines(state: TopState, now: int, width: int) -> Iterator[Line]:
    groups = [] if state.failed is None else list(state.failed.groups)
    groups.sort(key=lambda group: group.last_failed_at, reverse=True)
    for group in groups:
        failed_at = to_microseconds(group.last_failed_at)
        fresh = now - failed_at < 60 * MICROSECONDS
        yield [
            align_left(f" {lane_name(group.topic, group.task)}", _job_width(width)),
            align_right(f"{group.jobs:,}", 8, "red"),
            align_right(formats.relative_time(min(failed_at, now), now), 5, "alarm" if fresh else ""),
            StyledPiece("  "),
            StyledPiece(group.sample, "red" if fresh else ""),
        ]


# -- the line below -----------------------------------------------------------------------------------------


def _footer(state: TopState, canvas: Canvas, now: float) -> Line:
    if state.error is not None:
        seen = "" if state.glance is None else f"; figures of {to_datetime(state.glance.now):%H:%M:%S}"
        since = formats.duration(max(0.0, now - state.error_since))
        text = f" q quits   no answer from the store for {since}{seen}: {state.error}"
        return [StyledPiece(truncate(text, canvas.width), "alarm")]
    silent = now - state.polled_at
    if silent > max(STALE_POLL_SECONDS, state.every * 2, state.poll_seconds * 10):
        text = f" q quits   the store has not answered for {formats.duration(silent)}"
        return [StyledPiece(truncate(text, canvas.width), "yellow")]
    took = f"the store answered in {formats.duration(state.poll_seconds)}"
    return [StyledPiece(truncate(f" q quits   every {state.every:g} s   {took}", canvas.width), "dim")]
