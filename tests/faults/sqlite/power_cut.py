"""Power cuts, replayed from the recorded system calls of a real workload.

``python -m tests.faults.sqlite.power_cut`` tries every moment, with and without a sync per commit, and prints
what was lost. Under ``full`` nothing may be; under ``normal`` something is, which shows that this can see it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

from tests.faults.sqlite.checks import jobs_after
from tests.faults.sqlite.replay import Disk, Variant
from tests.faults.sqlite.strace import CHANGING, Call, Tracing, lasting, read_log, refused, strace
from tidewheel.core.model import State

LONGEST_WRITE = 70_000
"""Bytes of one call that are recorded; SQLite writes a page at a time."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The calls of one run on an empty directory."""

    directory: Path
    synchronous: str
    calls: list[Call]
    acknowledgements: str

    def is_acknowledgement(self, call: Call) -> bool:
        return call.path == self.acknowledgements and call.name == "write"

    def moments(self) -> list[int]:
        """After which calls the power may fail, so that something is different."""
        return [place for place, call in enumerate(self.calls, 1) if not call.failed]


@dataclass(slots=True)
class Told:
    """What callers had been told by some moment."""

    enqueued: set[UUID] = field(default_factory=set)
    completed: set[UUID] = field(default_factory=set)

    def hear(self, line: bytes) -> None:
        what, job_id = line.decode().split()
        (self.enqueued if what == "enqueued" else self.completed).add(UUID(job_id))


@dataclass(slots=True)
class Losses:
    """What a row of the table says."""

    cuts: int = 0
    rebuilt: int = 0
    acknowledged: int = 0
    lost: int = 0


def record(directory: Path, synchronous: str, rounds: int) -> Recording:
    """Run the workload under strace."""
    home = directory / f"recorded-{synchronous}"
    home.mkdir()
    database, acknowledgements = home / "jobs.db", directory / f"told-{synchronous}"
    tracing = Tracing(
        paths=(*lasting(database), acknowledgements),
        log=directory / f"{synchronous}.log",
        calls=(*CHANGING, "openat"),
        bytes_shown=LONGEST_WRITE,
    )
    url = f"sqlite:///{database}?synchronous={synchronous}"
    program = [
        sys.executable,
        "-m",
        "tests.faults.sqlite.recorded_program",
        url,
        str(acknowledgements),
        str(rounds),
    ]
    answer = subprocess.run(
        tracing.run(program), check=False, env=strace()[1], capture_output=True, text=True
    )
    if "PTRACE" in answer.stderr or "ptrace" in answer.stderr:
        raise refused(answer.stderr)
    assert answer.returncode == 0, answer.stderr
    return Recording(home, synchronous, read_log(tracing.log), str(acknowledgements))


def cut(recording: Recording, moments: Collection[int], seed: int) -> Iterator[tuple[Path, Told]]:
    """Every variant of what is left at each of these moments, and what had been told by then."""
    wanted = set(moments)
    disk, told, luck = Disk(recording.directory), Told(), random.Random(seed)
    for place, call in enumerate(recording.calls, 1):
        if recording.is_acknowledgement(call):
            told.hear(call.data)
        elif call.path != recording.acknowledgements:
            disk.feed(call)
        if place in wanted:
            for variant in Variant:
                with tempfile.TemporaryDirectory(prefix="tidewheel-cut-") as left:
                    disk.cut(variant, luck, Path(left))
                    yield Path(left) / "jobs.db", told


async def lost_of(database: Path, told: Told) -> int:
    """How much of what was acknowledged is not so. The file itself must be sound, whatever is lost."""
    jobs = await jobs_after(database, "?synchronous=normal")  # nobody cuts the power of this look
    lost = told.enqueued - jobs.keys()
    undone = {id_ for id_ in told.completed - lost if jobs[id_].state is not State.COMPLETED}
    return len(lost) + len(undone)


async def losses(recording: Recording, moments: Collection[int], seed: int) -> Losses:
    found = Losses(cuts=len(moments))
    for database, told in cut(recording, moments, seed):
        found.rebuilt += 1
        found.acknowledged += len(told.enqueued) + len(told.completed)
        found.lost += await lost_of(database, told)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12, help="jobs of each caller, twice (default 12)")
    parser.add_argument("--cuts", type=int, default=0, help="moments that are tried; 0 means every one")
    parser.add_argument("--seed", type=int, default=1, help="of what survives (default 1)")
    options = parser.parse_args()
    print(f"{'synchronous':12}{'cuts':>8}{'rebuilt':>9}{'acknowledged':>14}{'lost':>8}")
    broken = False
    with tempfile.TemporaryDirectory(prefix="tidewheel-power-") as directory:
        for synchronous in ("full", "normal"):
            recording = record(Path(directory), synchronous, options.rounds)
            moments = recording.moments()
            if options.cuts:
                moments = random.Random(options.seed).sample(moments, min(options.cuts, len(moments)))
            found = asyncio.run(losses(recording, moments, options.seed))
            print(
                f"{synchronous:12}{found.cuts:>8,}{found.rebuilt:>9,}{found.acknowledged:>14,}{found.lost:>8,}"
            )
            broken |= bool(found.lost) is (synchronous == "full")
    return int(broken)


if __name__ == "__main__":
    sys.exit(main())
