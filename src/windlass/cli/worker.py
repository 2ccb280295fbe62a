"""``windlass worker``: run jobs until stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any

import click

from windlass.__about__ import __version__
from windlass.app import Windlass
from windlass.cli import logs, words
from windlass.cli.loading import load_app
from windlass.cli.target import shown_url, traceback_option
from windlass.cli.terminal import examples
from windlass.worker import Worker

_log = logging.getLogger("windlass.cli")


def _topics(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> list[str] | None:
    """Topics given as ``a,b`` or by repeating the option."""
    names = [name.strip() for part in value for name in part.split(",")]
    if not all(names):
        raise click.BadParameter("a topic's name is empty; write them as mail,reports", ctx, param)
    return names or None


def _limits(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, int]:
    """``mail=5`` pairs, comma-separated or repeated."""
    limits: dict[str, int] = {}
    for pair in (pair for part in value for pair in part.split(",")):
        topic, _, number = pair.partition("=")
        if not topic.strip() or not number.strip().isdecimal() or int(number) < 1:
            raise click.BadParameter(
                f"{pair!r} is no limit; write topic=number, for example mail=5", ctx, param
            )
        limits[topic.strip()] = int(number)
    return limits


@click.command(
    epilog=examples(
        "windlass worker myproject.jobs:app",
        "windlass worker myproject.jobs:app --concurrency 20 --topics mail,reports",
        "windlass worker myproject.jobs:app --topic-concurrency reports=2 --reload",
    )
)
@click.argument("app_reference", metavar="MODULE:APP")
@click.option(
    "-c",
    "--concurrency",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Handlers to run at a time. Default: the app's setting, 10 unless changed.",
)
@click.option(
    "--topics",
    multiple=True,
    callback=_topics,
    metavar="A,B",
    help="Take jobs of these topics only. Default: all the app has tasks for.",
)
@click.option(
    "--exclude-topics",
    multiple=True,
    callback=_topics,
    metavar="A,B",
    help="Leave the jobs of these topics to other workers.",
)
@click.option(
    "--topic-concurrency",
    multiple=True,
    callback=_limits,
    metavar="TOPIC=NUMBER",
    help="Run at most this many jobs of a topic at a time; may be repeated.",
)
@click.option(
    "--lease",
    type=words.Duration(),
    metavar="DURATION",
    help="How long a job stays this worker's without a sign of life. Default: the app's setting, 60 s.",
)
@click.option(
    "--prefetch",
    type=click.IntRange(0),
    metavar="NUMBER",
    help="Most jobs to hold that have not started. Default: chosen by the worker.",
)
@click.option(
    "--name", help="What this worker is called in jobs and logs. Default: host, process and a number."
)
@click.option(
    "--log-level",
    type=click.Choice(logs.LEVELS, case_sensitive=False),
    help="Least important log lines to show. Default: info, or as the app sets up logging itself.",
)
@click.option("--log-json", is_flag=True, help="Write log lines as JSON, one object on a line.")
@click.option(
    "--reload", is_flag=True, help="For development: start anew when a .py file of the project changes."
)
@click.option("--supervised", is_flag=True, hidden=True)
@traceback_option
def worker(
    app_reference: str,
    log_level: str | None,
    log_json: bool,
    reload: bool,
    supervised: bool,
    **options: Any,
) -> None:
    """Run the jobs of an app until stopped.

    MODULE:APP is where the app is: myproject.jobs:app. The first Ctrl-C (or SIGTERM) lets running jobs
    finish, for up to 30 seconds; a second one gives them back at once. Logs go to stderr.
    """
    if reload:
        from windlass.cli.reload import supervise

        click.get_current_context().exit(supervise(app_reference))
    if supervised:
        from windlass.cli.reload import end_with_parent

        end_with_parent()
    app = load_app(app_reference)
    logs.set_up(log_level, as_json=log_json)
    if options["exclude_topics"] is None:
        options["exclude_topics"] = ()
    asyncio.run(_run(app, options))


async def _run(app: Windlass, options: dict[str, Any]) -> None:
    async with app:
        running = app.worker(**options)
        started = time.monotonic()
        # Called once the worker waits for the first time: by then it listens to signals, and who reads this
        # line may send one.
        asyncio.get_running_loop().call_soon(_announce, app, running)
        await running.run()
        _sum_up(running, time.monotonic() - started)


def _announce(app: Windlass, running: Worker) -> None:
    topics = sorted({lane.topic for lane in running.lanes})
    _log.info(
        "windlass %s: worker %s on %s, %s, %s %s, concurrency %d; Ctrl-C stops",
        __version__,
        running.name,
        shown_url(app.settings.url),
        words.plural(len(app.registry), "task"),
        "topic" if len(topics) == 1 else "topics",
        ", ".join(topics[:8]) + (f" and {len(topics) - 8} more" if len(topics) > 8 else ""),
        running.concurrency,
    )


def _sum_up(running: Worker, seconds: float) -> None:
    tally = running.tally
    parts = [f"ran {tally.ran:,}"]
    parts += [
        f"{name} {getattr(tally, name):,}"
        for name in ("completed", "retried", "failed", "cancelled", "released", "lost")
        if getattr(tally, name) or name in {"completed", "retried", "failed"}
    ]
    _log.info("worker %s stopped after %s: %s", running.name, words.duration(seconds), ", ".join(parts))
