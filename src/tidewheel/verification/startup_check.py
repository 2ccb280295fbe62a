"""The look that a worker takes a moment after its start (Q41): in the background, and only to tell.

Whatever happens here, the worker goes on. Of several that start together one looks.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Final

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.jitter import jitter
from tidewheel.core.model import NewDocument
from tidewheel.core.urls import over_http
from tidewheel.errors import StoreError
from tidewheel.verification.store_checks import Finding, Level, look_around

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

START_SECONDS: Final = 5.0
"""How long a worker has been at work before: by then it has rescued what those before it left, and whoever
runs a worker for a moment only does not pay."""
TURN_SECONDS: Final = 60.0
"""Of the workers that start within so long one looks."""
MOST_JOBS: Final = 100_000
"""Of so many jobs the store's own check takes a second; more are left to ``tidewheel doctor``."""
LARGEST_FILE: Final = 256 * 1024 * 1024
"""The same for an SQLite file, which SQLite checks as a whole, with the tables of the application in it."""
MOST_FILES: Final = 1000
"""File jobs that are compared with the disk, the newest of each task."""
MOST_NAMES: Final = 10_000
"""Names beneath the roots among which files of killed runs are looked for."""
MOST_TOLD: Final = 20
TURN: Final = "doctor"
"""The kind of the document that says whose turn it is."""

_log = logging.getLogger("tidewheel.doctor")


async def look_after_start(app: Tidewheel) -> None:
    """Wait a moment, look, and log what is wrong, unless it is switched off. Raises only when cancelled."""
    if not app.settings.check_on_start or over_http(app.url):  # the server has the store, and looks itself
        return
    await asyncio.sleep(START_SECONDS * jitter(1.0, 1.5))  # not all at once
    try:
        if await _is_our_turn(app):
            _tell(*await _look(app))
    except StoreError as error:
        _log.info("the store could not be looked at after the start: %s", error)
    except Exception:  # whatever it is, the worker has jobs to run
        _log.warning("the look at the store after the start failed", exc_info=True)


async def _is_our_turn(app: Tidewheel) -> bool:
    until = await app.store.now() + seconds_to_microseconds(TURN_SECONDS)
    [version] = await app.store.write_documents([NewDocument(TURN, "start", b"{}", until, only_version=0)])
    return version is not None


async def _look(app: Tidewheel) -> tuple[list[Finding], bool]:
    """What was found; False when the store's own check was left out."""
    found: list[Finding] = []
    small = await _is_small(app)
    if small:
        found += [Finding(Level.PROBLEM, problem) for problem in await app.check()]
    around, _ = await look_around(app, most_files=MOST_FILES, most_names=MOST_NAMES)
    return found + around, small


async def _is_small(app: Tidewheel) -> bool:
    stats = await app.store.stats(window_seconds=60.0)
    jobs = stats.pending + stats.running + stats.completed + stats.failed + stats.cancelled
    file = app.describe().get("file")
    if file is not None and os.stat(file).st_size > LARGEST_FILE:
        return False
    return jobs <= MOST_JOBS


def _tell(found: list[Finding], checked: bool) -> None:
    problems = [finding for finding in found if finding.level is Level.PROBLEM]
    doubts = [finding for finding in found if finding.level is Level.DOUBT]
    for finding in problems[:MOST_TOLD]:
        _log.warning("wrong: %s", finding.text)
    for finding in doubts[:MOST_TOLD]:
        _log.info("in doubt: %s", finding.text)
    if len(problems) > MOST_TOLD:
        _log.warning("and %d more things are wrong; tidewheel doctor tells them", len(problems) - MOST_TOLD)
    left_out = "" if checked else "; its own check was left out, it is large: tidewheel doctor runs it"
    _log.info("looked at the store: %d wrong, %d in doubt%s", len(problems), len(doubts), left_out)
