"""``tidewheel enqueue``: enqueue one job, or one per line of a JSON Lines file.

A file is enqueued in batches of 1,000, with a progress bar.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TextIO, cast

import click

from tidewheel.app import Tidewheel
from tidewheel.cli import error_output, formats
from tidewheel.cli.completion import task_and_topic_names
from tidewheel.cli.jobs.job_json import result_json
from tidewheel.cli.target_options import Target, run_app, target_options
from tidewheel.cli.terminal import dump_json, examples, json_option, print_json, progress_bar
from tidewheel.core.payload import DuplicateMember, object_without_duplicates
from tidewheel.errors import InvalidInput, InvalidPayload
from tidewheel.tasks.options import BY_PAYLOAD, EnqueueOptions

BATCH_SIZE: Final = 1000
"""Lines written in one transaction."""

_position = re.compile(r"payload (\d+) of enqueue_many \(from 0\): ")


@dataclass(slots=True)
class EnqueueCounts:
    """What became of a file."""

    enqueued: int = 0
    duplicates: int = 0
    ids: list[str] = field(default_factory=list)


def enqueue_file(app: Tidewheel, name: str, file: TextIO, options: EnqueueOptions) -> EnqueueCounts:
    """A job for each line that is not empty. An error names its line and says what was written before it.

    Blocking, so that Ctrl-C also ends it while it waits for a line that does not come.
    """
    counts = EnqueueCounts()
    with app.sync as queue, progress_bar() as bar:
        row = bar.add_task(f"enqueue {name}", total=_count_lines(file))
        for lines, payloads in _batches(file, counts):
            try:
                jobs = queue.enqueue_many(name, payloads, **options)
            except InvalidInput as error:
                raise type(error)(f"{_with_line_number(str(error), lines)}{_progress_text(counts)}") from None
            for job in jobs:
                counts.ids.append(str(job.id))
                if job.duplicate:
                    counts.duplicates += 1
                else:
                    counts.enqueued += 1
            bar.update(row, completed=lines[-1])
    return counts


def _batches(file: TextIO, counts: EnqueueCounts) -> Iterator[tuple[list[int], list[Any]]]:
    lines: list[int] = []
    payloads: list[Any] = []
    try:
        for number, line in enumerate(file, start=1):
            if line.strip():
                lines.append(number)
                payloads.append(_parse(line, number, counts))
            if len(payloads) == BATCH_SIZE:
                yield lines, payloads
                lines, payloads = [], []
    except UnicodeDecodeError as error:
        raise InvalidPayload(f"the file is not UTF-8: {error}{_progress_text(counts)}") from None
    if payloads:
        yield lines, payloads


def _parse(line: str, number: int, counts: EnqueueCounts) -> Any:
    try:
        return json.loads(line, object_pairs_hook=object_without_duplicates)
    except DuplicateMember as error:
        raise InvalidPayload(f"line {number:,} cannot be accepted: {error}{_progress_text(counts)}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidPayload(f"line {number:,} is not JSON: {error}{_progress_text(counts)}") from None


def _with_line_number(message: str, lines: list[int]) -> str:
    """An error of ``enqueue_many`` with the file's line in place of the position in the batch."""
    match = _position.match(message)
    if match is None:
        return f"lines {lines[0]:,} to {lines[-1]:,}: {message}"
    return f"line {lines[int(match[1])]:,}: {message[match.end() :]}"


def _progress_text(counts: EnqueueCounts) -> str:
    written = counts.enqueued + counts.duplicates
    if not written:
        return "; nothing was written"
    return f"; {formats.job_count(written)} of earlier lines are written, the rest is not"


def _count_lines(file: TextIO) -> int | None:
    """How many lines there are, where that can be known before reading them."""
    if not file.seekable() or not os.path.isfile(file.name):
        return None
    with open(file.name, "rb") as counted:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: counted.read(1 << 20), b""))


