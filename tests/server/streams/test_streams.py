"""The measurement at a small size: that nothing is left, and that a server with streams can be stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.server.streams.measurement import measure

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def test_nothing_is_left_of_killed_clients_and_a_server_stops_with_streams_open(tmp_path: Path) -> None:
    """In processes of their own: sockets are closed when clients are killed, and SIGTERM ends it in order."""
    figures = measure(tmp_path, 100, idle_seconds=0.1)
    assert figures.sockets_after <= figures.sockets_before
    assert figures.exit_code == 0
    log = (tmp_path / "server.log").read_text("utf-8")
    assert not any(word in log for word in ("WARNING", "ERROR", "Traceback")), log
