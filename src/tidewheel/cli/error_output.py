"""How the command line fails: one red line on stderr, and an exit code a script can rely on."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

import click

from tidewheel.errors import ConfigurationError, InvalidFilter, InvalidInput, TidewheelError

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
"""What was asked could not be done: no such job, the store is unavailable, the awaited job failed."""
EXIT_USAGE: Final = 2
"""What was asked makes no sense; asking again will not help."""
EXIT_START_FAILED_FLAG: Final = 64
"""Added to its exit code by one of several worker processes that could not start: there is no point in trying
again, and its parent ends with the code itself."""
EXIT_DEGRADED: Final = 75
"""A supervised worker half of whose slots are stuck: its parent starts another in its place, at once."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, as shells count it."""
EXIT_BROKEN_PIPE: Final = 141
"""The reader of our output went away (``| head -1``), as shells count it."""

_TRACEBACK: Final = "tidewheel.traceback"


class AppLoadError(click.ClickException):
    """The user's app could not be loaded."""

    def __init__(self, message: str, exit_code: int, cause: BaseException | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # a class variable in click, per error here
        self.cause = cause


def exit_code_of(error: TidewheelError) -> int:
    """The exit code an error of Tidewheel becomes."""
    return EXIT_USAGE if isinstance(error, InvalidInput | ConfigurationError) else EXIT_FAILED


def print_error(message: str) -> None:
    """One red line on stderr."""
    click.secho("error: ", fg="red", bold=True, nl=False, err=True)
    click.secho(_one_line(message), fg="red", err=True)


def print_product_error(error: TidewheelError) -> None:
    """An error of Tidewheel; under a filter that cannot be read, carets point at the character."""
    if isinstance(error, InvalidFilter):
        print_error(error.reason)
        click.echo(error.pointer, err=True)
    else:
        print_error(str(error))


def print_warning(message: str) -> None:
    """One yellow line on stderr."""
    click.secho("warning: ", fg="yellow", bold=True, nl=False, err=True)
    click.secho(_one_line(message), fg="yellow", err=True)


def print_click_error(error: click.ClickException) -> None:
    """An error found by click, or raised in its terms."""
    print_error(error.format_message())
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.secho(f"try: {error.ctx.command_path} --help", dim=True, err=True)
    if isinstance(error, AppLoadError) and error.cause is not None:
        print_traceback(error.cause)


def wants_traceback(ctx: click.Context | None) -> bool:
    """Whether the user asked to see where an error came from."""
    asked = ctx is not None and bool(ctx.meta.get(_TRACEBACK))
    return asked or os.environ.get("TIDEWHEEL_DEBUG", "").lower() not in {"", "0", "false", "no", "off"}


def remember_traceback(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    """The callback of ``--traceback``."""
    if value:
        ctx.meta[_TRACEBACK] = True


def print_traceback_if_wanted(ctx: click.Context, error: BaseException) -> None:
    """Where an error came from, for those who asked."""
    if wants_traceback(ctx):
        print_traceback(error)


def print_traceback(error: BaseException) -> None:
    """Where an error came from, without the frames of the import machinery."""
    trace = error.__traceback__
    start = trace
    while trace is not None:
        # What lies above the last of Python's own import frames is how we got there; nobody needs that.
        if trace.tb_frame.f_code.co_filename.startswith("<frozen importlib"):
            start = trace.tb_next or start
        trace = trace.tb_next
    click.echo("".join(traceback.format_exception(type(error), error, start)), nl=False, err=True)


def discard_stdout() -> None:
    """Nobody reads our output any more: keep the interpreter from complaining when it flushes at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - lives until the end


def _one_line(message: str) -> str:
    return " ".join(message.split())
