"""Two runs of one job at once: the first was frozen past its lease and goes on when nobody expects it."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.builtin.system_call_steps import step_through
from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.testing.clock import FrozenClock


class Runs:
    """Stops the first run before it puts its file in place, and the second in the middle of its writing."""

    def __init__(self) -> None:
        self._threads: list[int] = []
        self.first_waits, self.first_goes_on = threading.Event(), threading.Event()
        self.second_waits, self.second_goes_on = threading.Event(), threading.Event()

    def step(self, _number: int, name: str, args: tuple[Any, ...]) -> None:
        here = threading.get_ident()
        if here not in self._threads:
            self._threads.append(here)
        if here == self._threads[0] and name in {"rename", "link"}:
            self.first_waits.set()
            assert self.first_goes_on.wait(PATIENCE)
        elif here != self._threads[0] and name == "write" and not self.second_waits.is_set():
            os.write(args[0], bytes(args[1])[:2])
            os.lseek(args[0], 0, os.SEEK_SET)
            self.second_waits.set()
            assert self.second_goes_on.wait(PATIENCE)

    def let_go(self) -> None:
        self.first_goes_on.set()
        self.second_goes_on.set()


@pytest.mark.parametrize("overwrite", [True, False], ids=["replaced", "new"])
async def test_a_run_that_was_overtaken_cannot_put_half_a_file_in_place(
    app: Tidewheel, root: Path, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch, overwrite: bool
) -> None:
    """It has a temporary file of its own, which the newer run has removed; that one's is not its to use."""
    target = root / "note"
    if overwrite:
        target.write_text("old")
    runs = Runs()
    step_through(monkeypatch, runs.step)
    job = await app.enqueue("create_file", {"path": "note", "content": "the new one", "overwrite": overwrite})
    first = asyncio.ensure_future(app.run_until_idle(name="first"))
    try:
        assert await asyncio.to_thread(runs.first_waits.wait, PATIENCE)
        clock.advance(3600)
        second = asyncio.ensure_future(app.run_until_idle(name="second"))
        assert await asyncio.to_thread(runs.second_waits.wait, PATIENCE)
        runs.first_goes_on.set()
        await first
        assert (target.read_text() if target.exists() else None) == ("old" if overwrite else None)
        runs.second_goes_on.set()
        await second
    finally:
        runs.let_go()
    assert (await app.get(job.id)).state == "completed"
    assert target.read_text() == "the new one"
    assert os.listdir(root) == ["note"]
