"""``tidewheel schedules``: jobs that are made again and again, at their times."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any, cast

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.completion import task_and_topic_names
from tidewheel.cli.enqueue import read_payload
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import (
    Cell,
    Column,
    dump_json,
    examples,
    json_option,
    print_json,
    print_table,
)
from tidewheel.core.clock import to_datetime, to_microseconds
from tidewheel.core.cron import Cron, Every, Timing
from tidewheel.core.text_format import format_duration, printable
from tidewheel.schedules.schedule import Schedule
from tidewheel.tasks.options import EnqueueOptions


@click.group(invoke_without_command=True)
@json_option
@target_options
@click.pass_context
def schedules(ctx: click.Context, target: Target, as_json: bool) -> None:
    """List, make, pause and run schedules. Without a command: list them."""
    if ctx.invoked_subcommand is None:
        _list(target, as_json=as_json)


@schedules.command("list")
@json_option
@target_options
def list_schedules(target: Target, as_json: bool) -> None:
    """List every schedule, with when it runs next and when it ran last.

    Times are those of this machine's zone.
    """
    _list(target, as_json=as_json)


@schedules.command
@click.argument("name", metavar="NAME")
@json_option
@target_options
def show(target: Target, name: str, as_json: bool) -> None:
    """Show one schedule: its work, its next five runs, and how it went."""
    found, now = target.run(lambda app: _with_now(app, app.schedules.get(name)))
    if as_json:
        print_json(schedule_json(found))
        return
    for label, text in _lines(found, now):
        click.echo(f"{label:<12}{printable(text)}".rstrip())


@schedules.command(
    epilog=examples(
        """tidewheel schedules create nightly cleanup --cron "0 3 * * *" --zone Europe/Berlin""",
        """tidewheel schedules create poll fetch '{"source": "a"}' --every 30s --missed skip""",
    )
)
@click.argument("name", metavar="NAME")
@click.argument("task_or_topic", metavar="TASK", shell_complete=task_and_topic_names)
@click.argument("payload", metavar="[JSON]", required=False)
@click.option(
    "--cron", metavar="EXPRESSION", help="Minute, hour, day of month, month, day of week: '0 3 * * *'."
)
@click.option("--zone", metavar="ZONE", help="The time zone of --cron, by its IANA name. Default: UTC.")
@click.option(
    "--every", type=formats.DurationType(), metavar="DURATION", help="At every multiple of this: 30s, 5m, 6h."
)
@click.option(
    "--missed",
    type=click.Choice(["skip", "one", "all"]),
    default="one",
    show_default=True,
    help="What becomes of firings while no worker runs: none, one job for all of them, or a job for each.",
)
@click.option(
    "--most", type=int, default=100, show_default=True, metavar="NUMBER", help="Most jobs of --missed all."
)
@click.option("--replace", is_flag=True, help="Put it in the place of the schedule of that name.")
@click.option("--priority", type=int, metavar="NUMBER", help="Higher runs first; the default is 0.")
@click.option("--key", metavar="KEY", help="Idempotency key of its jobs: while one has it, no other is made.")
@click.option(
    "--until",
    type=click.Choice(["pruned", "finished"]),
    help="How long the key keeps others out: as long as the job is kept (default), or until it is done.",
)
@click.option(
    "--max-attempts",
    type=formats.NumberOrNoneType(),
    metavar="NUMBER",
    help="Attempts each job gets before it fails; none is unlimited.",
)
@click.option(
    "--timeout",
    type=formats.DurationType(none=True),
    metavar="DURATION",
    help="How long one attempt may run; none is no timeout.",
)
@click.option(
    "--expires",
    type=formats.DurationType(),
    metavar="DURATION",
    help="Cancel a job when it has not started after this long.",
)
@click.option(
    "--limit-key",
    metavar="KEY",
    help="Which jobs of the topic its jobs are limited together with, where there are limits of keys.",
)
@click.option("--tenant", metavar="NAME", help="Whom its jobs belong to.")
@json_option
@target_options
def create(
    target: Target,
    name: str,
    task_or_topic: str,
    payload: str | None,
    as_json: bool,
    replace: bool,
    **given: Any,
) -> None:
    """Make a schedule of a task's jobs, or of jobs for whoever takes them from a topic.

    JSON is the payload of each job, {} when left out; - reads it from stdin. With --app it is checked
    against the task.
    """
    context = click.get_current_context()
    when = _when(given, context)
    body = read_payload(payload, context)
    options = cast(
        "EnqueueOptions",  # the app checks every value
        {option: formats.option_value(value) for option, value in given.items() if value is not None},
    )

    async def make(app: Tidewheel) -> Schedule:
        return await app.schedules.create(name, task_or_topic, when, body, replace=replace, **options)

    made, now = target.run(lambda app: _with_now(app, make(app)), create=True)
    if as_json:
        print_json(schedule_json(made))
    else:
        click.echo(f"made {made.name}: {_next_words(made, now)}")


def _when(given: dict[str, Any], context: click.Context) -> Timing:
    cron, zone, every = given.pop("cron"), given.pop("zone"), given.pop("every")
    missed, most = given.pop("missed"), given.pop("most")
    if (cron is None) == (every is None):
        raise click.UsageError("give --cron or --every, and not both", context)
    if every is not None:
        if zone is not None:
            raise click.UsageError("--zone is for --cron; --every is the same everywhere", context)
        return Every(every, missed=missed, most=most)
    return Cron(cron, zone=zone or "UTC", missed=missed, most=most)


@schedules.command
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@target_options
def pause(target: Target, names: tuple[str, ...]) -> None:
    """Let these schedules make no jobs until they are resumed, whatever restarts meanwhile."""
    _each(target, names, "paused", lambda app, name: app.schedules.pause(name))


@schedules.command
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@target_options
def resume(target: Target, names: tuple[str, ...]) -> None:
    """Let these schedules make jobs again, from now on. What passed meanwhile is not made up for."""
    _each(target, names, "resumed", lambda app, name: app.schedules.resume(name))


@schedules.command
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@target_options
def delete(target: Target, names: tuple[str, ...]) -> None:
    """Forget these schedules. Their jobs stay.

    One that code declares comes back with the next worker that starts: take it out of the code, or pause it.
    """
    _each(target, names, "deleted", lambda app, name: app.schedules.delete(name))


@schedules.command
@click.argument("name", metavar="NAME")
@json_option
@target_options
def run(target: Target, name: str, as_json: bool) -> None:
    """Make a job of a schedule now, also while it is paused; prints the job's id."""

    async def act(app: Tidewheel) -> tuple[str, bool]:
        job = await app.schedules.run(name)
        return str(job.id), job.duplicate

    job_id, duplicate = target.run(act)
    if as_json:
        print_json({"id": job_id, "duplicate": duplicate})
    else:
        click.echo(f"{job_id}{' duplicate' if duplicate else ''}")


