"""An app on each store whose time stands still, and its queue."""

from __future__ import annotations

import pytest

from tests.app.conftest import app, clock, url
from tidewheel import Tidewheel
from tidewheel.pull.queue import Queue

__all__ = ["app", "clock", "queue", "url"]


@pytest.fixture
def queue(app: Tidewheel) -> Queue:
    return app.queue
