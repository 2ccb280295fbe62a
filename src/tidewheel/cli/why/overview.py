"""All six answers on one screen, and what to do about them."""

from __future__ import annotations

from typing import Final

import click

from tidewheel.answers import Attention
from tidewheel.cli import words
from tidewheel.cli.terminal import console, is_terminal
from tidewheel.cli.why.prose import say, say_finding
from tidewheel.cli.why.questions import ATTENTION, Found
from tidewheel.questions import ASKED

MOST_FINDINGS: Final = 3
"""The worst; a screen has no room for more."""
ROWS_OF_FINDING: Final = 3
"""That one takes, as a rule."""
MOST_ROWS: Final = 1000
"""Where nobody looks at a screen."""
LABEL_WIDTH: Final = 12


def print_overview(found: Found) -> None:
    """A sentence for each question, then the worst of what needs attention."""
    rows = 4  # a blank one, the two at the end, the prompt
    for name in ASKED:
        rows += say(found.answers[name].answer, label=f"{name:{LABEL_WIDTH}}", indent=LABEL_WIDTH, bold=True)
    click.echo()
    attention: Attention = found.answers[ATTENTION]
    if not attention.findings:
        click.secho(attention.answer, fg="green")
    height = console().height if is_terminal() else MOST_ROWS
    told = 0
    for finding in attention.findings[:MOST_FINDINGS]:
        if told and rows + ROWS_OF_FINDING > height:
            break  # six answers and the worst of what is wrong are to be seen at once
        rows += say_finding(finding, options=found.options, brief=True)
        told += 1
    more = len(attention.findings) + attention.more - told
    if more > 0:
        left = words.plural(more, "more thing", "more things")
        click.secho(f"and {left}: tidewheel why attention{found.options}", dim=True)
    worth = _worth_asking(found)
    click.secho(f"the figures: tidewheel why {worth}{found.options}", dim=True)


def _worth_asking(found: Found) -> str:
    """The question whose figures somebody who reads this wants to see next."""
    answers = found.answers
    if answers["stuck"].things:
        return "stuck"
    if answers["failed"].jobs:
        return "failed"
    return "outstanding" if answers["outstanding"].lanes else "last_hour"
