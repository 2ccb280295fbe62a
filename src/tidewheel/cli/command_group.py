"""The ``tidewheel`` command group: the list of commands, and their errors as exit codes.

A command's module is imported when the command is used, so that ``tidewheel --help`` does not pay for all of
them. ``run_for_app`` runs the commands inside the command line of a framework, which knows their app.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from tidewheel.__about__ import __version__
from tidewheel.cli import error_output
from tidewheel.errors import TidewheelError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """One command in the list. ``help`` repeats its first line, so that listing imports nothing."""

    import_path: str
    section: str
    help: str


COMMANDS: Final[Mapping[str, CommandEntry]] = {
    "demo": CommandEntry(
        "tidewheel.cli.demo:demo", "Try it", "Watch a queue at work, here and in the browser."
    ),
    "worker": CommandEntry(
        "tidewheel.cli.worker:worker", "Run work", "Run the jobs of an app until stopped."
    ),
    "serve": CommandEntry(
        "tidewheel.cli.serve:serve", "Run work", "Serve the HTTP API and the web UI of an app until stopped."
    ),
    "beanstalkd": CommandEntry(
        "tidewheel.cli.beanstalkd:beanstalkd", "Run work", "Serve beanstalkd clients until stopped."
    ),
    "enqueue": CommandEntry("tidewheel.cli.enqueue:enqueue", "Run work", "Make a job, or many from a file."),
    "jobs": CommandEntry(
        "tidewheel.cli.jobs:jobs",
        "Look and manage",
        "List, show, requeue, cancel, take back and delete jobs.",
    ),
    "topics": CommandEntry(
        "tidewheel.cli.topics:topics", "Look and manage", "List, pause, resume and purge topics."
    ),
    "limits": CommandEntry(
        "tidewheel.cli.limits:limits", "Look and manage", "List, set and remove limits of topics."
    ),
    "schedules": CommandEntry(
        "tidewheel.cli.schedules:schedules", "Look and manage", "List, make, pause and run schedules."
    ),
    "tasks": CommandEntry(
        "tidewheel.cli.tasks:tasks", "Look and manage", "List the tasks of an app, and what they take."
    ),
    "stats": CommandEntry(
        "tidewheel.cli.stats:stats", "Look and manage", "Show counts, times and throughput of the queue."
    ),
    "workers": CommandEntry(
        "tidewheel.cli.workers:workers", "Look and manage", "List the workers, and how they are doing."
    ),
    "top": CommandEntry(
        "tidewheel.cli.top:top",
        "Look and manage",
        "Watch the queue live: topics, rates, running jobs, failures.",
    ),
    "why": CommandEntry(
        "tidewheel.cli.why:why",
        "Look and manage",
        "Answer an operator's six questions, and say what to do next.",
    ),
    "keys": CommandEntry("tidewheel.cli.keys:keys", "Let others in", "Make, list and revoke API keys."),
    "access": CommandEntry(
        "tidewheel.cli.access:access", "Let others in", "Find out what a key or a token may do."
    ),
    "superusers": CommandEntry(
        "tidewheel.cli.superusers:superusers", "Let others in", "Make, list and remove those who may log in."
    ),
    "bench": CommandEntry(
        "tidewheel.cli.bench:bench",
        "Operate",
        "Measure what the queue can do here, on your store and machine.",
    ),
    "doctor": CommandEntry(
        "tidewheel.cli.doctor:doctor",
        "Operate",
        "Check the store and what it stands on, and try the promises there.",
    ),
    "migrate": CommandEntry(
        "tidewheel.cli.migrate:migrate", "Operate", "Create the tables, or bring them up to date."
    ),
    "copy": CommandEntry(
        "tidewheel.cli.copy:copy", "Operate", "Copy all jobs of a store to another, and verify it."
    ),
    "completion": CommandEntry(
        "tidewheel.cli.completion:completion",
        "Operate",
        "Print the script that completes commands in your shell.",
    ),
}


class CommandGroup(click.Group):
    """The group of all commands; imports them late and turns every error into one line and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - the signature click wants
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.import_path.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), entry.import_path  # noqa: S101 - the table above is ours
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            from tidewheel.core.names import suggest

            hint = suggest(name, COMMANDS) or f"; the commands are {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the table: who presses Tab does not wait for the import of every command."""
        from click.shell_completion import CompletionItem

        items = [
            CompletionItem(name, help=entry.help)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        width = max(map(len, COMMANDS))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in COMMANDS.items():
            # Padded by hand: each section would otherwise align by its own longest name.
            sections.setdefault(entry.section, []).append((f"{name:{width}}", entry.help))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TidewheelError as error:
            error_output.print_product_error(error)
            for note in getattr(error, "__notes__", ()):
                error_output.print_warning(note)
            error_output.print_traceback_if_wanted(ctx, error)
            ctx.exit(error_output.exit_code_of(error))
        except BrokenPipeError:
            error_output.discard_stdout()
            ctx.exit(error_output.EXIT_BROKEN_PIPE)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command line and exit with its code. See ``failures`` for the codes."""
        del standalone_mode  # this group is the program: it always exits
        if "_TIDEWHEEL_COMPLETE" in os.environ:
            from tidewheel.cli.completion import register_bash_completion

            register_bash_completion()
        try:
            code = super().main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
            sys.stdout.flush()
        except click.ClickException as error:
            error_output.print_click_error(error)
            code = error.exit_code
        except (click.Abort, KeyboardInterrupt):
            code = error_output.EXIT_INTERRUPTED
        except BrokenPipeError:
            error_output.discard_stdout()
            code = error_output.EXIT_BROKEN_PIPE
        sys.exit(code if isinstance(code, int) else error_output.EXIT_OK)


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if not value or ctx.resilient_parsing:
        return
    import platform

    click.echo(f"tidewheel {__version__} (Python {platform.python_version()}, {platform.system()})")
    ctx.exit()


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every command has its own --help. The store is $TIDEWHEEL_URL, [tool.tidewheel] in "
    "pyproject.toml, or sqlite:///tidewheel.db, unless --url or --app says otherwise.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions of Tidewheel and Python, and exit.",
)
@click.pass_context
def tidewheel(ctx: click.Context) -> None:
    """A durable job queue that lives in the database you already have."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run_for_app(reference: str, words: Sequence[str], *, prog_name: str) -> NoReturn:
    """``tidewheel …`` about the app at ``reference``, unless the words name another. Exits with its code."""
    arguments = _insert_app_reference(list(words), reference)
    # Where the commands read what to tell the processes they start, which are plain ``tidewheel``.
    sys.argv = ["tidewheel", *arguments]
    from tidewheel.cli.terminal import make_streams_safe  # only here: --help must stay quick

    make_streams_safe()
    tidewheel.main(arguments, prog_name=prog_name)


def _insert_app_reference(words: list[str], reference: str) -> list[str]:
    """The words with the reference put where their command wants it."""
    command: click.Command = tidewheel
    index = 0
    while index < len(words) and isinstance(command, click.Group):
        found = command.get_command(click.Context(command), words[index])
        if found is None:
            return words  # an option, or no such command: it says so best itself
        command, index = found, index + 1
    names = {option for parameter in command.params for option in (parameter.name, *parameter.opts)}
    if "app_reference" in names:
        return [*words[:index], reference, *words[index:]]
    named = any(word.partition("=")[0] in {"--app", "--url"} for word in words)
    if "--app" in names and not named:
        return [*words[:index], "--app", reference, *words[index:]]
    return words