def _each(
    target: Target, names: tuple[str, ...], done: str, act: Callable[[Tidewheel, str], Awaitable[object]]
) -> None:
    async def all_of_them(app: Tidewheel) -> None:
        for name in names:
            await act(app, name)
            click.echo(f"{done} {name}")

    target.run(all_of_them)


async def _with_now(app: Tidewheel, call: Awaitable[Schedule]) -> tuple[Schedule, int]:
    return await call, app.clock.now()


def _list(target: Target, *, as_json: bool) -> None:
    async def look(app: Tidewheel) -> tuple[list[Schedule], int]:
        return await app.schedules.all(), app.clock.now()

    found, now = target.run(look)
    if as_json:
        print_json([schedule_json(one) for one in found])
        return
    columns = [
        Column("name", shrink_first=True),
        *(Column(title) for title in ("for", "when", "next run", "last run", "state")),
    ]
    rows = ([*_cells(one, now)] for one in found)
    print_table(columns, rows, empty="no schedules yet: tidewheel schedules create, or @app.task(schedule=…)")


def _cells(one: Schedule, now: int) -> tuple[Cell, ...]:
    state, style = _state(one)
    upcoming = one.next_runs[0] if one.next_runs else None
    return (
        Cell(one.name),
        Cell(one.task or one.topic),
        Cell(_when_words(one)),
        Cell(_moment_words(upcoming, now), plain_text=_iso(upcoming) or ""),
        Cell(_moment_words(one.last_fired_at, now), plain_text=_iso(one.last_fired_at) or ""),
        Cell(state, style=style),
    )


