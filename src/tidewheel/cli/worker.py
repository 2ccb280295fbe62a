"""``tidewheel worker``: run jobs until stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import error_output, formats, health_port, log_formatters, process_manager
from tidewheel.cli import reload as reloader
from tidewheel.cli.app_loader import load_app
from tidewheel.cli.child_process import ParentLink
from tidewheel.cli.target_options import traceback_option
from tidewheel.cli.terminal import examples
from tidewheel.cli.worker_runner import ProcessReplacement, WorkerRunner
from tidewheel.errors import ConfigurationError, StoreError, TidewheelError

MAX_PROCESSES: Final = 1000
"""Most processes one parent looks after."""


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
        "tidewheel worker myproject.jobs:app",
        "tidewheel worker myproject.jobs:app --concurrency 20 --topics mail,reports",
        "tidewheel worker myproject.jobs:app --processes 4 --name mail",
        "tidewheel worker myproject.jobs:app --health-listen 0.0.0.0:9090 --log-json",
        "tidewheel worker myproject.jobs:app --topic-concurrency reports=2 --reload",
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
    "--processes",
    type=click.IntRange(1, MAX_PROCESSES),
    default=1,
    metavar="NUMBER",
    help="Worker processes to run, each with that concurrency; crashed ones are started again. Default: 1.",
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
    type=formats.DurationType(),
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
    "--name",
    help="What this worker is called in jobs and logs; several processes get a number after it. "
    "Default: host, process and a number.",
)
@click.option(
    "--health-listen",
    metavar="[HOST:]PORT",
    help="Answer /healthz, /readyz and /metrics here, for whoever runs this worker; on the loopback interface"
    " unless a host is given. Default: the setting health_listen, nowhere unless changed.",
)
@click.option(
    "--log-level",
    type=click.Choice(log_formatters.LEVELS, case_sensitive=False),
    help="Least important log lines to show. Default: info, or as the app sets up logging itself.",
)
@click.option("--log-json", is_flag=True, help="Write log lines as JSON, one object on a line.")
@click.option(
    "--reload", is_flag=True, help="For development: start anew when a .py file of the project changes."
)
@click.option("--supervised", is_flag=True, hidden=True)
@click.option("--member", type=int, hidden=True)
@traceback_option
@click.pass_context
def worker(
    ctx: click.Context,
    /,
    app_reference: str,
    processes: int,
    health_listen: str | None,
    log_level: str | None,
    log_json: bool,
    reload: bool,
    supervised: bool,
    member: int | None,
    **options: Any,
) -> None:
    """Run the jobs of an app until stopped.

    MODULE:APP is where the app is: myproject.jobs:app. The first Ctrl-C (or SIGTERM) lets running jobs
    finish, for up to 30 seconds; a second one gives them back at once. Logs go to stderr.
    """
    if reload:
        ctx.exit(reloader.run_with_reload(app_reference))
    leash = ParentLink() if supervised else None
    if processes > 1 and member is None:
        log_formatters.configure_logging(log_level, as_json=log_json)
        where = health_port.configured_address(health_listen)
        ctx.exit(
            process_manager.run_worker_processes(app_reference, processes, options["name"], leash, where)
        )
    if options["exclude_topics"] is None:
        options["exclude_topics"] = ()
    if member is not None and options["name"] is not None:
        options["name"] = f"{options['name']}-{member}"
    replacement = ProcessReplacement()
    run = WorkerRunner(options, leash, replacement)
    health = health_port.WorkerHealthPublisher(run.health, run.telemetry, member)
    try:
        if member is None:
            # Before the app, which may take its time.
            health.listen(health_port.configured_address(health_listen))
        app = load_app(app_reference)
        if member is not None:
            _refuse_memory(app, processes)
        log_formatters.configure_logging(log_level, as_json=log_json)
        if health_listen is None:
            health.listen(app.settings.health_listen)
        if health.is_published:
            app.telemetry.count_if_allowed()
        health.announce()  # not before: the app has the first word about logs
        _run_worker(run, app)
    except (click.ClickException, TidewheelError) as error:
        # Missing rights are raised before the first claim only: another process could do no better.
        lacks_rights = isinstance(error, StoreError) and error.lacks_rights
        if member is None or (run.has_started and not lacks_rights):
            raise
        raise _could_not_start(ctx, error) from error
    finally:
        health.stop()
    if run.needs_replacement:
        if leash is not None:
            ctx.exit(error_output.EXIT_DEGRADED)
        replacement.replace()


def _run_worker(run: WorkerRunner, app: Tidewheel) -> None:
    runner = asyncio.Runner()
    try:
        runner.run(run.main(app))
    finally:
        # Closing waits for every coroutine, also for one that has ignored each request to end.
        if not run.has_stuck_handlers:
            runner.close()


def _refuse_memory(app: Tidewheel, processes: int) -> None:
    if app.settings.url.startswith("memory:"):
        raise ConfigurationError(
            f"{app.settings.url} lives inside one process, and --processes is {processes}: each would have "
            "jobs of its own; use --processes 1, or a database such as sqlite:///jobs.db"
        )


def _could_not_start(ctx: click.Context, error: Exception) -> error_output.AppLoadError:
    """The same error with an exit code that tells the parent not to try again."""
    if isinstance(error, click.ClickException):
        message, code = error.format_message(), error.exit_code
        cause = error.cause if isinstance(error, error_output.AppLoadError) else None
    else:
        message, code = (
            str(error),
            error_output.exit_code_of(error) if isinstance(error, TidewheelError) else 1,
        )
        cause = error if error_output.wants_traceback(ctx) else None
    return error_output.AppLoadError(message, error_output.EXIT_START_FAILED_FLAG + code, cause)
