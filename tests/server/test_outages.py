"""What a server says while its store is away."""

from __future__ import annotations

import pytest

from windlass.errors import StoreUnavailable
from windlass.server.outages import Outages
from windlass.testing.clock import FrozenClock


def test_an_outage_is_told_now_and_then_and_not_for_every_request(caplog: pytest.LogCaptureFixture) -> None:
    """Workers ask again and again; of each kind there is a line every ten seconds, with a number."""
    clock = FrozenClock()
    outages = Outages(clock.monotonic)
    for second in range(21):
        for _ in range(500):
            outages.tell("store_unavailable", StoreUnavailable(f"away for {second} s"))
        outages.tell("not_open", StoreUnavailable("closing"))
        clock.advance(1)
    assert [record.message for record in caplog.records if "away" in record.message] == [
        "a request could not be served: away for 0 s",
        "a request could not be served: away for 10 s (4,999 more since it was last said)",
        "a request could not be served: away for 20 s (4,999 more since it was last said)",
    ]
    assert sum("closing" in record.message for record in caplog.records) == 3
