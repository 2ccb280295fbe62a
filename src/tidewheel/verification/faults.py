"""The trouble a sweep makes: what happens to processes and to the store, one kind each."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from tidewheel.errors import StoreError
from tidewheel.stores import TemporaryStore
from tidewheel.verification.history import FaultInjected as TroubleEvent
from tidewheel.verification.history import Recorder, StoreReachable, StoreUnreachable
from tidewheel.verification.process_group import ManagedProcess, ProcessGroup, Role
from tidewheel.worker.async_waits import retrieve_exception

PROBE_TIMEOUT_SECONDS = 10.0
"""How long a probe may take once nobody is frozen any more."""
BLOCKED_COMMIT_SECONDS = 0.3
"""A commit that takes longer than this while somebody is frozen waits for what the frozen one holds."""


@dataclass(slots=True)
class FaultContext:
    """What troubles happen to."""

    processes: ProcessGroup
    choose: random.Random
    lease: float
    recorder: Recorder
    scratch: TemporaryStore

    def record_fault(self, kind: str) -> None:
        self.recorder.write(TroubleEvent(at=self.recorder.now(), kind=kind))

    def pick_process(self, role: Role) -> ManagedProcess | None:
        """Somebody to do it to, if anybody is left."""
        working = self.processes.working(role)
        return self.choose.choice(working) if working else None


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind. ``inject`` returns when it is over, and does nothing where it cannot be done just now."""

    kind: str
    weight: float
    inject: Callable[[FaultContext], Coroutine[Any, Any, None]]


async def kill_worker(scene: FaultContext) -> None:
    if (victim := scene.pick_process("worker")) is not None:
        scene.processes.kill(victim)
        scene.record_fault("worker killed")


async def kill_producer(scene: FaultContext) -> None:
    if (victim := scene.pick_process("producer")) is not None:
        scene.processes.kill(victim)
        scene.record_fault("producer killed")


async def stop_worker(scene: FaultContext) -> None:
    if (victim := scene.pick_process("worker")) is not None:
        scene.record_fault("worker stopped")
        await scene.processes.stop(victim)


async def freeze_briefly(scene: FaultContext) -> None:
    await _freeze(scene, scene.choose.uniform(0.2, 0.9) * scene.lease, "worker frozen for less than a lease")


async def freeze_for_long(scene: FaultContext) -> None:
    longer = scene.lease + scene.choose.uniform(1.0, 2.0) * scene.lease
    await _freeze(scene, longer, "worker frozen past its lease")


async def _freeze(scene: FaultContext, seconds: float, kind: str) -> None:
    victim = scene.pick_process("worker")
    if victim is None:
        return
    me = scene.recorder
    scene.processes.freeze(victim)
    left = me.now()
    probe = asyncio.ensure_future(scene.scratch.measure_commit())
    done, _ = await asyncio.wait((probe,), timeout=BLOCKED_COMMIT_SECONDS)
    if not done:
        # It stands still in the middle of a write: on SQLite nobody else can write until it goes on.
        kind = "worker frozen in the middle of a write"
        me.write(StoreUnreachable(at=left))
    scene.record_fault(kind)
    try:
        await asyncio.sleep(seconds)
    finally:
        scene.processes.thaw(victim)
        done_late, _ = await asyncio.wait((probe,), timeout=PROBE_TIMEOUT_SECONDS)
        if not done_late:
            probe.cancel()  # its connection is dead, which is nobody's business here
        if not done:
            me.write(StoreReachable(at=me.now()))
        retrieve_exception(probe)  # whether its commit was refused is of no interest


async def disturb_store(scene: FaultContext) -> None:
    me = scene.recorder
    began = me.now()
    try:
        kind = await scene.scratch.inject_fault(scene.choose.uniform(0.2, 1.0) * scene.lease)
    except StoreError:
        return  # another trouble was faster
    if kind is not None:
        me.write(StoreUnreachable(at=began))
        me.write(StoreReachable(at=me.now()))
        scene.record_fault(kind)


def available_faults() -> list[Fault]:
    """What can be done to any store on this machine, without special rights."""
    troubles = [
        Fault("kill worker", 4, kill_worker),
        Fault("kill producer", 1, kill_producer),
        Fault("stop worker", 2, stop_worker),
        Fault("disturb store", 2, disturb_store),
    ]
    if hasattr(signal, "SIGSTOP"):
        troubles += [
            Fault("freeze briefly", 2, freeze_briefly),
            Fault("freeze for long", 2, freeze_for_long),
        ]
    return troubles
