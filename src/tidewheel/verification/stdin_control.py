"""Orders for a process of our own: one line on its standard input, whose end tells it to stop.

No password is shown in a list of processes, and nobody is left behind by a parent that was killed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any


def read_instructions() -> dict[str, Any] | None:
    """What the parent wants; None when it was called off before it began."""
    orders = b""
    while not orders.endswith(b"\n"):
        piece = os.read(sys.stdin.fileno(), 65_536)
        if not piece:
            return None
        orders += piece
    answer: dict[str, Any] = json.loads(orders)
    return answer


def call_when_parent_exits(stop: Callable[[], object]) -> None:
    """Have ``stop`` called, on a thread of its own, once the parent closes our input or is gone."""
    # By number: a thread that waits inside a Python file object would keep the interpreter from ending.
    number = sys.stdin.fileno()

    def listen() -> None:
        while os.read(number, 64):
            pass
        stop()

    threading.Thread(target=listen, name="tidewheel-parent", daemon=True).start()
