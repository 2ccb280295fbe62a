"""``tidewheel jobs requeue|cancel|take-back|delete``: one job, several, or everything a filter matches."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import click

from tidewheel.admin.bulk_actions import MatchCounts, explain_skipped
from tidewheel.admin.filters import JobFilters, explain_times
from tidewheel.admin.worker_info import MISSING_SECONDS
from tidewheel.app import Tidewheel
from tidewheel.cli import error_output, formats
from tidewheel.cli.jobs.filter_options import filter_options
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import examples, is_terminal, json_option, print_json, progress_bar
from tidewheel.core.model import DerivedState, State
from tidewheel.errors import JobNotFound, WrongState

PROGRESS_SECONDS: Final = 0.2
"""How often the bar of a bulk action looks how many jobs are left."""


@dataclass(frozen=True, slots=True)
class JobAction:
    """Something to do with jobs, and how to say it."""

    name: str
    past_tense: str
    states: tuple[State, ...]
    """Jobs in other states are refused; a filter without a state means these."""
    derived_states: tuple[DerivedState, ...]
    """The derived states that are part of those."""
    act_on_one: Callable[[Tidewheel, UUID], Awaitable[Any]]
    act_on_all: Callable[[Tidewheel, JobFilters, bool], Awaitable[int]]
    """The last argument: only jobs whose holder is gone; for take-back."""

    @property
    def phrase(self) -> str:
        """Its name in a sentence."""
        return self.name.replace("-", " ")


REQUEUE: Final = JobAction(
    "requeue",
    "requeued",
    (State.FAILED, State.CANCELLED),
    (),
    lambda app, job_id: app.requeue(job_id),
    lambda app, filters, _: app.requeue_all(**filters),
)
CANCEL: Final = JobAction(
    "cancel",
    "cancelled",
    (State.PENDING, State.RUNNING),
    (DerivedState.DELAYED, DerivedState.RETRYING, DerivedState.BLOCKED, DerivedState.CLAIMED),
    lambda app, job_id: app.cancel(job_id),
    lambda app, filters, _: app.cancel_all(**filters),
)
TAKE_BACK: Final = JobAction(
    "take-back",
    "taken back",
    (State.RUNNING,),
    (DerivedState.CLAIMED,),
    lambda app, job_id: app.take_back(job_id),
    lambda app, filters, lost: app.take_back_all(lost=lost, **filters),
)
DELETE: Final = JobAction(
    "delete",
    "deleted",
    (State.PENDING, State.COMPLETED, State.FAILED, State.CANCELLED),
    (DerivedState.DELAYED, DerivedState.RETRYING, DerivedState.BLOCKED),
    lambda app, job_id: app.delete(job_id),
    lambda app, filters, _: app.delete_all(**filters),
)


def _action_options(command: Callable[..., Any]) -> Callable[..., Any]:
    decorated = target_options(command)
    decorated = json_option(decorated)
    decorated = click.option(
        "-y", "--yes", is_flag=True, help="Do not ask before acting on everything the filters match."
    )(decorated)
    decorated = filter_options(decorated)
    return click.argument("job_ids", metavar="[ID]...", nargs=-1, type=click.UUID)(decorated)


@click.command(
    epilog=examples(
        "tidewheel jobs requeue 0199a8f2-7c11-7abc-8def-0123456789ab",
        "tidewheel jobs requeue --state failed --topic mail",
        "tidewheel jobs requeue --where 'error:\"timed out\" age<1d'",
    )
)
@_action_options
def requeue(**given: Any) -> None:
    """Run failed or cancelled jobs again, from their first attempt."""
    _change(REQUEUE, **given)


@click.command(
    epilog=examples(
        "tidewheel jobs cancel 0199a8f2-7c11-7abc-8def-0123456789ab",
        "tidewheel jobs cancel --topic mail --created-before 2h",
    )
)
@_action_options
def cancel(**given: Any) -> None:
    """Cancel pending jobs, and ask running ones to stop."""
    _change(CANCEL, **given)


@click.command(
    "take-back",
    epilog=examples(
        "tidewheel jobs take-back 0199a8f2-7c11-7abc-8def-0123456789ab",
        "tidewheel jobs take-back --lost",
        "tidewheel jobs take-back --where worker:pull:web-1:4711:9f3a",
    ),
)
@click.option("--lost", is_flag=True, help="Only jobs whose holder is gone: silent for 20 seconds.")
@_action_options
def take_back(**given: Any) -> None:
    """Take running jobs from their holders: they are pending again, and the attempt is not counted.

    The old holder can write nothing any more. A worker stops the handler when it next extends the lease,
    after a third of it at most; another worker may have begun the job by then.
    """
    _change(TAKE_BACK, **given)


@click.command(
    epilog=examples(
        "tidewheel jobs delete 0199a8f2-7c11-7abc-8def-0123456789ab",
        "tidewheel jobs delete --state completed --created-before 7d --yes",
    )
)
@_action_options
def delete(**given: Any) -> None:
    """Delete jobs that are not running, with all that belongs to them."""
    _change(DELETE, **given)


def _change(
    action: JobAction,
    *,
    target: Target,
    job_ids: tuple[UUID, ...],
    filters: JobFilters,
    yes: bool,
    as_json: bool,
    lost: bool = False,
) -> None:
    context = click.get_current_context()
    if job_ids and (filters or lost):
        raise click.UsageError("ids and filters are both given; say which jobs in one way", context)
    if not job_ids and not filters and not lost:
        raise click.UsageError(
            f"nothing says which jobs to {action.phrase}; give ids, or filters such as --state failed",
            context,
        )
    state = filters.get("state")
    if state is not None and state not in (*action.states, *action.derived_states):
        raise click.UsageError(
            f"--state {state} matches no job that can be {action.past_tense}; "
            f"that is possible for {', '.join((*action.states, *action.derived_states))}",
            context,
        )
    if job_ids:
        _change_each(action, target, job_ids, as_json=as_json)
    else:
        _change_all(action, target, filters, lost=lost, yes=yes, as_json=as_json)


def _change_each(action: JobAction, target: Target, job_ids: tuple[UUID, ...], *, as_json: bool) -> None:
    """Every id gets its own line; one that cannot be changed does not spoil the others."""

    async def change(app: Tidewheel) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        for job_id in job_ids:
            try:
                ended = await action.act_on_one(app, job_id)
            except (JobNotFound, WrongState) as error:
                error_output.print_error(str(error))
                answers.append({"id": str(job_id), "done": False, "code": error.code, "error": str(error)})
                continue
            requested = ended is False  # only cancel of a running job
            answers.append({"id": str(job_id), "done": True} | ({"requested": True} if requested else {}))
            if not as_json:
                what = "asked to stop" if requested else action.past_tense
                click.echo(f"{what} {job_id}")
        return answers

    answers = target.run(change)
    if as_json:
        print_json(answers)
    if not all(answer["done"] for answer in answers):
        click.get_current_context().exit(error_output.EXIT_FAILED)


def _change_all(
    action: JobAction, target: Target, filters: JobFilters, *, lost: bool, yes: bool, as_json: bool
) -> None:
    context = click.get_current_context()
    # Opened twice: the question is asked while no event loop runs, where Ctrl-C ends it.
    before, times = target.run(lambda app: preview(app, action, filters, lost=lost))
    if before.total and not yes and not _confirmed(action, before, times, context):
        click.echo("nothing was changed", err=True)
        context.exit(error_output.EXIT_FAILED)
    number = 0
    if before.total:
        number = target.run(lambda app: act_with_bar(app, action, filters, before, lost=lost))
    if as_json:
        print_json({action.past_tense.replace(" ", "_"): number, "left_alone": dict(before.left_alone)})
        return
    click.echo(f"{action.past_tense} {formats.job_count(number)}")
    if (reason := explain_skipped(action.name, before.left_alone)) is not None:
        click.echo(reason, err=True)
    if lost and not before.total:
        click.echo(
            "no running job that matches is held by a worker that has been silent for "
            f"{MISSING_SECONDS:g} s; to take others back, give their ids",
            err=True,
        )


def _confirmed(
    action: JobAction, count: MatchCounts, times: list[tuple[str, str]], context: click.Context
) -> bool:
    number = formats.job_count(count.total) if count.exact else f"more than {formats.job_count(count.total)}"
    for term, meaning in times:
        click.echo(f"{term}: {meaning}", err=True)
    if not is_terminal(sys.stdin):
        raise click.UsageError(
            f"this would {action.phrase} {number}, and there is no terminal to ask on; add --yes to go ahead",
            context,
        )
    return click.confirm(f"{action.phrase} {number}?", default=False, err=True)


async def preview(
    app: Tidewheel, action: JobAction, filters: JobFilters, *, lost: bool
) -> tuple[MatchCounts, list[tuple[str, str]]]:
    """Return how many jobs the verb would act on, and the moments that the filter means."""
    times = explain_times(filters, now=app.clock.now(), uuids=app.settings.tenant_uuids)
    return await app.bulk.matching(action.name, filters, lost=lost), times


async def act_with_bar(
    app: Tidewheel, action: JobAction, filters: JobFilters, before: MatchCounts, *, lost: bool = False
) -> int:
    """Act, and meanwhile show how many of the jobs found at first are left."""
    acting = asyncio.ensure_future(action.act_on_all(app, filters, lost))
    try:
        with progress_bar() as bar:
            # More jobs than are counted exactly: the bar only pulses until the rest can be counted.
            row = bar.add_task(f"{action.phrase} jobs", total=before.total if before.exact else None)
            while not bar.disable and not acting.done():
                await asyncio.wait({acting}, timeout=PROGRESS_SECONDS)
                left = await app.bulk.matching(action.name, filters, lost=lost)
                if before.exact and left.exact:
                    bar.update(row, completed=max(0, before.total - left.total))
            return await acting
    finally:
        acting.cancel()
