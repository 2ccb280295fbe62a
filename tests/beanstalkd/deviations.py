"""Where ``tidewheel beanstalkd`` says something else than beanstalkd, on purpose: all of it, and why.

``see`` is a heading of docs/reference/beanstalkd.md. A deviation that nobody meets any more fails the suite.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from tests.beanstalkd.conversation import Conversation, Step


@dataclass(frozen=True, slots=True)
class Deviation:
    """A line of beanstalkd's replies in a conversation that is another line of ours."""

    theirs: str
    ours: str
    reason: str
    see: str
    title: str
    reply: int | None = None
    """which of the conversation's replies, from 1; None is every one that has this line"""

    def concerns(self, conversation: Conversation, reply: int, line: str) -> bool:
        return self.theirs == line and self.title == conversation.title and self.reply in {None, reply}


_STRANGER = "a browser that is made to call us must not have its body read as commands"
_OTHERS = "http-and-other-protocols"
_DELAY = "a job keeps the moment it is due, not how long it was told to wait; kicked, it is due now"
_HUNDRED_YEARS = "nothing waits or runs for more than a hundred years"

DEVIATIONS: Final = (
    *(
        Deviation("UNKNOWN_COMMAND", "(closed)", _STRANGER, _OTHERS, title)
        for title in ("A web browser", "A web browser that posts", "A first command that nobody knows")
    ),
    *(
        Deviation("delay: 1000", "delay: 0", _DELAY, "stats-job", title, reply)
        for title, reply in (
            ("Reserving by id", 11),
            ("Releasing with a delay", 12),
            ("Buried jobs are kicked before delayed ones, and alone", 11),
            ("Kicking by id", 14),
            ("Everything that can happen to a job is counted", 15),
        )
    ),
    Deviation("delay: 1", "delay: 0", _DELAY, "stats-job", "A released job comes when its delay is over"),
    *(
        Deviation(theirs, ours, _HUNDRED_YEARS, "put", "The largest numbers")
        for theirs, ours in (
            ("delay: 4294967295", "delay: 3155760000"),
            ("ttr: 4294967295", "ttr: 3155760000"),
            ("time-left: 4294967294", "time-left: 3155759999"),
        )
    ),
)


def expected_of_us(conversation: Conversation) -> tuple[list[Step], set[Deviation]]:
    """What we must say, and the deviations that are in it."""
    met: set[Deviation] = set()

    def ours(number: int, line: str) -> str:
        for deviation in DEVIATIONS:
            if deviation.concerns(conversation, number, line):
                met.add(deviation)
                return deviation.ours
        return line

    replies = []
    for number, reply in enumerate(conversation.replies, 1):
        first, *more = (ours(number, line) for line in reply.lines)
        replies.append(replace(reply, text=first, more=tuple(more)))
    return replies, met
