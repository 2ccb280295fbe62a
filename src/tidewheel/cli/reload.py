"""``--reload``: a parent that starts the worker anew whenever a source file of the project changes.

The parent imports nothing of the project, so nothing there can be stale.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click

from tidewheel.cli import child_process
from tidewheel.cli.child_process import POLL_SECONDS, ChildProcess, StopRequests
from tidewheel.cli.error_output import EXIT_DEGRADED

GRACE_SECONDS: Final = 3.0
"""How long running jobs may finish before a reload; then they are given back."""
KILL_SECONDS: Final = 5.0
"""How long a child that was told twice may still take."""
REST_FACTOR: Final = 10
"""A look at the files is followed by a rest of so many times what it took: thousands of files must not cost
more than a tenth of a core."""
MAX_FILES: Final = 20_000
"""More files than this are not watched: the working directory is then hardly a project's."""

_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "dist-packages"})


def run_with_reload(app_reference: str) -> int:
    """Run the worker in a child, again after every change, until told to stop; the exit code."""
    files = SourceFiles(project_roots(app_reference))
    arguments = _child_arguments(sys.argv[1:])
    _print_message(f"watching .py files in {', '.join(map(str, files.roots))}")
    with child_process.count_stop_signals() as stop:
        while True:
            # Without byte code: two edits within a second and of one length would run the older one again.
            child = ChildProcess(arguments, {"PYTHONDONTWRITEBYTECODE": "1"})
            changed = _wait_for_change(files, stop, child)
            if stop.urgency():
                child_process.forward_stop_requests(stop, [child])
                return child_process.shell_exit_code(child.returncode)
            if not changed:
                if child.wait() == EXIT_DEGRADED:
                    _print_message("half the slots of the worker are stuck; it starts anew")
                    child.wait_and_close()
                    continue
                code = child_process.shell_exit_code(child.returncode)
                if code == 0:
                    return 0
                _print_message(f"the worker ended with exit code {code}; it starts again when a file changes")
                child.wait_and_close()
                changed = _wait_for_change(files, stop, None)
                if stop.urgency():
                    return code
            _print_message(f"{changed} changed: starting anew")
            _stop_child(child, stop)
            if stop.urgency():
                return child_process.shell_exit_code(child.returncode)


def _wait_for_change(files: SourceFiles, stop: StopRequests, child: ChildProcess | None) -> str:
    """Until a file changes (which one), a signal asks to stop, or the child has ended (nothing)."""
    pause = POLL_SECONDS
    while not stop.urgency() and (child is None or child.poll() is None):
        stop.sleep(pause)
        began = time.monotonic()
        changed = files.next_change()
        if changed:
            return changed
        pause = max(POLL_SECONDS, REST_FACTOR * (time.monotonic() - began))
    return ""


def project_roots(app_reference: str) -> list[Path]:
    """Directories to watch: the working directory, and the app's package when it lies elsewhere."""
    here = Path.cwd()
    roots = [here]
    top = app_reference.partition(":")[0].partition(".")[0]
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    try:
        spec = importlib.util.find_spec(top) if top else None
    except (ImportError, ValueError):
        spec = None  # the child says what is wrong with the name
    if spec is not None:
        places = list(spec.submodule_search_locations or [])
        if not places and spec.origin is not None and spec.has_location:
            places = [str(Path(spec.origin).parent)]
        roots += [Path(place) for place in places if not Path(place).is_relative_to(here)]
    return roots


class SourceFiles:
    """The source files below some directories, and which of them changed since the last look."""

    def __init__(self, roots: list[Path]) -> None:
        self.roots = roots
        self._last_scan = self._scan()

    def next_change(self) -> str:
        """A file that is new, gone or different since the last call; empty when there is none."""
        before, self._last_scan = self._last_scan, self._scan()
        for path in sorted(before.keys() | self._last_scan.keys()):
            if before.get(path) != self._last_scan.get(path):
                return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else path
        return ""

    def _scan(self) -> dict[str, tuple[int, int, int]]:
        """Every file with its time of change, its size and its number.

        Another file may be put in its place with the time and the size of the first.
        """
        found: dict[str, tuple[int, int, int]] = {}
        for path in itertools.islice(_source_files(self.roots), MAX_FILES):
            try:
                status = os.stat(path)
            except OSError:
                continue  # gone since it was listed; the next look misses it
            found[path] = (status.st_mtime_ns, status.st_size, status.st_ino)
        return found


def _source_files(roots: list[Path]) -> Iterator[str]:
    for root in roots:
        for directory, names, files in os.walk(root):
            names[:] = [name for name in names if _may_hold_sources(directory, name)]
            for file in files:
                if file.endswith(".py"):
                    yield os.path.join(directory, file)


def _may_hold_sources(directory: str, name: str) -> bool:
    if name in _SKIPPED or name.startswith("."):
        return False
    return not os.path.exists(os.path.join(directory, name, "pyvenv.cfg"))  # a virtual environment


def _child_arguments(arguments: list[str]) -> list[str]:
    """Our own command line, for the child. Only the flag itself is taken out, never a value that looks so."""
    index = arguments.index("--reload")
    return [*arguments[:index], "--supervised", *arguments[index + 1 :]]


def _stop_child(child: ChildProcess, stop: StopRequests) -> None:
    """Before a reload: a moment to finish, then give back, then no more patience.

    If somebody asks to stop meanwhile there is no reload, and jobs have all the time they have otherwise.
    """
    asked = 0
    for patience in (GRACE_SECONDS, KILL_SECONDS):
        if stop.urgency() or child.poll() is not None:
            break
        child.request_stop()
        asked += 1
        deadline = time.monotonic() + patience
        while child.poll() is None and not stop.urgency() and (left := deadline - time.monotonic()) > 0:
            stop.sleep(min(left, POLL_SECONDS / 5))
    if stop.urgency():
        child_process.forward_stop_requests(stop, [child], forwarded=asked)
        return
    if child.poll() is None:
        child.kill()
    child.wait_and_close()


def _print_message(message: str) -> None:
    click.secho(f"reload: {message}", fg="blue", err=True)
