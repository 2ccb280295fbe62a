"""``tidewheel why``: answer an operator's six questions, and propose the next steps.

Without a question, an overview shows all six answers and the worst findings on one screen. With one, its
sentence, figures and next steps are shown. JSON has the fields of the Python API, with times as ISO 8601.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import click

from tidewheel.admin.reports.answers import Attention
from tidewheel.admin.reports.questions import QUESTION_TEXTS
from tidewheel.app import Tidewheel
from tidewheel.cli import formats
from tidewheel.cli.target_options import Target, target_options
from tidewheel.cli.terminal import console, examples, is_terminal, json_option, print_json
from tidewheel.cli.why_answers import ATTENTION, QuestionAnswers, print_answer, print_finding, print_sentence
from tidewheel.core.names import suggest
from tidewheel.core.reports import MinuteStats
from tidewheel.core.urls import redact_url

MAX_FINDINGS: Final = 3
"""The worst; a screen has no room for more."""
ROWS_PER_FINDING: Final = 3
"""That one takes, as a rule."""
PIPE_ROWS: Final = 1000
"""Where nobody looks at a screen."""
LABEL_WIDTH: Final = 12


def print_overview(found: QuestionAnswers) -> None:
    """A sentence for each question, then the worst of what needs attention."""
    rows = 4  # a blank one, the two at the end, the prompt
    for name in QUESTION_TEXTS:
        rows += print_sentence(
            found.answers[name].answer, label=f"{name:{LABEL_WIDTH}}", indent=LABEL_WIDTH, bold=True
        )
    click.echo()
    attention: Attention = found.answers[ATTENTION]
    if not attention.findings:
        click.secho(attention.answer, fg="green")
    height = console().height if is_terminal() else PIPE_ROWS
    told = 0
    for finding in attention.findings[:MAX_FINDINGS]:
        if told and rows + ROWS_PER_FINDING > height:
            break  # six answers and the worst of what is wrong are to be seen at once
        rows += print_finding(finding, options=found.options, brief=True)
        told += 1
    more = len(attention.findings) + attention.more - told
    if more > 0:
        left = formats.plural(more, "more thing", "more things")
        click.secho(f"and {left}: tidewheel why attention{found.options}", dim=True)
    worth = _next_question(found)
    click.secho(f"the figures: tidewheel why {worth}{found.options}", dim=True)


def _next_question(found: QuestionAnswers) -> str:
    """The question whose figures somebody who reads this wants to see next."""
    answers = found.answers
    if answers["stuck"].things:
        return "stuck"
    if answers["failed"].jobs:
        return "failed"
    return "outstanding" if answers["outstanding"].lanes else "last_hour"


def answer_json(value: Any) -> Any:
    """An answer, or anything it is made of."""
    if isinstance(value, MinuteStats):
        return {**_fields(value), "minute": formats.iso_time(value.minute)}
    if is_dataclass(value):
        return _fields(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return {key: answer_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [answer_json(item) for item in value]
    return value


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: answer_json(getattr(value, field.name)) for field in fields(value)}


ALL_QUESTIONS: Final = "all"
QUESTION_NAMES: Final = (*QUESTION_TEXTS, ATTENTION)


@click.command(
    epilog=examples(
        "tidewheel why",
        "tidewheel why failed",
        "tidewheel why stuck outstanding --app myproject.jobs:app",
        "tidewheel why failed --json | jq -r '.failed.groups[0].where'",
    )
)
@click.argument("names", metavar="[QUESTION]...", nargs=-1)
@click.option("--tenant", metavar="NAME", help="Only about jobs of this tenant.")
@json_option
@target_options
@click.pass_context
def why(
    ctx: click.Context, target: Target, names: tuple[str, ...], tenant: str | None, as_json: bool
) -> None:
    """Answer an operator's six questions, and say what to do next.

    QUESTION is outstanding, failed, stuck, durations, duplicates, last_hour or attention.

    Without one each is answered in a sentence, with the worst of what needs attention below. With one, or
    with all, the figures follow, and commands to go on with. Nothing is changed, and it costs the same at a
    million jobs. With --app it is told, too, which waiting tasks that app does not know. Exits 0 whatever the
    answers are.
    """
    chosen = _choose_questions(ctx, names)
    options = _options(target, tenant)
    found = target.run(lambda app: _ask(app, chosen, tenant, options, attention=not (as_json and names)))
    if as_json:
        asked = [*chosen] if names else [*chosen, ATTENTION]
        print_json({name: answer_json(found.answers[name]) for name in asked})
    elif names:
        for index, name in enumerate(chosen):
            if index:
                click.echo()
            print_answer(name, found)
    else:
        print_overview(found)


def _choose_questions(ctx: click.Context, names: tuple[str, ...]) -> tuple[str, ...]:
    """The questions that were meant, each once; an hour may be written with a hyphen."""
    if not names:
        return tuple(QUESTION_TEXTS)
    given = [name.replace("-", "_").lower() for name in names]
    for name in given:
        if name not in {*QUESTION_NAMES, ALL_QUESTIONS}:
            hint = suggest(name, QUESTION_NAMES) or f"; the questions are {', '.join(QUESTION_NAMES)}, or all"
            raise click.UsageError(f"there is no question {name!r}{hint}", ctx)
    return QUESTION_NAMES if ALL_QUESTIONS in given else tuple(dict.fromkeys(given))


def _options(target: Target, tenant: str | None) -> str:
    """What commands that are proposed must be told, too, to be about the same jobs."""
    words = []
    if target.url is not None and redact_url(target.url) == target.url:  # a password is not repeated
        words += ["--url", shlex.quote(target.url)]
    if target.app is not None:
        words += ["--app", shlex.quote(target.app)]
    if tenant is not None:
        words += ["--tenant", shlex.quote(tenant)]
    return "".join(f" {word}" for word in words)


async def _ask(
    app: Tidewheel, names: tuple[str, ...], tenant: str | None, options: str, *, attention: bool
) -> QuestionAnswers:
    """One after the other: a queue in trouble should not have to answer seven at once."""
    answers: dict[str, Any] = {}
    for name in names:
        answers[name] = await getattr(app.questions, name)(tenant=tenant)
    if attention and ATTENTION not in answers:
        answers[ATTENTION] = await app.questions.attention(tenant=tenant)
    told = answers.get(ATTENTION)
    return QuestionAnswers(
        answers=answers,
        findings=told.findings if isinstance(told, Attention) else (),
        now=app.clock.now(),
        options=options,
    )
