"""The log of a server that clients make fail again and again."""

from __future__ import annotations

import logging

import pytest

from tidewheel.core.log_throttle import ThrottledLog
from tidewheel.testing.clock import FrozenClock


def test_repeated_warnings_are_counted_instead_of_written(caplog: pytest.LogCaptureFixture) -> None:
    """Of each kind there is one line per ten seconds, and it says how many were left out."""
    clock = FrozenClock()
    log = ThrottledLog(logging.getLogger("tidewheel.server"), clock.monotonic)
    for second in range(21):
        for _ in range(500):
            log.write("away", "a request could not be served: %s", f"away for {second} s")
        log.write("closing", "closing")
        clock.advance(1)
    assert [record.message for record in caplog.records if "away" in record.message] == [
        "a request could not be served: away for 0 s",
        "a request could not be served: away for 10 s (4,999 more like it since the last line)",
        "a request could not be served: away for 20 s (4,999 more like it since the last line)",
    ]
    assert sum("closing" in record.message for record in caplog.records) == 3
