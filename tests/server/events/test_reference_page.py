"""The page about event streams says what there is."""

from __future__ import annotations

from tests.docs.pages import ROOT
from tidewheel.core.timeline import Happening
from tidewheel.server.events import broadcaster, change_poller, ring_buffer
from tidewheel.server.routes import event_routes

PAGE = (ROOT / "docs" / "reference" / "http-events.md").read_text("utf-8")


def test_every_event_and_entry_is_documented() -> None:
    """A reader can tell what will come."""
    for kind in ring_buffer.EventKind:
        assert f"| `{kind}` |" in PAGE, kind
    jobs = (ROOT / "docs" / "reference" / "jobs.md").read_text("utf-8")
    for what in Happening:
        assert f"`{what}`" in jobs, what


def test_every_limit_is_documented() -> None:
    """With the number it has in the code."""
    assert f"last {ring_buffer.RING_SIZE:,} events" in PAGE
    assert f"up to {event_routes.MAX_TOPICS}" in PAGE
    assert f"up to {event_routes.MAX_JOBS}," in PAGE
    assert f"| {broadcaster.MAX_PER_CREDENTIAL};" in PAGE
    assert f"{change_poller.MAX_WATCHED_TENANTS:,} of one server" in PAGE
    assert f"{change_poller.MAX_WATCHED_JOBS:,} of one server" in PAGE
    assert f"{broadcaster.MAX_TENANT_JOBS:,} of one tenant" in PAGE
    assert f"takes nothing for {event_routes.WRITE_TIMEOUT_SECONDS:g} s" in PAGE
    assert f"one every {broadcaster.HEARTBEAT_SECONDS:g} s" in PAGE
    assert f"every {broadcaster.CREDENTIAL_CHECK_SECONDS:g} s it is asked" in PAGE
