"""Lines of styled text that fit a terminal, whatever somebody else's text has in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from unicodedata import combining, east_asian_width

from tidewheel.core.text_format import printable

STYLES: Final = {
    "": "",
    "bold": "1",
    "dim": "2",
    "head": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "alarm": "1;31",
}


@dataclass(frozen=True, slots=True)
class StyledPiece:
    """Some text in one style."""

    text: str
    style: str = ""


Line = Sequence[StyledPiece]


def display_width(text: str) -> int:
    """How many columns it takes: wide characters are two, marks on another one none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text
    )


def truncate(text: str, width: int) -> str:
    """The text in at most so many columns; that something is missing is said by its last character."""
    text = printable(text)
    if display_width(text) <= width:
        return text
    taken, used = [], 0
    for character in text:
        wide = display_width(character)
        if used + wide > width - 1:
            break
        taken.append(character)
        used += wide
    return "".join(taken) + ("…" if width > 0 else "")


def align_left(text: str, width: int, style: str = "") -> StyledPiece:
    """In so many columns, filled up on the right."""
    shown = truncate(text, width)
    return StyledPiece(shown + " " * (width - display_width(shown)), style)


def align_right(text: str, width: int, style: str = "") -> StyledPiece:
    """In so many columns, filled up on the left."""
    shown = truncate(text, width)
    return StyledPiece(" " * (width - display_width(shown)) + shown, style)


def render_line(line: Line, width: int, *, colour: bool) -> str:
    """A line of at most so many columns; with control sequences if it may have ``colour``."""
    parts, room = [], width
    for piece in line:
        text = truncate(piece.text, room)
        room -= display_width(text)
        code = STYLES[piece.style]
        parts.append(f"\x1b[{code}m{text}\x1b[0m" if colour and code and text else text)
    return "".join(parts)
