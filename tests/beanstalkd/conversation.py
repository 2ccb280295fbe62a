"""Conversations as text: who says what on which connection, and what comes back.

    == Title of a conversation
    -- alone                    it has a server of its own; the others share one
    -- options -z 100           options of that server
    -- every split              played again for every place its bytes can be cut in two
    A > use letters             connection A says a line
    A < USING letters           and is answered
    A >> put 0 0 9 2\r\nhi      says just these bytes, without an end of line
    B > reserve                 B is another connection: the first mention opens it
    A ~ stats-tube letters ~ current-waiting: 1     asks until the answer has this line
    A >> \r\n
    A < INSERTED #1             ids are names: the first job that is put is #1, on every server
    B < RESERVED #1 2
      | hi                      what follows a line of reply: a body, or lines of YAML
    A | (half-closes)           says that it has nothing more to say
    A x (closes)
    A ! (resets)                closes so that the other side gets an error
    A < (closed)                the server hung up
    * SIGUSR1                   a signal for the server
    # a comment

What cannot be seen is escaped as in Python, a space at the end of a line, too; ``{x*65535}`` is one
character many times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

DIRECTORY: Final = Path(__file__).with_name("conversations")
_STEP = re.compile(r"([A-Z*]) (>>|>|<|~|\||x|!|SIG[A-Z0-9]+)(?: (.*))?$")
_RUN = re.compile(rb"(.)\1{99,}", re.DOTALL)
SHORTEST_RUN: Final = 100
MARGIN: Final = "  | "


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a conversation; of a reply, with the lines that belong to it."""

    who: str
    act: str
    text: str = ""
    more: tuple[str, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.text, *self.more)

    def written(self) -> str:
        first = f"{self.who} {self.act} {self.text}".rstrip()
        return "\n".join([first, *(f"{MARGIN}{line}".rstrip() for line in self.more)])


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is said in turn, by as many connections as it mentions."""

    title: str
    file: str
    steps: tuple[Step | str, ...]
    alone: bool = False
    every_split: bool = False
    options: tuple[str, ...] = ()

    @property
    def replies(self) -> list[Step]:
        return [step for step in self.steps if isinstance(step, Step) and step.act == "<"]

    def with_replies(self, replies: Iterator[Step]) -> Conversation:
        """The same with other replies."""
        steps = [next(replies) if isinstance(step, Step) and step.act == "<" else step for step in self.steps]
        return replace(self, steps=tuple(steps))

    def written(self) -> str:
        flags = ["-- alone"] * self.alone + ["-- every split"] * self.every_split
        flags += [f"-- options {' '.join(self.options)}"] * bool(self.options)
        lines = [step if isinstance(step, str) else step.written() for step in self.steps]
        return "\n".join([f"== {self.title}", *flags, *lines]) + "\n"


def read_file(file: Path) -> tuple[str, list[Conversation]]:
    """What stands before the first conversation, and all of them."""
    preface, *parts = re.split(r"^== ", file.read_text("utf-8"), flags=re.MULTILINE)
    return preface, [_conversation(file.stem, part) for part in parts]


def _conversation(file: str, part: str) -> Conversation:
    title, *lines = part.rstrip("\n").split("\n")
    found = Conversation(title, file, ())
    steps: list[Step | str] = []
    for line in lines:
        if line.startswith("-- "):
            found = _flagged(found, line[3:])
        elif line.startswith(MARGIN.rstrip()):
            last = steps[-1]
            assert isinstance(last, Step), f"{file}: a margin without a reply: {line}"
            steps[-1] = replace(last, more=(*last.more, line[len(MARGIN) :]))
        elif not line or line.startswith("#"):
            steps.append(line)
        elif match := _STEP.match(line):
            steps.append(Step(match[1], match[2], match[3] or ""))
        else:
            raise ValueError(f"{file}, {title}: no step, comment or flag: {line!r}")
    return replace(found, steps=tuple(steps))


def _flagged(conversation: Conversation, flag: str) -> Conversation:
    if flag == "alone":
        return replace(conversation, alone=True)
    if flag == "every split":
        return replace(conversation, every_split=True)
    if flag.startswith("options "):
        return replace(conversation, options=tuple(flag.split()[1:]), alone=True)
    raise ValueError(f"{conversation.file}, {conversation.title}: no such flag: {flag}")


def all_conversations() -> list[Conversation]:
    """Of every file, in order."""
    return [found for file in sorted(DIRECTORY.glob("*.txt")) for found in read_file(file)[1]]


def to_bytes(text: str) -> bytes:
    """What a line of the file says on the wire."""
    grown = re.sub(r"\{(.|\\x..|\\.)\*(\d+)\}", lambda match: match[1] * int(match[2]), text)
    return grown.encode("latin-1").decode("unicode_escape").encode("latin-1")


def to_text(data: bytes) -> str:
    """The same as a line of the file."""
    parts, place = [], 0
    for run in _RUN.finditer(data):
        parts += [_escaped(data[place : run.start()]), f"{{{_escaped(run[1])}*{len(run[0])}}}"]
        place = run.end()
    return "".join([*parts, _escaped(data[place:])])


def _escaped(data: bytes) -> str:
    return "".join(
        chr(byte)
        if 32 <= byte < 127 and byte != 92
        else {13: r"\r", 10: r"\n", 9: r"\t", 92: r"\\"}.get(byte, f"\\x{byte:02x}")
        for byte in data
    )
