"""The power fails at any moment: with a sync per commit, nothing that was acknowledged is lost."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.sqlite.power_cut import Recording, losses, record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="strace is Linux's")

SEED = 20_240_611


def _some(recording: Recording, number: int) -> list[int]:
    """Half of them right after an acknowledgement, which is when there is most to lose."""
    luck = random.Random(SEED)
    moments = recording.moments()
    after = [place for place, call in enumerate(recording.calls, 1) if recording.is_acknowledgement(call)]
    return sorted({*luck.sample(after, min(number // 2, len(after))), *luck.sample(moments, number // 2)})


def _assert_it_has_everything(recording: Recording) -> None:
    """Without checkpoints, or a log that was removed and made anew, a recording would prove little."""
    kinds = Counter((call.name, Path(call.path).name) for call in recording.calls if not call.failed)
    assert kinds["pwrite64", "jobs.db-wal"] > 100
    assert kinds["pwrite64", "jobs.db"] > 20
    assert kinds["unlink", "jobs.db-wal"] >= 2
    headers = [c for c in recording.calls if c.path.endswith("-wal") and c.offset == 0 and len(c.data) == 32]
    assert len(headers) > 4, "the log was not restarted"


async def test_nothing_acknowledged_is_lost_when_the_power_fails(tmp_path: Path) -> None:
    """Acknowledged jobs and completions are there, whatever else reached the disk, and the file is sound."""
    recording = record(tmp_path, "full", rounds=5)
    _assert_it_has_everything(recording)
    found = await losses(recording, _some(recording, 40), SEED)
    print(found)
    assert found.rebuilt >= 100
    assert found.acknowledged > 1000
    assert found.lost == 0


async def test_without_a_sync_per_commit_acknowledged_jobs_are_lost_and_the_file_is_sound(
    tmp_path: Path,
) -> None:
    """The documented price of ``synchronous=normal``; it also shows that the replay can see a loss."""
    recording = record(tmp_path, "normal", rounds=5)
    found = await losses(recording, _some(recording, 20), SEED)
    print(found)
    assert found.rebuilt >= 50
    assert found.lost > 0


@pytest.mark.long
async def test_nothing_acknowledged_is_lost_at_hundreds_of_moments_of_a_longer_run(tmp_path: Path) -> None:
    """``python -m tests.faults.sqlite.power_cut`` tries every single one."""
    recording = record(tmp_path, "full", rounds=12)
    _assert_it_has_everything(recording)
    found = await losses(recording, _some(recording, 300), SEED)
    print(found)
    assert found.cuts > 200
    assert found.lost == 0
