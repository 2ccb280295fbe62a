"""Log records on their way from a process to the worker's own log.

The worker's handlers write them, so that a line looks the same wherever its handler runs. Only what reaches
the root logger travels: handlers that a project attaches further down work in the process itself.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from tidewheel.worker.processes.messages import ChildChannel, Logged

MAX_MESSAGE_LENGTH = 64_000
"""Longest log message that is passed on, in characters; the rest is cut off."""

_log = logging.getLogger("tidewheel.worker")
_PLAIN = (str, int, float, bool, type(None))
_DROPPED = frozenset({"msg", "message", "args", "exc_info", "exc_text", "stack_info"})


class LogForwarder(logging.Handler):
    """The only handler of a process's root logger."""

    def __init__(self, channel: ChildChannel) -> None:
        super().__init__()
        self._channel = channel
        self._alone = logging.StreamHandler(sys.stderr)  # for a fork of this process, which has no channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._channel.open:
                self._channel.send(Logged(self._attributes(record)))
            else:
                self._alone.emit(record)
        except Exception:  # what logging does about its own errors is the project's choice
            self.handleError(record)

    def _attributes(self, record: logging.LogRecord) -> dict[str, Any]:
        attributes = {
            name: value if isinstance(value, _PLAIN) else str(value)
            for name, value in record.__dict__.items()
            if name not in _DROPPED
        }
        # The message whole, with its traceback: neither arguments nor exceptions can travel.
        attributes["msg"] = _clean(self.format(record)[:MAX_MESSAGE_LENGTH])
        return attributes


def log_forwarded_record(attributes: dict[str, Any]) -> None:
    """In the worker: to the handlers of its root logger, if the worker wants such records at all."""
    try:
        record = logging.makeLogRecord({**attributes, "args": None})
        if logging.getLogger(record.name).isEnabledFor(record.levelno):
            logging.getLogger().handle(record)
    except Exception:  # a filter that fails must not cost the process its connection
        _log.exception("a log record of a process could not be handled")


def install_forwarder(channel: ChildChannel, by_name: dict[str, int]) -> None:
    """In the process, after each import: modules may set up logging for themselves."""
    root = logging.getLogger()
    if not (len(root.handlers) == 1 and isinstance(root.handlers[0], LogForwarder)):
        root.handlers[:] = [LogForwarder(channel)]
    for name, level in by_name.items():
        logging.getLogger(name or None).setLevel(level)


def logger_levels() -> dict[str, int]:
    """In the worker: the levels that have been set, by logger; the root's under the empty name."""
    set_ = {
        name: logger.level
        for name, logger in list(logging.root.manager.loggerDict.items())
        if isinstance(logger, logging.Logger) and logger.level
    }
    return {**set_, "": logging.root.level}


def _clean(text: str) -> str:
    """Lone surrogates cannot be sent."""
    return text.encode("utf-8", "backslashreplace").decode()
