"""Showing a page to whoever started the demo, where there is somebody and something to show it on."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Mapping

from tidewheel.cli.terminal import is_terminal

_ELSEWHERE = ("CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY")
"""Set where nobody sits in front of this machine's screen."""


def is_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a person at this machine watches: on a terminal, with a display, with a browser in windows."""
    if not is_terminal() or any(environment.get(name) for name in _ELSEWHERE):
        return False
    if sys.platform not in {"win32", "darwin"} and not (
        environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    ):
        return False
    try:
        # A browser in the terminal would take the screen that the demo draws on.
        return type(webbrowser.get()) is not webbrowser.GenericBrowser
    except webbrowser.Error:
        return False


def show(url: str) -> None:
    """Open the page, on a thread: some browsers only return when they are closed."""
    threading.Thread(target=webbrowser.open, args=(url,), name="tidewheel-browser", daemon=True).start()
