"""``tidewheel jobs show``: everything there is to know about one job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.jobs import job_json
from tidewheel.cli.jobs.job_list import attempts_text
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import STATE_STYLES, dump_json, json_option, print_json
from tidewheel.client.job_handle import Job
from tidewheel.core import headers
from tidewheel.core.clock import MICROSECONDS
from tidewheel.core.model import BodyFormat, Dependents, Relative
from tidewheel.core.text_format import printable

LABEL_WIDTH = 13
"""Width of the column of names."""
MAX_DEPENDENTS = 50
"""Jobs that run after it which are told one by one."""
MAX_OUTPUT_LENGTH = 100
"""Most characters of a step's output; ``--json`` has all of it."""


@click.command
@click.argument("job_id", metavar="ID", type=click.UUID)
@json_option
@target_options
def show(target: Target, job_id: UUID, as_json: bool) -> None:
    """Show one job, with all that is known of it.

    That is its course, its errors, the jobs it runs after and those that run after it, its steps, payload,
    result and checkpoint.
    """

    async def look(app: Tidewheel) -> tuple[Job[Any], Dependents, int]:
        job: Job[Any] = await app.get(job_id)
        return job, await job.dependents(MAX_DEPENDENTS), app.clock.now()

    job, dependents, now = target.run(look)
    if as_json:
        print_json({**job_json.job_detail_json(job), "dependents": job_json.dependents_json(dependents)})
        return
    state = str(job.record.shown_state(now))
    click.echo(
        click.style(str(job.id), bold=True) + "  " + click.style(state, fg=_color(STATE_STYLES.get(state)))
    )
    for name, value in _facts(job):
        click.echo(f"{name:{LABEL_WIDTH}}{printable(value)}")
    _heading("course")
    for at, what in _timeline_lines(job):
        click.echo(f"{formats.iso_time(at):34}{formats.relative_time(at, now):>8}  {printable(what)}")
    if job.attempts:
        _heading("errors")
        for attempt in job.attempts:
            error = attempt.error
            by = f", {printable(attempt.worker)}" if attempt.worker else ""
            said = _printable_lines(f"{error.code}: {error.message}")
            click.echo(f"attempt {attempt.attempt}{by}: " + click.style(said, fg="red"))
            if error.details:
                click.echo(_indented(dump_json(dict(error.details))))
            if error.traceback:
                click.echo(click.style(_indented(_printable_lines(error.traceback.rstrip())), dim=True))
    for name, relatives in (("after", job.after), ("dependents", dependents.jobs)):
        if relatives:
            _heading(name + (", however they end" if name == "after" and job.after_any else ""))
            click.echo("\n".join(_relative_lines(relatives)))
    if (more := dependents.total.total - len(dependents.jobs)) > 0:
        click.echo(f"and {formats.job_count(more)} more" + ("" if dependents.total.exact else ", at least"))
    if job.steps:
        _heading("steps")
        click.echo("\n".join(_step_lines(job)))
    for name, value in _bodies(job):
        _heading(name)
        click.echo(value)


def _facts(job: Job[Any]) -> Iterator[tuple[str, str]]:
    yield "task", job.task or "- (enqueued by a bare topic)"
    yield "topic", job.topic
    yield "attempts", attempts_text(job) if job.max_attempts is not None else f"{job.attempt} (unlimited)"
    yield "priority", str(job.priority)
    yield "timeout", "none" if job.timeout is None else formats.duration(job.timeout)
    yield "tenant", job.tenant
    for name, value in (
        ("key", job.key),
        ("correlation", job.correlation_id),
        ("user", job.user_id),
        ("service", job.service_id),
        ("limit key", job.limit_key),
        ("worker", job.worker),
    ):
        if value is not None:
            yield name, value
    entries = headers.read_headers(job.record.headers)
    if (schedule := entries.get(headers.SCHEDULE_HEADER)) is not None:
        moment = headers.fire_time(entries)
        yield "schedule", schedule if moment is None else f"{schedule}, for {moment.isoformat()}"
    yield "number", str(job.number)
    if job.record.fence:
        yield "fence", str(job.record.fence)
    progress = job.progress
    if progress is not None:
        stage = f"{progress.stage}: " if progress.stage else ""
        yield "progress", f"{progress.percent:g} %  {stage}{progress.message or ''}".rstrip()
    if job.error_summary is not None and not job.attempts:
        yield "reason", job.error_summary  # it ended before any attempt
    if job.cancel_requested:
        yield "cancel", "requested; its worker has been asked to stop"
    if job.record.blocked:
        yield "blocked by", formats.job_count(job.record.blocked)


def _timeline_lines(job: Job[Any]) -> list[tuple[int, str]]:
    """What happened when, oldest first."""
    record = job.record
    events: list[tuple[int, str]] = [(record.created_at, "enqueued")]
    for kept in record.attempts:
        if kept.started_at is not None and kept.started_at != record.started_at:
            events.append((kept.started_at, f"attempt {kept.attempt} started"))
        ran = (
            f" after {formats.duration((kept.ended_at - kept.started_at) / MICROSECONDS)}"
            if kept.started_at is not None
            else ""
        )
        events.append((kept.ended_at, f"attempt {kept.attempt} errored{ran}: {kept.error.code}"))
    if record.claimed_at is not None:
        events.append((record.claimed_at, f"claimed by {record.worker or 'a worker'}"))
    if record.started_at is not None:
        events.append((record.started_at, f"attempt {record.attempt} started"))
    if record.finished_at is not None:
        events.append((record.finished_at, str(record.state)))
    else:
        if record.leased_until is not None:
            events.append((record.leased_until, "lease ends, unless extended"))
        if record.run_at != record.created_at and record.leased_until is None:
            events.append((record.run_at, "due"))
    return sorted(events, key=lambda event: event[0])


def _relative_lines(relatives: Iterable[Relative]) -> Iterator[str]:
    for one in relatives:
        state = "deleted" if one.state is None else str(one.state)
        style = click.style(f"{state:10}", fg=_color(STATE_STYLES.get(state)))
        yield f"{one.job_id}  {style}{'  waited for' if one.waits else ''}".rstrip()


def _step_lines(job: Job[Any]) -> Iterator[str]:
    """A line for each, with as much of its output as fits."""
    width = max(len(step.name) for step in job.steps)
    for step in job.steps:
        output = dump_json(step.output, indent=None)
        shown = (
            output
            if len(output) <= MAX_OUTPUT_LENGTH
            else f"{output[:MAX_OUTPUT_LENGTH]}… ({len(output):,} characters)"
        )
        ran = f"{formats.duration(step.seconds):>7}  attempt {step.attempt}"
        yield f"{step.name:{width}}  {ran}  {shown}"


def _bodies(job: Job[Any]) -> Iterator[tuple[str, str]]:
    as_bytes = job.record.format is BodyFormat.BYTES
    yield (
        ("payload (bytes, base64)" if as_bytes else "payload"),
        (job_json.payload_json(job) if as_bytes else dump_json(job.payload)),
    )
    if job.record.result is not None:
        yield "result", dump_json(job_json.result_json(job))
    if job.record.checkpoint is not None:
        yield "checkpoint", dump_json(job.checkpoint)


def _heading(name: str) -> None:
    click.echo()
    click.secho(name, bold=True)


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.splitlines()))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def _color(style: str | None) -> str | None:
    return None if style is None else style.replace("bright_black", "white")
