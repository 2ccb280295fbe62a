"""The same conversations with beanstalkd and with us.

``python -m tests.beanstalkd`` writes down what beanstalkd says; here it must say so again, and so must we.
"""

from __future__ import annotations

import asyncio
import re
from functools import cache
from itertools import zip_longest
from pathlib import Path

import pytest

from tests.beanstalkd.conversation import Conversation, Step, all_conversations, to_bytes, to_text
from tests.beanstalkd.deviations import DEVIATIONS, expected_of_us
from tests.beanstalkd.parallel_player import Open, Played, play_all
from tests.beanstalkd.unequal_fields import same
from tests.servers import Beanstalkd, ServerError
from tests.servers.shared import empty_url
from tests.servers.tidewheel_beanstalkd import Door

CONVERSATIONS = {conversation.title: conversation for conversation in all_conversations()}
COMMANDS = (
    *("put", "use", "reserve", "reserve-with-timeout", "reserve-job", "delete", "release", "bury", "touch"),
    *("watch", "ignore", "peek", "peek-ready", "peek-delayed", "peek-buried", "kick", "kick-job"),
    *("stats", "stats-job", "stats-tube", "list-tubes", "list-tube-used", "list-tubes-watched"),
    *("pause-tube", "quit"),
)
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "beanstalkd.md"


def beanstalkd(options: tuple[str, ...]) -> Beanstalkd:
    return Beanstalkd(*options)


def on_sqlite(options: tuple[str, ...]) -> Door:
    return Door(*options)


def on_postgres(options: tuple[str, ...]) -> Door:
    return Door(*options, url=empty_url())


def in_memory(options: tuple[str, ...]) -> Door:
    return Door(*options, url="memory://")


@cache
def _played(kind: Open) -> dict[str, Played] | ServerError:
    try:
        return asyncio.run(play_all(CONVERSATIONS.values(), kind))
    except ServerError as error:  # kept, so that a server that does not start is not tried a hundred times
        return error


def played(kind: Open, title: str) -> Played:
    """One of all conversations with a kind of server; at once, because most of their time is waiting."""
    outcome = _played(kind)
    if isinstance(outcome, ServerError):
        raise outcome
    return outcome[title]


def compare(expected: list[Step], heard: Played, where: str) -> None:
    """The first reply that is another than expected."""
    for number, reply in enumerate(heard.heard):
        wanted = expected[number]
        alike = wanted.who == reply.who and len(wanted.lines) == len(reply.lines)
        differing = [
            f"{other!r} instead of {one!r}"
            for one, other in zip_longest(wanted.lines, reply.lines, fillvalue="nothing")
            if not same(one, other)
        ]
        if differing or not alike:
            pytest.fail(f"{where}, reply {number + 1} to {reply.who}: {'; '.join(differing)}", pytrace=False)
    if heard.trouble is not None:
        count = f"after {len(heard.heard)} of {len(expected)} replies"
        pytest.fail(f"{where}, {count}: {heard.trouble!r}", pytrace=False)
    assert len(heard.heard) == len(expected)


def compare_all(expected: list[Step], heard: Played) -> None:
    compare(expected, heard, "whole")
    for cut, again in heard.splits.items():
        compare(expected, again, f"cut after byte {cut}")


@pytest.mark.parametrize("title", CONVERSATIONS)
def test_beanstalkd_says_what_is_written(title: str) -> None:
    """What the files say comes from beanstalkd, and still does."""
    compare_all(CONVERSATIONS[title].replies, played(beanstalkd, title))


@pytest.mark.parametrize("kind", [on_sqlite, on_postgres, in_memory])
@pytest.mark.parametrize("title", CONVERSATIONS)
def test_we_say_what_beanstalkd_says(title: str, kind: Open) -> None:
    """Reply by reply, but for the deviations that are listed."""
    compare_all(expected_of_us(CONVERSATIONS[title])[0], played(kind, title))


def test_the_corpus_is_large_and_has_every_command() -> None:
    """At least 300 exchanges, and all 25 commands of the protocol."""
    assert sum(len(conversation.replies) for conversation in CONVERSATIONS.values()) >= 300
    said = {
        re.split(r"[ \\]", step.text)[0]
        for conversation in CONVERSATIONS.values()
        for step in conversation.steps
        if isinstance(step, Step) and step.act == ">"
    }
    assert len(COMMANDS) == 25
    assert set(COMMANDS) <= said


def test_titles_and_tubes_belong_to_one_conversation() -> None:
    """Those that share a server must not meet in a tube."""
    assert len(CONVERSATIONS) == len(all_conversations())
    owner: dict[str, Conversation] = {}
    for conversation in all_conversations():
        used = {
            step.text.split(" ")[1]
            for step in conversation.steps
            if isinstance(step, Step) and re.match(r"(use|watch) \S+$", step.text)
        }
        for tube in used - {"default"}:
            if not conversation.alone:
                assert owner.setdefault(tube, conversation) is conversation, tube


def test_every_deviation_is_met_and_documented() -> None:
    """One that nobody meets is no deviation any more; each is explained to users."""
    met = set[object]().union(*(expected_of_us(conversation)[1] for conversation in CONVERSATIONS.values()))
    assert met == set(DEVIATIONS)
    headings = re.findall(r"^#+ (.*)$", PAGE.read_text("utf-8"), re.MULTILINE)
    anchors = {heading.strip().lower().replace("`", "").replace(" ", "-") for heading in headings}
    assert {deviation.see for deviation in DEVIATIONS} <= anchors
    assert all(deviation.ours != deviation.theirs and deviation.reason for deviation in DEVIATIONS)


def test_what_is_written_can_be_said() -> None:
    """Any bytes are a line of a file, and back."""
    for data in (bytes(range(256)), b"", b"x" * 99, b"x" * 100 + b"\\" * 300, b"a{b*3}c"[:2] + b"\r\n" * 70):
        assert to_bytes(to_text(data)) == data
