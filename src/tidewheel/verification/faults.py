"""The trouble a sweep makes: what happens to processes and to the store, one kind each."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tidewheel.errors import StoreError
from tidewheel.stores import Scratch
from tidewheel.verification.history import Recorder, StoreCame, StoreLeft
from tidewheel.verification.history import Trouble as TroubleEvent
from tidewheel.verification.process_group import Crew, Member, Role
from tidewheel.worker.async_waits import look_at

ANSWER_SECONDS = 10.0
"""How long a probe may take once nobody is frozen any more."""
PROBE_SECONDS = 0.3
"""A commit that takes longer than this while somebody is frozen waits for what the frozen one holds."""


@dataclass(slots=True)
class Scene:
    """What troubles happen to."""

    crew: Crew
    choose: random.Random
    lease: float
    recorder: Recorder
    scratch: Scratch

    def happened(self, kind: str) -> None:
        self.recorder.write(TroubleEvent(at=self.recorder.now(), kind=kind))

    def victim(self, role: Role) -> Member | None:
        """Somebody to do it to, if anybody is left."""
        working = self.crew.working(role)
        return self.choose.choice(working) if working else None


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind. ``happen`` returns when it is over, and does nothing where it cannot be done just now."""

    kind: str
    weight: float
    happen: Callable[[Scene], Coroutine[Any, Any, None]]


async def kill_worker(scene: Scene) -> None:
    if (victim := scene.victim("worker")) is not None:
        scene.crew.kill(victim)
        scene.happened("worker killed")


async def kill_producer(scene: Scene) -> None:
    if (victim := scene.victim("producer")) is not None:
        scene.crew.kill(victim)
        scene.happened("producer killed")


async def stop_worker(scene: Scene) -> None:
    if (victim := scene.victim("worker")) is not None:
        scene.happened("worker stopped")
        await scene.crew.stop(victim)


async def freeze_briefly(scene: Scene) -> None:
    await _freeze(scene, scene.choose.uniform(0.2, 0.9) * scene.lease, "worker frozen for less than a lease")


async def freeze_for_long(scene: Scene) -> None:
    longer = scene.lease + scene.choose.uniform(1.0, 2.0) * scene.lease
    await _freeze(scene, longer, "worker frozen past its lease")


async def _freeze(scene: Scene, seconds: float, kind: str) -> None:
    victim = scene.victim("worker")
    if victim is None:
        return
    me = scene.recorder
    scene.crew.freeze(victim)
    left = me.now()
    probe = asyncio.ensure_future(scene.scratch.commit())
    done, _ = await asyncio.wait((probe,), timeout=PROBE_SECONDS)
    if not done:
        # It stands still in the middle of a write: on SQLite nobody else can write until it goes on.
        kind = "worker frozen in the middle of a write"
        me.write(StoreLeft(at=left))
    scene.happened(kind)
    try:
        await asyncio.sleep(seconds)
    finally:
        scene.crew.thaw(victim)
        done_late, _ = await asyncio.wait((probe,), timeout=ANSWER_SECONDS)
        if not done_late:
            probe.cancel()  # its connection is dead, which is nobody's business here
        if not done:
            me.write(StoreCame(at=me.now()))
        look_at(probe)  # whether its commit was refused is of no interest


async def disturb_store(scene: Scene) -> None:
    me = scene.recorder
    began = me.now()
    try:
        kind = await scene.scratch.disturb(scene.choose.uniform(0.2, 1.0) * scene.lease)
    except StoreError:
        return  # another trouble was faster
    if kind is not None:
        me.write(StoreLeft(at=began))
        me.write(StoreCame(at=me.now()))
        scene.happened(kind)


def troubles_here() -> list[Trouble]:
    """What can be done to any store on this machine, without special rights."""
    troubles = [
        Trouble("kill worker", 4, kill_worker),
        Trouble("kill producer", 1, kill_producer),
        Trouble("stop worker", 2, stop_worker),
        Trouble("disturb store", 2, disturb_store),
    ]
    if hasattr(signal, "SIGSTOP"):
        troubles += [
            Trouble("freeze briefly", 2, freeze_briefly),
            Trouble("freeze for long", 2, freeze_for_long),
        ]
    return troubles
