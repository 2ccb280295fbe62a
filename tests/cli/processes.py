"""The command line as a real process: behind pipes, or on a terminal of its own."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from tests.patience import PATIENCE

COMMAND = (sys.executable, "-m", "tidewheel.cli")


@dataclass(frozen=True, slots=True)
class Project:
    """A directory with an app."""

    directory: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{(self.directory / 'jobs.db').as_posix()}"

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text)
        return path

    def environment(self, **more: str) -> dict[str, str]:
        # PYTHONUNBUFFERED makes Python drop what a reader that leaves did not take, instead of saying so.
        # COLUMNS and LINES would overrule the size of the terminals that tests make.
        unwanted = {"PYTHONUNBUFFERED", "COLUMNS", "LINES"}
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("TIDEWHEEL_") and name not in unwanted
        }
        return {**kept, "PYTHONIOENCODING": "utf-8", **more}

    @contextlib.contextmanager
    def start(self, *arguments: str, **environment: str) -> Iterator[Process]:
        """A command behind pipes; whatever is left of it is killed at the end."""
        process = Process.start([*COMMAND, *arguments], self.directory, self.environment(**environment))
        try:
            yield process
        finally:
            process.kill()


class Process:
    """A running command, its two outputs read line by line as they come."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.seen: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        assert popen.stdout is not None
        assert popen.stderr is not None
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (popen.stdout, popen.stderr)
        ]
        for reader in self._readers:
            reader.start()

    @classmethod
    def start(cls, command: Sequence[str], directory: Path, environment: Mapping[str, str]) -> Self:
        """Any program, behind pipes."""
        return cls(
            subprocess.Popen(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
        )

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    @property
    def text(self) -> str:
        return "\n".join(self.seen)

    def wait_for(self, pattern: str, patience: float = PATIENCE) -> re.Match[str]:
        """The first line from here on in which ``pattern`` is found."""
        deadline = time.monotonic() + patience
        ended = 0
        while ended < 2:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if line is None:
                ended += 1
                continue
            self.seen.append(line)
            match = re.search(pattern, line)
            if match is not None:
                return match
        raise AssertionError(f"no line with {pattern!r} came; there were:\n{self.text}")

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def wait(self, patience: float = PATIENCE) -> int:
        """The exit code, once it has ended; the rest of its output is then in ``seen``."""
        code = self.popen.wait(patience)
        for reader in self._readers:
            reader.join(patience)
        while not self._lines.empty():
            line = self._lines.get()
            if line is not None:
                self.seen.append(line)
        return code

    def kill(self) -> None:
        if self.popen.poll() is None:
            self.popen.kill()
        self.popen.wait(PATIENCE)
        for reader in self._readers:
            reader.join(PATIENCE)
        for stream in (self.popen.stdout, self.popen.stderr):
            if stream is not None:
                stream.close()


def wait_until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Ask again and again until it is so."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {patience} s"
        time.sleep(0.01)


@contextlib.contextmanager
def on_terminal(
    project: Project, *arguments: str, columns: int = 80, rows: int = 24, **environment: str
) -> Iterator[Terminal]:
    """A command on a terminal of its own. Only where the system has pseudo-terminals."""
    import fcntl
    import pty
    import struct
    import termios

    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    popen = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=project.directory,
        env=project.environment(TERM="xterm-256color", **environment),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    screen = Terminal(popen, controller)
    try:
        yield screen
    finally:
        if popen.poll() is None:
            popen.kill()
        popen.wait(PATIENCE)
        screen.hang_up()
        os.close(screen._controller)


class Terminal:
    """What a command writes to its terminal, and what is typed there."""

    def __init__(self, popen: subprocess.Popen[Any], controller: int) -> None:
        self.popen = popen
        self._controller = controller
        self._written = b""

    @property
    def raw(self) -> str:
        """Everything so far, colours and all."""
        return self._written.decode("utf-8", "replace")

    @property
    def text(self) -> str:
        """The same without control sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", self.raw)

    def wait_for(self, pattern: str, patience: float = PATIENCE) -> re.Match[str]:
        """Until ``pattern`` has been written."""
        deadline = time.monotonic() + patience
        while (match := re.search(pattern, self.text)) is None:
            if time.monotonic() > deadline or not self._read(deadline - time.monotonic()):
                raise AssertionError(f"{pattern!r} was not written; there was:\n{self.text}")
        return match

    def type(self, text: str) -> None:
        os.write(self._controller, text.encode())

    @property
    def modes(self) -> list[Any]:
        """How the terminal treats keys and output: what a program has to leave as it found it."""
        import termios

        return termios.tcgetattr(self._controller)

    def resize(self, columns: int, rows: int) -> None:
        """As somebody who drags the window does; the program is told, as the kernel would."""
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self._controller, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.signal(signal.SIGWINCH)

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self._controller)
        self._controller = os.open(os.devnull, os.O_RDWR)

    def signal(self, number: int = signal.SIGINT) -> None:
        self.popen.send_signal(number)

    def interrupt(self) -> int:
        """Press Ctrl-C until the command ends; its exit code.

        Python cannot see a signal that comes in the instant before it blocks in a read; people press again.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            self.signal()
            try:
                return self.wait(2.0)  # a second one while it ends would end it another way
            except subprocess.TimeoutExpired:
                assert time.monotonic() < deadline, f"it does not end:\n{self.text}"

    def wait(self, patience: float = PATIENCE) -> int:
        """The exit code, once everything has been read."""
        deadline = time.monotonic() + patience
        while self._read(max(0.0, deadline - time.monotonic())):
            pass
        return self.popen.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, patience: float) -> bool:
        """Read what is there; False at the end, or when nothing comes."""
        import select

        if not select.select([self._controller], [], [], max(0.0, patience))[0]:
            return False
        try:
            piece = os.read(self._controller, 65_536)
        except OSError:  # Linux says so when the other side has closed
            return False
        self._written += piece
        return bool(piece)
