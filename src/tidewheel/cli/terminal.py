"""What output looks like: tables on a terminal, tab-separated lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, TypeVar

import click

from tidewheel.core.text_format import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

COLUMN_GAP: Final = 2
"""Blanks between columns."""
MIN_COLUMN_WIDTH: Final = 8
"""A column that is shortened further says nothing any more."""

F = TypeVar("F", bound=Callable[..., Any])

STATE_STYLES: Final = {
    "pending": "yellow",
    "delayed": "blue",
    "retrying": "magenta",
    "blocked": "bright_black",
    "claimed": "cyan",
    "running": "cyan",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
}


def make_streams_safe() -> None:
    """An output that cannot show a character shows an escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person reads this stream (stdout unless told)."""
    return (stream or sys.stdout).isatty()


def supports_unicode() -> bool:
    """Whether stdout can show more than ASCII."""
    return (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "") == "utf8"


def console(*, stderr: bool = False) -> Console:
    """A rich console; imported late, because rich costs more than most commands."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def progress_bar() -> Progress:
    """A progress bar on stderr; it draws nothing when nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(stderr=True),
        transient=True,
        disable=not is_terminal(sys.stderr),
    )


def examples(*lines: str) -> str:
    """The end of a command's help: lines to copy. The control character keeps click from joining them."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def json_option(command: F) -> F:
    """``--json``, the same everywhere."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def print_json(value: Any) -> None:
    """A value as indented JSON."""
    click.echo(dump_json(value))


_LATE_CONTROLS: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}
"""Control characters that JSON leaves as they are, and a terminal obeys."""


def dump_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON for people and programs alike; plain ASCII where the output can show no more."""
    text = json.dumps(value, indent=indent, ensure_ascii=not supports_unicode())
    return text.translate(_LATE_CONTROLS)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str
    justify: Literal["left", "right"] = "left"
    keep_readable: bool = False
    """Never shortened, whatever the width: ids must stay copyable."""
    shrink_first: bool = False
    """Shortened last: the room a narrow terminal lacks is taken from the other columns."""
    spare: bool = False
    """Left out where shortening others is not enough, the last such column first."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A value as people see it, and as programs get it when that differs."""

    text: str
    plain_text: str | None = None
    style: str = ""


def print_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    """A table on a terminal; tab-separated lines under a header in a pipe, complete and uncoloured."""
    if not is_terminal():
        click.echo("\t".join(column.title.upper() for column in columns))
        for row in rows:
            click.echo(plain_line(row))
        return
    filled = list(rows)
    if not filled:
        click.echo(empty)
        return
    console().print(make_table(columns, filled))
    widths = _widths(columns, filled, console().width)
    left_out = [column.title for column, width in zip(columns, widths, strict=True) if width is None]
    if left_out:
        console().print(f"without {', '.join(left_out)}, for lack of room", style="dim")


def make_table(columns: Sequence[Column], rows: Iterable[Sequence[Cell]]) -> Table:
    """A table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    filled = list(rows)
    table = Table(box=None, pad_edge=False, padding=(0, COLUMN_GAP, 0, 0), header_style="bold")
    widths = _widths(columns, filled, console().width)
    for column, width in zip(columns, widths, strict=True):
        if width is not None:
            table.add_column(
                column.title,
                justify=column.justify,
                no_wrap=True,
                overflow="ellipsis",
                min_width=width if column.keep_readable else None,
                width=width,
            )
    for row in filled:
        shown = (cell for cell, width in zip(row, widths, strict=True) if width is not None)
        table.add_row(*(Text(printable(cell.text), style=cell.style) for cell in shown))
    return table


def plain_line(cells: Iterable[Cell]) -> str:
    """A line for programs."""
    return "\t".join(_plain(cell) for cell in cells)


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], room: int) -> list[int | None]:
    """Return how wide each column is; None for one that is left out."""
    natural = [
        max(len(text) for text in (column.title, *(printable(row[place].text) for row in rows)))
        for place, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    spare = [place for place in shown if columns[place].spare]
    while True:
        widths, lacking = _shorten({place: natural[place] for place in shown}, columns, room)
        if lacking <= 0 or not spare:
            return [widths.get(place) for place in range(len(columns))]
        shown.remove(spare.pop())


def _shorten(widths: dict[int, int], columns: Sequence[Column], room: int) -> tuple[dict[int, int], int]:
    """Take the room that lacks from the widest columns; what lacks still is above 0."""
    lacking = sum(widths.values()) + COLUMN_GAP * len(widths) - room
    for first in (False, True):
        while lacking > 0:
            places = [
                place
                for place in widths
                if columns[place].shrink_first is first and not columns[place].keep_readable
            ]
            widest = max(places, key=lambda place: widths[place], default=None)
            if widest is None or widths[widest] <= MIN_COLUMN_WIDTH:
                break
            widths[widest] -= 1
            lacking -= 1
    return widths, lacking


def _plain(cell: Cell) -> str:
    text = cell.text if cell.plain_text is None else cell.plain_text
    return " ".join(printable(text).split())
