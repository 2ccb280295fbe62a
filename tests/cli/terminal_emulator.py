"""What a terminal shows after all that was written to it: as much of one as ``tidewheel top`` uses."""

from __future__ import annotations

import re

_tokens = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|\x1b|([^\x1b]+)")


class Vt:
    """A terminal of fixed size with two screens; a sequence it does not know is an error."""

    def __init__(self, columns: int, rows: int, written: str) -> None:
        self.columns = columns
        self.rows = rows
        self.other = False  # whether the other screen is shown
        self.cursor_shown = True
        self._cells = self._blank()
        self._row = self._column = 0
        for match in _tokens.finditer(written):
            arguments, letter, text = match.groups()
            if text is not None:
                self._put(text)
            else:
                assert letter is not None, f"a lone escape before {written[match.end() : match.end() + 20]!r}"
                self._obey(arguments, letter)

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    def _blank(self) -> list[list[str]]:
        return [[" "] * self.columns for _ in range(self.rows)]

    def _put(self, text: str) -> None:
        if not self.other:
            return  # what is on the usual screen nobody asks here
        for character in text:
            assert character.isprintable(), f"{character!r} was written"
            assert self._row < self.rows, "written below the screen"
            assert self._column < self.columns, f"written beyond column {self.columns}: {text!r}"
            self._cells[self._row][self._column] = character
            self._column += 1

    def _obey(self, arguments: str, letter: str) -> None:
        match arguments, letter:
            case "?1049", "h" | "l":
                self.other = letter == "h"
            case "?25", "h" | "l":
                self.cursor_shown = letter == "h"
            case ("?7" | "?2026", "h" | "l") | (_, "m"):
                pass
            case "2", "J":
                self._cells = self._blank()
            case "2", "K":
                self._cells[self._row] = [" "] * self.columns
            case place, "H":
                row, _, column = place.partition(";")
                self._row, self._column = int(row) - 1, int(column) - 1
            case _:
                raise AssertionError(f"unknown sequence {arguments}{letter}")
