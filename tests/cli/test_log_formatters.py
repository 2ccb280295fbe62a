"""Log lines, readable and as JSON."""

from __future__ import annotations

import json
import logging

from tidewheel.cli.log_formatters import JsonFormatter, LineFormatter


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("tidewheel.job", logging.WARNING, __file__, 1, message, (), None)
    made.__dict__.update(extra)
    return made


def test_a_readable_line_names_the_job() -> None:
    """Time, level, logger, task, job and attempt, then the message."""
    line = LineFormatter(colored=False).format(
        record("hello", task="send", job_id="0199", attempt=2, tenant="root")
    )
    assert line.endswith(" warning  tidewheel.job: [send 0199 attempt 2] hello")
    assert "\x1b" not in line


def test_a_readable_line_without_a_job_is_plain() -> None:
    """Nothing is made up for lines that belong to no job."""
    assert (
        LineFormatter(colored=True)
        .format(record("hello"))
        .endswith("\x1b[33mwarning \x1b[0m tidewheel.job: hello")
    )


def test_an_exception_follows_its_line() -> None:
    """The traceback is readable in one form and a field in the other."""
    try:
        raise ValueError("too bad")
    except ValueError as error:
        failed = record("it broke")
        failed.exc_info = (type(error), error, error.__traceback__)
    assert LineFormatter(colored=False).format(failed).endswith("ValueError: too bad")
    assert json.loads(JsonFormatter().format(failed))["traceback"].endswith("ValueError: too bad")


def test_json_carries_every_extra_field() -> None:
    """What a collector groups by is a field, not text; odd values do not break the line."""
    line = json.loads(JsonFormatter().format(record("hello\nworld", job_id="0199", odd=object)))
    assert (line["message"], line["level"], line["job_id"]) == ("hello\nworld", "warning", "0199")
    assert line["time"].endswith("+00:00")
    assert line["odd"] == "<class 'object'>"
    assert "msg" not in line
