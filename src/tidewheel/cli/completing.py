"""Names a shell offers when Tab is pressed: those the store has, where looking costs little and does nothing.

No store is made or migrated for it, none is waited for long, and the user's own code (``--app``) is not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tidewheel.errors import TidewheelError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from tidewheel.findings import TaskStats

MOST_SECONDS: Final = 2.0
"""Max seconds to wait for a server. A file is read without a limit: that always ends."""
MOST_NAMES: Final = 200


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Topics that have jobs."""
    return _names(ctx, incomplete, lambda lane: {lane.topic: "topic"})


def task_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """Tasks that have jobs."""
    return _names(ctx, incomplete, lambda lane: {lane.task: "task"})


def task_and_topic_names(
    ctx: click.Context,
    param: click.Parameter,  # noqa: ARG001
    incomplete: str,
) -> list[CompletionItem]:
    """Both, for whom either will do; what is both is told to be a task."""
    return _names(ctx, incomplete, lambda lane: {lane.topic: "topic", lane.task: "task"})


def _names(
    ctx: click.Context, incomplete: str, told: Callable[[TaskStats], dict[str, str]]
) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    try:
        lanes = asyncio.run(_lanes(ctx))
    except (TidewheelError, OSError, TimeoutError):
        return []  # between two keys there is no place for an error; the command itself will say it
    found: dict[str, str] = {}
    for lane in lanes:
        found |= told(lane)
    names = sorted(name for name in found if name and name.startswith(incomplete))
    return [CompletionItem(name, help=found[name]) for name in names[:MOST_NAMES]]


async def _lanes(ctx: click.Context) -> list[TaskStats]:
    from tidewheel.cli.target import database_file, missing_file, named_app

    app = named_app(ctx)
    if app is None or app.url.startswith("memory:") or missing_file(app.url) is not None:
        return []
    limit = MOST_SECONDS if database_file(app.url) is None else None
    async with asyncio.timeout(limit), app:
        return await app.task_stats(60)