def _state(one: Schedule) -> tuple[str, str]:
    """What most needs to be known of it."""
    if one.paused:
        return "paused", "yellow"
    if one.trouble is not None:
        return f"in trouble: {one.trouble}", "red"
    if one.undeclared:
        return "not in the code any more", "yellow"
    if one.overdue_since is not None:
        return "overdue: no worker lets it fire", "red"
    return "on", "green"


def _lines(one: Schedule, now: int) -> list[tuple[str, str]]:
    missed = "" if one.when is None else f", missed firings: {one.when.missed}"
    lines = [
        ("name", one.name),
        ("for", f"task {one.task} on topic {one.topic}" if one.task else f"topic {one.topic}"),
        ("when", _when_words(one) + missed),
        ("state", _state(one)[0]),
        ("origin", one.origin.value),
        ("payload", _payload_words(one)),
        ("options", ", ".join(f"{name}={value}" for name, value in one.options.items() if value is not None)),
        ("made", _moment_words(one.created_at, now)),
        ("fired", f"{one.fired:,} times, {one.missed:,} firings made no job"),
        ("last run", _moment_words(one.last_fired_at, now)),
    ]
    if one.last_job_id is not None:
        lines.append(("last job", str(one.last_job_id)))
    if one.trouble is not None:
        lines.append(("trouble", one.trouble))
    label = "next runs"
    for moment in one.next_runs:
        lines.append((label, _moment_words(moment, now)))
        label = ""
    return lines


def _payload_words(one: Schedule) -> str:
    if isinstance(one.payload, bytes):
        return formats.plural(len(one.payload), "byte")
    return dump_json(one.payload, indent=None)


def _when_words(one: Schedule) -> str:
    if isinstance(one.when, Every):
        return f"every {format_duration(cast('float', one.when.seconds))}"
    return "cannot be read here" if one.when is None else str(one.when)


def _next_words(one: Schedule, now: int) -> str:
    if not one.next_runs:
        return "paused"
    return f"next run {_moment_words(one.next_runs[0], now)}"


def _moment_words(moment: datetime | None, now: int) -> str:
    """A time of this machine's zone, and how far away it is."""
    if moment is None:
        return "-"
    local = moment.astimezone()
    today = to_datetime(now).astimezone().date()
    day = "" if local.date() == today else local.strftime("%a %Y-%m-%d ")
    return f"{day}{local:%H:%M:%S} ({formats.relative_time(to_microseconds(moment), now)})"


def schedule_json(one: Schedule) -> dict[str, Any]:
    """A schedule for programs."""
    when = one.when
    return {
        "name": one.name,
        "task": one.task,
        "topic": one.topic,
        "payload": None if isinstance(one.payload, bytes) else one.payload,
        "cron": when.expression if isinstance(when, Cron) else None,
        "zone": when.zone if isinstance(when, Cron) else None,
        "every": when.seconds if isinstance(when, Every) else None,
        "missed": None if when is None else when.missed,
        "most": None if when is None else when.most,
        "options": dict(one.options),
        "origin": one.origin.value,
        "paused": one.paused,
        "created_at": _iso(one.created_at),
        "updated_at": _iso(one.updated_at),
        "next_runs": [_iso(moment) for moment in one.next_runs],
        "last_fire_time": _iso(one.last_fire_time),
        "last_fired_at": _iso(one.last_fired_at),
        "last_job_id": None if one.last_job_id is None else str(one.last_job_id),
        "fired_count": one.fired,
        "missed_count": one.missed,
        "trouble": one.trouble,
        "trouble_at": _iso(one.trouble_at),
        "overdue_since": _iso(one.overdue_since),
        "undeclared": one.undeclared,
    }


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
