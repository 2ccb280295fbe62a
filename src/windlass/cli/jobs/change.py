"""``windlass jobs requeue|cancel|delete``: one job, several, or everything a filter matches."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import click

from windlass.app import Windlass
from windlass.cli import failures, words
from windlass.cli.jobs.filtering import filter_options
from windlass.cli.target import Target, target_options
from windlass.cli.terminal import examples, is_terminal, json_option, print_json, progress_bar
from windlass.errors import JobNotFound, WrongState
from windlass.filters import JobFilters, explain_times
from windlass.model import Count, Shown, State

LOOK_SECONDS: Final = 0.2
"""How often the bar of a bulk action looks how many jobs are left."""


@dataclass(frozen=True, slots=True)
class Verb:
    """Something to do with jobs, and how to say it."""

    name: str
    done: str
    states: tuple[State, ...]
    """Jobs in other states are refused; a filter without a state means these."""
    shown: tuple[Shown, ...]
    """The derived states that are part of those."""
    one: Callable[[Windlass, UUID], Awaitable[Any]]
    all: Callable[[Windlass, JobFilters], Awaitable[int]]


REQUEUE: Final = Verb(
    "requeue",
    "requeued",
    (State.FAILED, State.CANCELLED),
    (),
    lambda app, job_id: app.requeue(job_id),
    lambda app, filters: app.requeue_all(**filters),
)
CANCEL: Final = Verb(
    "cancel",
    "cancelled",
    (State.PENDING, State.RUNNING),
    (Shown.DELAYED, Shown.RETRYING, Shown.BLOCKED, Shown.CLAIMED),
    lambda app, job_id: app.cancel(job_id),
    lambda app, filters: app.cancel_all(**filters),
)
DELETE: Final = Verb(
    "delete",
    "deleted",
    (State.PENDING, State.COMPLETED, State.FAILED, State.CANCELLED),
    (Shown.DELAYED, Shown.RETRYING, Shown.BLOCKED),
    lambda app, job_id: app.delete(job_id),
    lambda app, filters: app.delete_all(**filters),
)


def _verb_options(command: Callable[..., Any]) -> Callable[..., Any]:
    decorated = target_options(command)
    decorated = json_option(decorated)
    decorated = click.option(
        "-y", "--yes", is_flag=True, help="Do not ask before acting on everything the filters match."
    )(decorated)
    decorated = filter_options(decorated)
    return click.argument("job_ids", metavar="[ID]...", nargs=-1, type=click.UUID)(decorated)


@click.command(
    epilog=examples(
        "windlass jobs requeue 0199a8f2-7c11-7abc-8def-0123456789ab",
        "windlass jobs requeue --state failed --topic mail",
        "windlass jobs requeue --where 'error:\"timed out\" age<1d'",
    )
)
@_verb_options
def requeue(**given: Any) -> None:
    """Run failed or cancelled jobs again, from their first attempt."""
    _change(REQUEUE, **given)


@click.command(
    epilog=examples(
        "windlass jobs cancel 0199a8f2-7c11-7abc-8def-0123456789ab",
        "windlass jobs cancel --topic mail --created-before 2h",
    )
)
@_verb_options
def cancel(**given: Any) -> None:
    """Cancel pending jobs, and ask running ones to stop."""
    _change(CANCEL, **given)


@click.command(
    epilog=examples(
        "windlass jobs delete 0199a8f2-7c11-7abc-8def-0123456789ab",
        "windlass jobs delete --state completed --created-before 7d --yes",
    )
)
@_verb_options
def delete(**given: Any) -> None:
    """Delete jobs that are not running, with all that belongs to them."""
    _change(DELETE, **given)


def _change(
    verb: Verb, *, target: Target, job_ids: tuple[UUID, ...], filters: JobFilters, yes: bool, as_json: bool
) -> None:
    context = click.get_current_context()
    if job_ids and filters:
        raise click.UsageError("ids and filters are both given; say which jobs in one way", context)
    if not job_ids and not filters:
        raise click.UsageError(
            f"nothing says which jobs to {verb.name}; give ids, or filters such as --state failed", context
        )
    state = filters.get("state")
    if state is not None and state not in (*verb.states, *verb.shown):
        raise click.UsageError(
            f"--state {state} matches no job that can be {verb.done}; "
            f"that is possible for {', '.join((*verb.states, *verb.shown))}",
            context,
        )
    if job_ids:
        _change_each(verb, target, job_ids, as_json=as_json)
    else:
        _change_all(verb, target, filters, yes=yes, as_json=as_json)


def _change_each(verb: Verb, target: Target, job_ids: tuple[UUID, ...], *, as_json: bool) -> None:
    """Every id gets its own line; one that cannot be changed does not spoil the others."""

    async def change(app: Windlass) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        for job_id in job_ids:
            try:
                ended = await verb.one(app, job_id)
            except (JobNotFound, WrongState) as error:
                failures.say(str(error))
                answers.append({"id": str(job_id), "done": False, "code": error.code, "error": str(error)})
                continue
            requested = ended is False  # only cancel of a running job
            answers.append({"id": str(job_id), "done": True} | ({"requested": True} if requested else {}))
            if not as_json:
                what = "asked to stop" if requested else verb.done
                click.echo(f"{what} {job_id}")
        return answers

    answers = target.run(change)
    if as_json:
        print_json(answers)
    if not all(answer["done"] for answer in answers):
        click.get_current_context().exit(failures.FAILED)


def _change_all(verb: Verb, target: Target, filters: JobFilters, *, yes: bool, as_json: bool) -> None:
    context = click.get_current_context()
    # Opened twice: the question is asked while no event loop runs, where Ctrl-C ends it.
    before, times = target.run(lambda app: preview(app, verb, filters))
    if before.total and not yes and not _confirmed(verb, before, times, context):
        click.echo("nothing was changed", err=True)
        context.exit(failures.FAILED)
    number = target.run(lambda app: act_with_bar(app, verb, filters, before)) if before.total else 0
    if as_json:
        print_json({verb.done: number})
    else:
        click.echo(f"{verb.done} {words.jobs(number)}")


def _confirmed(verb: Verb, count: Count, times: list[tuple[str, str]], context: click.Context) -> bool:
    number = words.jobs(count.total) if count.exact else f"more than {words.jobs(count.total)}"
    for term, meaning in times:
        click.echo(f"{term}: {meaning}", err=True)
    if not is_terminal(sys.stdin):
        raise click.UsageError(
            f"this would {verb.name} {number}, and there is no terminal to ask on; add --yes to go ahead",
            context,
        )
    return click.confirm(f"{verb.name} {number}?", default=False, err=True)


async def preview(app: Windlass, verb: Verb, filters: JobFilters) -> tuple[Count, list[tuple[str, str]]]:
    """Return how many jobs the verb would act on, and the moments that the filter means."""
    times = explain_times(filters, now=app.clock.now(), uuids=app.settings.tenant_uuids)
    return await count_for(app, verb, filters), times


async def count_for(app: Windlass, verb: Verb, filters: JobFilters) -> Count:
    """How many jobs the verb would act on."""
    if "state" in filters:
        return await app.count(**filters)
    each = [JobFilters(**{**filters, "state": str(state)}) for state in verb.states]
    counts = [await app.count(**narrowed) for narrowed in each]
    return Count(sum(count.total for count in counts), all(count.exact for count in counts))


async def act_with_bar(app: Windlass, verb: Verb, filters: JobFilters, before: Count) -> int:
    """Act, and meanwhile show how many of the jobs found at first are left."""
    acting = asyncio.ensure_future(verb.all(app, filters))
    try:
        with progress_bar() as bar:
            # More jobs than are counted exactly: the bar only pulses until the rest can be counted.
            row = bar.add_task(f"{verb.name} jobs", total=before.total if before.exact else None)
            while not bar.disable and not acting.done():
                await asyncio.wait({acting}, timeout=LOOK_SECONDS)
                left = await count_for(app, verb, filters)
                if before.exact and left.exact:
                    bar.update(row, completed=max(0, before.total - left.total))
            return await acting
    finally:
        acting.cancel()
