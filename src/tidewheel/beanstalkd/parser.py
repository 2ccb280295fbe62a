"""From bytes to commands. No I/O: bytes are fed, commands are taken out, in any portions."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from tidewheel.beanstalkd.commands import Command, begins_like_command, read_command
from tidewheel.beanstalkd.replies import BAD_FORMAT, EXPECTED_CRLF, JOB_TOO_BIG

MAX_LINE: Final = 224
"""Longest command line in bytes, with its end."""


class NotBeanstalkd(Exception):
    """The other side speaks another protocol: a browser was made to call us, or the port is the wrong one."""


class Parser:
    """One connection's bytes. What it keeps is a line, or a body of at most ``max_job_size`` bytes, and
    whatever was fed behind it.
    """

    def __init__(self, max_job_size: int) -> None:
        self._max_job_size = max_job_size
        self._buffer = bytearray()
        self._put: Command | None = None  # whose body is on its way
        self._skipped: Command | None = None  # to be told of once what belongs to it has passed
        self._skip = 0  # bytes of a body that is thrown away
        self._skip_line = False
        self._first = True

    @property
    def buffered(self) -> int:
        """Bytes that were fed and not used yet."""
        return len(self._buffer)

    def feed(self, data: bytes) -> None:
        """What came in."""
        self._buffer += data

    def next(self) -> Command | None:
        """The next command that is there as a whole. Raises ``NotBeanstalkd``."""
        while True:
            if self._skipped is not None:
                return self._passed_over()
            if self._put is not None:
                return self._with_body(self._put)
            line = self._line()
            if line is not None:
                command = read_command(line)
                if command.name != "put":
                    return command
                if command.size > self._max_job_size:
                    self._skip = command.size + 2
                    self._skipped = replace(command, error=JOB_TOO_BIG)
                elif command.error:
                    return command
                else:
                    self._put = command
            elif self._skipped is None:
                return None

    def _line(self) -> bytes | None:
        buffer = self._buffer
        end = buffer.find(b"\r\n", 0, MAX_LINE)
        if self._first and (end >= 0 or len(buffer) >= MAX_LINE):
            self._first = False
            self._refuse_strangers(end)
        if end >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 2]
            return line
        if len(buffer) >= MAX_LINE:
            self._skip_line = True
            self._skipped = Command("", BAD_FORMAT)
        return None

    def _refuse_strangers(self, end: int) -> None:
        """Hang up unless the first line begins like a command, also one that is too long or wrong.

        Other protocols can be made to carry our commands in a later line, such as the body of a request.
        """
        start = bytes(self._buffer[: end if end >= 0 else MAX_LINE])
        if not begins_like_command(start):
            raise NotBeanstalkd(repr(start[:40].decode("latin-1")))  # quoted: it goes to the log

    def _with_body(self, put: Command) -> Command | None:
        end = put.size + 2
        buffer = self._buffer
        if len(buffer) < end:
            return None
        self._put = None
        body = bytes(buffer[: put.size])
        complete = buffer[put.size : end] == b"\r\n"
        del buffer[:end]
        return replace(put, body=body) if complete else replace(put, error=EXPECTED_CRLF)

    def _passed_over(self) -> Command | None:
        """Throw away what is not wanted; once all of it has passed, what to tell about it."""
        buffer = self._buffer
        if self._skip_line:
            end = buffer.find(b"\r\n")
            if end < 0:
                del buffer[: max(0, len(buffer) - 1)]  # the last byte may be the first half of the end
                return None
            del buffer[: end + 2]
            self._skip_line = False
        else:
            passed = min(self._skip, len(buffer))
            del buffer[:passed]
            self._skip -= passed
            if self._skip:
                return None
        command, self._skipped = self._skipped, None
        return command
