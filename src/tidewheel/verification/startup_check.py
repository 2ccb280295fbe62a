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
from tidewheel.core.urls import is_http_url
from tidewheel.errors import StoreError
from tidewheel.verification.store_checks import DoctorFinding, FindingLevel, check_open_store

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel

CHECK_DELAY_SECONDS: Final = 5.0
"""How long a worker has been at work before: by then it has rescued what those before it left, and whoever
runs a worker for a moment only does not pay."""
CHECK_LOCK_SECONDS: Final = 60.0
"""Of the workers that start within so long one looks."""
MAX_JOBS: Final = 100_000
"""Of so many jobs the store's own check takes a second; more are left to ``tidewheel doctor``."""
MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""The same for an SQLite file, which SQLite checks as a whole, with the tables of the application in it."""
MAX_FILES: Final = 1000
"""File jobs that are compared with the disk, the newest of each task."""
MAX_NAMES: Final = 10_000
"""Names beneath the roots among which files of killed runs are looked for."""
MAX_LOGGED: Final = 20
CHECK_LOCK_KIND: Final = "doctor"
"""The kind of the document that says whose turn it is."""

_log = logging.getLogger("tidewheel.doctor")


async def run_startup_check(app: Tidewheel) -> None:
    """Wait a moment, look, and log what is wrong, unless it is switched off. Raises only when cancelled."""
    if not app.settings.check_on_start or is_http_url(app.url):  # the server has the store, and looks itself
        return
    await asyncio.sleep(CHECK_DELAY_SECONDS * jitter(1.0, 1.5))  # not all at once
    try:
        if await _take_check_lock(app):
            _log_findings(*await _find_problems(app))
    except StoreError as error:
        _log.info("the store could not be looked at after the start: %s", error)
    except Exception:  # whatever it is, the worker has jobs to run
        _log.warning("the look at the store after the start failed", exc_info=True)


async def _take_check_lock(app: Tidewheel) -> bool:
    until = await app.store.now() + seconds_to_microseconds(CHECK_LOCK_SECONDS)
    [version] = await app.store.write_documents(
        [NewDocument(CHECK_LOCK_KIND, "start", b"{}", until, expected_version=0)]
    )
    return version is not None


async def _find_problems(app: Tidewheel) -> tuple[list[DoctorFinding], bool]:
    """What was found; False when the store's own check was left out."""
    found: list[DoctorFinding] = []
    small = await _is_small(app)
    if small:
        found += [DoctorFinding(FindingLevel.PROBLEM, problem) for problem in await app.check()]
    around, _ = await check_open_store(app, most_files=MAX_FILES, most_names=MAX_NAMES)
    return found + around, small


async def _is_small(app: Tidewheel) -> bool:
    stats = await app.store.stats(window_seconds=60.0)
    jobs = stats.pending + stats.running + stats.completed + stats.failed + stats.cancelled
    file = app.describe().get("file")
    if file is not None and os.stat(file).st_size > MAX_FILE_BYTES:
        return False
    return jobs <= MAX_JOBS


def _log_findings(found: list[DoctorFinding], checked: bool) -> None:
    problems = [finding for finding in found if finding.level is FindingLevel.PROBLEM]
    doubts = [finding for finding in found if finding.level is FindingLevel.DOUBT]
    for finding in problems[:MAX_LOGGED]:
        _log.warning("wrong: %s", finding.text)
    for finding in doubts[:MAX_LOGGED]:
        _log.info("in doubt: %s", finding.text)
    if len(problems) > MAX_LOGGED:
        _log.warning("and %d more things are wrong; tidewheel doctor tells them", len(problems) - MAX_LOGGED)
    left_out = "" if checked else "; its own check was left out, it is large: tidewheel doctor runs it"
    _log.info("looked at the store: %d wrong, %d in doubt%s", len(problems), len(doubts), left_out)
