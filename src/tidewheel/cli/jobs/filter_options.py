"""The options that say which jobs are meant, the same for listing and for bulk actions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import click

from tidewheel.admin.filters import JobFilters
from tidewheel.cli.completion import task_names, topic_names
from tidewheel.cli.formats import TimeType
from tidewheel.core.model import DerivedState, State

STATES: Final = [*map(str, State), *map(str, DerivedState)]

_OPTIONS: Final = (
    click.option("--topic", metavar="NAME", shell_complete=topic_names, help="Only jobs of this topic."),
    click.option(
        "--task",
        metavar="NAME",
        shell_complete=task_names,
        help="Only jobs of this task; '' for jobs without one.",
    ),
    click.option(
        "--state",
        type=click.Choice(STATES, case_sensitive=False),
        metavar="STATE",
        help=f"Only jobs in this state: {', '.join(STATES)}.",
    ),
    click.option("--tenant", metavar="NAME", help="Only jobs of this tenant."),
    click.option("--key", metavar="KEY", help="Only jobs with this idempotency key."),
    click.option("--correlation-id", metavar="ID", help="Only jobs with this correlation id."),
    click.option(
        "--created-after",
        type=TimeType(ago=True),
        metavar="TIME",
        help="Only jobs enqueued at or after this time: 2030-01-31T09:00Z, or 2h for two hours ago.",
    ),
    click.option(
        "--created-before",
        type=TimeType(ago=True),
        metavar="TIME",
        help="Only jobs enqueued before this time, written the same way.",
    ),
    click.option(
        "--text",
        metavar="TEXT",
        help="Only jobs with this text in their payload or in an error; searches newest first for a second.",
    ),
    click.option(
        "--where",
        metavar="FILTER",
        help="Only jobs that match this: 'state:failed payload.user_id:42 age>1h'; see the filter language.",
    ),
)


def filter_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Every filter there is; the command gets them as ``filters``, those not given left out."""

    @functools.wraps(command)
    def with_filters(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in JobFilters.__annotations__}
        filters = {name: value for name, value in given.items() if value is not None}
        return command(*args, filters=filters, **kwargs)

    decorated: Callable[..., Any] = with_filters
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
