"""``tidewheel why``: each question in a sentence, then the figures, then what to do."""

from __future__ import annotations

import shlex
from typing import Any, Final

import click

from tidewheel.answers import Attention
from tidewheel.app import Tidewheel
from tidewheel.cli.target import Target, target_options
from tidewheel.cli.terminal import examples, json_option, print_json
from tidewheel.cli.why.overview import print_overview
from tidewheel.cli.why.questions import ATTENTION, Found, print_answer
from tidewheel.cli.why.shape import answer_json
from tidewheel.names import suggest
from tidewheel.questions import ASKED
from tidewheel.urls import shown_url

ALL: Final = "all"
NAMES: Final = (*ASKED, ATTENTION)


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
    chosen = _chosen(ctx, names)
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


def _chosen(ctx: click.Context, names: tuple[str, ...]) -> tuple[str, ...]:
    """The questions that were meant, each once; an hour may be written with a hyphen."""
    if not names:
        return tuple(ASKED)
    given = [name.replace("-", "_").lower() for name in names]
    for name in given:
        if name not in {*NAMES, ALL}:
            hint = suggest(name, NAMES) or f"; the questions are {', '.join(NAMES)}, or all"
            raise click.UsageError(f"there is no question {name!r}{hint}", ctx)
    return NAMES if ALL in given else tuple(dict.fromkeys(given))


def _options(target: Target, tenant: str | None) -> str:
    """What commands that are proposed must be told, too, to be about the same jobs."""
    words = []
    if target.url is not None and shown_url(target.url) == target.url:  # a password is not repeated
        words += ["--url", shlex.quote(target.url)]
    if target.app is not None:
        words += ["--app", shlex.quote(target.app)]
    if tenant is not None:
        words += ["--tenant", shlex.quote(tenant)]
    return "".join(f" {word}" for word in words)


async def _ask(
    app: Tidewheel, names: tuple[str, ...], tenant: str | None, options: str, *, attention: bool
) -> Found:
    """One after the other: a queue in trouble should not have to answer seven at once."""
    answers: dict[str, Any] = {}
    for name in names:
        answers[name] = await getattr(app.questions, name)(tenant=tenant)
    if attention and ATTENTION not in answers:
        answers[ATTENTION] = await app.questions.attention(tenant=tenant)
    told = answers.get(ATTENTION)
    return Found(
        answers=answers,
        findings=told.findings if isinstance(told, Attention) else (),
        now=app.clock.now(),
        options=options,
    )
