"""Which attack runs at which size against which settings, and what must hold."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.server.hostile.attacks import Outcome
from tests.server.hostile.target import Target, Watch, watched

ROOT = Path(__file__).parents[3]
MAX_GROWTH = 50.0
"""MB of memory that an attack may cost."""
MAX_PROBE = 0.5
"""Seconds in which another client's /healthz must be answered, in the median: single probes may meet a moment
in which other programs have the processor.
"""


FREE_LINES = 5
"""Log lines besides one per second: one for each kind of refusal."""


@dataclass(frozen=True)
class Scene:
    """One attack. ``small`` and ``full`` are connections; an attacker gives up after some seconds."""

    attack: str
    small: int
    full: int
    give_up: float = 20.0
    full_give_up: float = 40.0
    must_be_cut: float = 1.0  # which share of the connections
    files: int = 0


SCENES = (
    Scene("endless_headers", 10, 10),
    Scene("endless_trailers", 4, 10),
    Scene("endless_trailer", 4, 10),
    Scene("endless_chunk_extension", 4, 10),
    Scene("pipelining", 1, 1),
    Scene("pipelining_unread", 20, 100),
    Scene("slow_readers", 300, 500, full_give_up=80),
    Scene("slow_heads", 100, 500),
    Scene("fat_heads", 400, 1000),
    Scene("fat_heads_with_bodies", 400, 1000),
    Scene("held_bodies", 60, 200),
    Scene("unread_bodies", 300, 900),
    Scene("long_names", 2, 2, give_up=2, full_give_up=10),
    Scene("malformed", 200, 2000),
    Scene("upgrades", 100, 1000),
    Scene("no_files", 400, 400, give_up=3, files=256, must_be_cut=0.0),
    Scene("many_connections", 600, 1500, must_be_cut=1 / 3),
)
QUICK_SETTINGS = {"request_seconds": 2, "max_connections_per_address": 400}
"""Limits in time that are short, so that the tests are."""


def run(scene: Scene, target: Target, *, full: bool = False) -> tuple[Outcome, Watch]:
    """Attack the server from another process, and watch it."""
    connections = scene.full if full else scene.small
    give_up = scene.full_give_up if full else scene.give_up
    with watched(target) as watch:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.server.hostile.attacks",
                scene.attack,
                str(target.port),
                str(connections),
                str(give_up),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    return Outcome(**json.loads(done.stdout)), watch


def broken_limits(scene: Scene, outcome: Outcome, watch: Watch) -> list[str]:
    """What did not hold."""
    found = []
    if watch.growth >= MAX_GROWTH:
        found.append(f"memory grew by {watch.growth:.0f} MB; the limit is {MAX_GROWTH:.0f}")
    if watch.median >= MAX_PROBE:
        found.append(f"/healthz took {watch.median:.2f} s in the median; the limit is {MAX_PROBE}")
    if outcome.cut < scene.must_be_cut * outcome.connections:
        found.append(f"{outcome.cut} of {outcome.connections} connections were cut")
    if watch.log_lines > watch.seconds + FREE_LINES:
        found.append(f"{watch.log_lines} log lines in {watch.seconds:.0f} s; the limit is one per second")
    return found
