"""What whoever waits for a diagnosis sees meanwhile."""

from __future__ import annotations

import sys

import click

from tidewheel.cli.terminal import console, is_terminal


class Watch:
    """A bar on stderr, or one line where nobody watches."""

    def __init__(self, seconds: float) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._seconds = seconds
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TimeElapsedColumn(),
            console=console(stderr=True),
            transient=True,
            disable=not is_terminal(sys.stderr),
        )
        self._row = self._bar.add_task("the store's own check", total=None)

    def __enter__(self) -> Watch:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begun(self, place: str) -> None:
        """Where it works, should anybody wonder what that is, or kill this process outright."""
        self._bar.update(self._row, description="starting workers and producers", total=1.0)
        click.echo(f"making trouble for {self._seconds:g} s in {place}, which goes at the end", err=True)

    def look(self, what: str, share: float) -> None:
        self._bar.update(self._row, description=what, completed=share)
