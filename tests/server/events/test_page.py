"""The page about event streams says what there is."""

from __future__ import annotations

from tests.docs.pages import ROOT
from tidewheel.server.events import broadcast, listener, ring, route, stream, watcher
from tidewheel.timeline import Happening

PAGE = (ROOT / "docs" / "reference" / "http-events.md").read_text("utf-8")


def test_every_event_and_entry_is_documented() -> None:
    """A reader can tell what will come."""
    for kind in ring.Kind:
        assert f"| `{kind}` |" in PAGE, kind
    jobs = (ROOT / "docs" / "reference" / "jobs.md").read_text("utf-8")
    for what in Happening:
        assert f"`{what}`" in jobs, what


def test_every_limit_is_documented() -> None:
    """With the number it has in the code."""
    assert f"last {ring.RING_SIZE:,} events" in PAGE
    assert f"up to {route.MAX_TOPICS}" in PAGE
    assert f"up to {route.MAX_JOBS}," in PAGE
    assert f"| {broadcast.MAX_PER_CREDENTIAL};" in PAGE
    assert f"{watcher.MAX_TENANTS:,} of one server" in PAGE
    assert f"{watcher.MAX_JOBS:,} of one server" in PAGE
    assert f"{broadcast.MAX_TENANT_JOBS:,} of one tenant" in PAGE
    assert f"takes nothing for {stream.WRITE_SECONDS:g} s" in PAGE
    assert f"one every {listener.HEARTBEAT_SECONDS:g} s" in PAGE
    assert f"every {broadcast.CHECK_SECONDS:g} s it is asked" in PAGE
