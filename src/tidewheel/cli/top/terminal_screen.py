"""The whole terminal, borrowed: its other screen, its keys and its size, given back whatever happens.

Plain control sequences of the VT100 family and ``termios``. Not ``curses``, which Windows lacks, which
wants an entry for every terminal, and which is at odds with an event loop about keys and signals; nor a
library: what is drawn is two dozen lines of text.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

ENTER_SCREEN: Final = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The other screen, no cursor, no wrapping at the right edge, nothing on it."""
LEAVE_SCREEN: Final = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
BEGIN_FRAME: Final = "\x1b[?2026h"
END_FRAME: Final = "\x1b[?2026l"
"""Terminals that know these show a frame at once; others pass over them."""
MIN_SIZE: Final = (20, 4)


class TerminalScreen:
    """A terminal in our hands while inside."""

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._in: int | None = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: Any = None  # how the terminal was
        self._shown: list[str] = []
        self._entered = False

    @property
    def key_descriptor(self) -> int | None:
        """The descriptor on which keys arrive; None where nobody can press any."""
        return self._in

    def size(self) -> tuple[int, int]:
        """Columns and rows; a terminal that tells none has 80 × 24."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:
            size = shutil.get_terminal_size()
        columns, rows = size.columns or 80, size.lines or 24
        return max(MIN_SIZE[0], columns), max(MIN_SIZE[1], rows)

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def enter(self) -> None:
        """Take the terminal."""
        self._entered = True  # before the first byte: whatever happens from here on is undone
        self._capture_keyboard()
        self.invalidate()
        self._write(ENTER_SCREEN)

    def leave(self) -> None:
        """Give it back as it was. Harmless the second time."""
        if not self._entered:
            return
        self._entered = False
        try:
            self._write(LEAVE_SCREEN)
        except OSError:
            pass  # it is gone, and with it what was to be put right
        finally:
            self._restore_keyboard()

    def invalidate(self) -> None:
        """Draw everything the next time: the size has changed, or somebody else wrote here."""
        self._shown = []

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines; only those that differ are sent. A terminal that takes nothing misses a frame.

        Raises ``OSError`` when the terminal is gone.
        """
        if not select.select([], [self._out], [], 0)[1]:
            return  # to wait for it would be to hear neither keys nor signals
        parts = [] if self._shown else ["\x1b[2J"]
        for row, line in enumerate(lines):
            if row >= len(self._shown) or self._shown[row] != line:
                # Cleared first: after a line as wide as the terminal the cursor stands on its last character.
                parts.append(f"\x1b[{row + 1};1H\x1b[2K{line}\x1b[0m")
        if parts:
            self._write(f"{BEGIN_FRAME}{''.join(parts)}{END_FRAME}")
        self._shown = list(lines)

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "ascii", "replace")
        while data:
            data = data[os.write(self._out, data) :]

    if sys.platform == "win32":

        def read_keys(self) -> str:
            """The keys pressed since the last call."""
            import msvcrt

            keys = ""
            while self._in is not None and msvcrt.kbhit():
                keys += msvcrt.getwch()
            return keys

        def _capture_keyboard(self) -> None:
            os.system("")  # noqa: S605, S607 - lets the console understand control sequences

        def _restore_keyboard(self) -> None:
            pass

    else:

        def read_keys(self) -> str:
            """The keys pressed since the last call. Raises ``OSError`` when the terminal is gone."""
            if self._in is None or not select.select([self._in], [], [], 0)[0]:
                return ""
            data = os.read(self._in, 1024)
            if not data:
                raise OSError("the terminal was closed")
            return data.decode("utf-8", "replace")

        def _capture_keyboard(self) -> None:
            """Keys come one by one and are not shown; Ctrl-C still is a signal, Ctrl-S no longer a trap."""
            if self._in is None:
                return
            import termios
            import tty

            self._before = termios.tcgetattr(self._in)
            tty.setcbreak(self._in, termios.TCSANOW)
            mode = termios.tcgetattr(self._in)
            mode[0] &= ~termios.IXON
            termios.tcsetattr(self._in, termios.TCSANOW, mode)

        def _restore_keyboard(self) -> None:
            if self._in is None or self._before is None:
                return
            import termios

            try:
                termios.tcsetattr(self._in, termios.TCSANOW, self._before)
            except termios.error:
                pass  # it is gone
