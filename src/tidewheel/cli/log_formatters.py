"""Log lines on stderr: readable, or JSON for a log collector."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

LEVELS: Final = ("debug", "info", "warning", "error")

_STYLES: Final = {"DEBUG": "2", "INFO": "32", "WARNING": "33", "ERROR": "31", "CRITICAL": "1;31"}
_STANDARD_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_IN_LINE: Final = ("task", "job_id", "attempt")
"""Of a job's fields these are shown in a readable line; JSON has all of them."""


def configure_logging(level: str | None, *, as_json: bool) -> None:
    """Send the logs of the whole process to stderr.

    A project that has set up logging itself keeps it, unless this command was told otherwise.
    """
    root = logging.getLogger()
    if root.handlers and level is None and not as_json:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else LineFormatter(colored=sys.stderr.isatty()))
    root.handlers[:] = [handler]
    root.setLevel((level or "info").upper())
    if level != "debug":
        # Of the store over HTTP: a line for each request, with whatever a filter asks for in its address.
        logging.getLogger("httpx2").setLevel(logging.WARNING)


class LineFormatter(logging.Formatter):
    """``09:41:07 warning  send_digest 0199… attempt 2  message``."""

    def __init__(self, *, colored: bool) -> None:
        super().__init__()
        self._colored = colored

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        level = f"{record.levelname.lower():8}"
        if self._colored:
            level = f"\x1b[{_STYLES.get(record.levelname, '0')}m{level}\x1b[0m"
        fields = _fields(record)
        about = " ".join(
            f"attempt {fields[name]}" if name == "attempt" else str(fields[name])
            for name in _IN_LINE
            if fields.get(name)
        )
        line = f"{moment} {level} {record.name}: {f'[{about}] ' if about else ''}{record.getMessage()}"
        trace = _trace(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One object on a line: time, level, logger, message, and whatever fields came along."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        trace = _trace(self, record)
        if trace:
            line["traceback"] = trace
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What ``extra=`` added to a record."""
    return {name: value for name, value in record.__dict__.items() if name not in _STANDARD_FIELDS}


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(record.stack_info)
    return "\n".join(parts)
