"""Where ``windlass beanstalkd`` says something else than beanstalkd, on purpose: all of it, and why.

``see`` is a heading of docs/reference/beanstalkd.md. A deviation that nobody meets any more fails the suite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tests.beanstalkd.conversation import Conversation, Step


@dataclass(frozen=True, slots=True)
class Deviation:
    """A line of beanstalkd's replies that is another line of ours, in one conversation or in all."""

    theirs: str
    ours: str
    reason: str
    see: str
    title: str | None = None

    def concerns(self, conversation: Conversation, line: str) -> bool:
        return self.theirs == line and self.title in {None, conversation.title}


DEVIATIONS: Final = (
    Deviation(
        "binlog-max-size: 10485760",
        "binlog-max-size: 0",
        "there is no binlog: the store is what is durable",
        "statistics",
    ),
    Deviation(
        "UNKNOWN_COMMAND",
        "(closed)",
        "a browser that is made to call us must not get its body read as commands",
        "http",
        title="A web browser",
    ),
    Deviation(
        "UNKNOWN_COMMAND",
        "(closed)",
        "a browser that is made to call us must not get its body read as commands",
        "http",
        title="A web browser that posts",
    ),
)


def expected_of_us(conversation: Conversation) -> tuple[list[Step], set[Deviation]]:
    """What we must say, and the deviations that are in it."""
    met: set[Deviation] = set()

    def ours(line: str) -> str:
        for deviation in DEVIATIONS:
            if deviation.concerns(conversation, line):
                met.add(deviation)
                return deviation.ours
        return line

    replies = [
        replace(reply, text=ours(reply.text), more=tuple(map(ours, reply.more)))
        for reply in conversation.replies
    ]
    return replies, met