_OPTIONS: Final = (
    click.option(
        "--delay",
        type=formats.DurationType(),
        metavar="DURATION",
        help="Run it this much later: seconds, or 90s, 5m, 2h, 1d.",
    ),
    click.option(
        "--run-at",
        type=formats.TimeType(),
        metavar="TIME",
        help="Run it at this time: ISO 8601 with a zone, for example 2030-01-31T09:00Z.",
    ),
    click.option("--priority", type=int, metavar="NUMBER", help="Higher runs first; the default is 0."),
    click.option(
        "--key",
        metavar="KEY",
        help="Idempotency key: while a job of this task has it, another is a duplicate.",
    ),
    click.option("--key-by-payload", is_flag=True, help="Make the payload the key: equal ones are one job."),
    click.option(
        "--until",
        type=click.Choice(["pruned", "finished"]),
        help="How long the key keeps others out: as long as the job is kept (default), or until it is done.",
    ),
    click.option(
        "--on-duplicate",
        type=click.Choice(["keep", "replace"]),
        help="What happens to a waiting job with this key: it stays (default), or it takes the new payload.",
    ),
    click.option(
        "--max-attempts",
        type=formats.NumberOrNoneType(),
        metavar="NUMBER",
        help="Attempts it gets before it fails; none is unlimited.",
    ),
    click.option(
        "--timeout",
        type=formats.DurationType(none=True),
        metavar="DURATION",
        help="How long one attempt may run; none is no timeout.",
    ),
    click.option(
        "--expires",
        type=formats.DurationType(),
        metavar="DURATION",
        help="Cancel it when it has not started after this long.",
    ),
    click.option(
        "--after",
        type=click.UUID,
        multiple=True,
        metavar="ID",
        help="Run it only when this job has completed; may be given several times.",
    ),
    click.option(
        "--after-any", is_flag=True, help="Run it however the jobs of --after end, also when they fail."
    ),
    click.option(
        "--limit-key",
        metavar="KEY",
        help="Which jobs of its topic it is limited together with, where there are limits of keys.",
    ),
    click.option("--tenant", metavar="NAME", help="Whom it belongs to."),
    click.option("--correlation-id", metavar="ID", help="What it belongs together with."),
    click.option("--user-id", metavar="ID", help="On whose behalf it runs."),
    click.option("--service-id", metavar="ID", help="Which service asks for it."),
    click.option(
        "--topic",
        metavar="NAME",
        help="Put a task's job into another topic than the task's own; needs --app, which knows the task.",
    ),
)


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(
    epilog=examples(
        """tidewheel enqueue send_digest '{"user_id": "42"}'""",
        """tidewheel enqueue send_digest '{"user_id": "42"}' --delay 5m --key 42""",
        "jq -c '.[]' users.json | tidewheel enqueue send_digest --many - --app myproject.jobs:app",
    )
)
@click.argument("name", shell_complete=task_and_topic_names)
@click.argument("payload", metavar="[JSON]", required=False)
@_options
@click.option(
    "--many",
    type=click.File("r", encoding="utf-8"),
    metavar="FILE",
    help="Make a job of each line of this file of JSON lines; - is stdin.",
)
@click.option(
    "--wait",
    type=formats.DurationType(),
    metavar="DURATION",
    help="Wait up to this long for the job to finish, and print its result; exits 1 when it fails.",
)
@json_option
@target_options
def enqueue(
    target: Target,
    name: str,
    payload: str | None,
    many: Any,
    wait: float | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Make a job, or many from a file.

    NAME is a task's name, or a topic. JSON is the payload, {} when left out; - reads it from stdin. Prints
    the id of the job, and whether it is a duplicate: a job with the same key that was there before.
    """
    context = click.get_current_context()
    if many is not None and payload is not None:
        raise click.UsageError("a payload and --many are both given; the file has the payloads", context)
    if many is not None and wait is not None:
        raise click.UsageError("--wait is for one job; it cannot wait for --many", context)
    if many is not None and given["key"] is not None:
        raise click.UsageError(
            "--key would make all jobs of --many one job; use --key-by-payload, or no key", context
        )
    options = _enqueue_options(given, context)
    body = read_payload(payload, context)
    app = target.load()
    _check_with_app(app, name, options, context)
    if many is not None:
        _print_counts(enqueue_file(app, name, many, options), as_json=as_json)
    else:
        run_app(app, lambda app: _enqueue_one(app, name, body, options, wait, as_json=as_json))


async def _enqueue_one(
    app: Tidewheel, name: str, body: Any, options: EnqueueOptions, wait: float | None, *, as_json: bool
) -> None:
    job = await app.enqueue(name, body, **options)
    answer = {"id": str(job.id), "duplicate": job.duplicate, "replaced": job.replaced}
    if not as_json:
        # At once, also when the result is waited for: who stops waiting has the id.
        also = f" duplicate{', replaced' if job.replaced else ''}" if job.duplicate else ""
        click.echo(f"{job.id}{also}")
    if wait is not None:
        await job.result(timeout=wait)
        await job.refresh()
        answer["result"] = result_json(job)
    if as_json:
        print_json(answer)
    elif wait is not None:
        click.echo(dump_json(answer["result"]))


def _check_with_app(app: Tidewheel, name: str, options: EnqueueOptions, context: click.Context) -> None:
    """What can only be said once the app is known, and before anything is opened."""
    task = app.registry.resolve(name, "")
    if task is not None and not task.durable:
        raise click.UsageError(
            f"task {name!r} is not durable: its jobs run in the process that enqueues them, and this command "
            "ends; enqueue it from the program that is to run it",
            context,
        )
    if "topic" in options and task is None:
        raise click.UsageError(
            f"--topic moves a task's job to another topic, but no task {name!r} is known here; "
            "give --app, or enqueue to the topic by its name",
            context,
        )
    if app.settings.url.startswith("memory:"):
        error_output.print_warning(
            "memory:// lives in this process alone; the job is gone when this command ends"
        )


def _enqueue_options(given: dict[str, Any], context: click.Context) -> EnqueueOptions:
    by_payload = given.pop("key_by_payload")
    if by_payload and given["key"] is not None:
        raise click.UsageError("--key and --key-by-payload are both given; a job has one key", context)
    after, after_any = given.pop("after"), given.pop("after_any")
    if after_any and not after:
        raise click.UsageError("--after-any says how the jobs of --after may end; there are none", context)
    options: dict[str, Any] = {
        name: formats.option_value(value) for name, value in given.items() if value is not None
    }
    if after:
        options |= {"after": after, "after_any": after_any}
    if by_payload:
        options["key"] = BY_PAYLOAD
    return cast("EnqueueOptions", options)  # the app checks every value


def read_payload(text: str | None, context: click.Context) -> Any:
    """The JSON of an argument; - is that on stdin, None nothing."""
    if text is None:
        return None
    try:
        given = sys.stdin.read() if text == "-" else text
        return json.loads(given, object_pairs_hook=object_without_duplicates)
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the payload on stdin is not UTF-8: {error}", context) from None
    except DuplicateMember as error:
        raise click.UsageError(f"the payload cannot be accepted: {error}", context) from None
    except (ValueError, RecursionError) as error:
        quoted = "" if text == "-" or text.lstrip()[:1] in '[{"' else "; text needs its own quotes: '\"…\"'"
        raise click.UsageError(f"the payload is not JSON: {error}{quoted}", context) from None


def _print_counts(counts: EnqueueCounts, *, as_json: bool) -> None:
    if as_json:
        print_json({"enqueued": counts.enqueued, "duplicates": counts.duplicates, "ids": counts.ids})
    else:
        also = f", {formats.plural(counts.duplicates, 'duplicate')}" if counts.duplicates else ""
        click.echo(f"enqueued {formats.job_count(counts.enqueued)}{also}")
