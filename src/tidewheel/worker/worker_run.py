"""What one run of a worker shares between its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidewheel.core.model import Claim
from tidewheel.stores.protocol import Wakeups
from tidewheel.worker.backoff import Backoff, RecoverySignal
from tidewheel.worker.callback_runner import CallbackRunner
from tidewheel.worker.executor import JobExecutor
from tidewheel.worker.heartbeat import WorkerHeartbeat
from tidewheel.worker.lease_keeper import LeaseKeeper
from tidewheel.worker.queue_sampler import QueueSampler
from tidewheel.worker.settler import Settler
from tidewheel.worker.slot_runner import SlotRunner
from tidewheel.worker.store_maintenance import Rescuer

STOP_CLAIM_TIMEOUT_SECONDS = 1.0
"""How long a worker that is to stop waits for the claim it has sent."""


class WorkerRun:
    """From the first claim of a run to its last words."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: JobExecutor,
        settler: Settler,
        callbacks: CallbackRunner,
        runner: SlotRunner,
        changed: asyncio.Event,
        recovery: RecoverySignal,
    ) -> None:
        self.loop = loop
        self.executor = executor
        self.settler = settler
        self.callbacks = callbacks
        self.runner = runner
        self.state_changed = changed  # a slot came free, a job was settled, or the worker is to stop
        self.recovery = recovery
        self.stopping = asyncio.Event()
        self.wakeups: Wakeups | None = None
        self.settler_task: asyncio.Task[None] | None = None
        self.pending_claim: asyncio.Future[Claim] | None = None
        self.lease_keeper: LeaseKeeper | None = None
        self.rescuer: Rescuer | None = None
        self.heartbeat: WorkerHeartbeat | None = None
        self.queue_sampler: QueueSampler | None = None
        self.claim_backoff: Backoff | None = None
        self.last_claim_at: float | None = None  # when a claim was last answered, monotonic
        self.has_enough_jobs = False  # it has all the jobs it wants
        self.limited_jobs_waiting = False  # jobs of topics with limits wait for a free slot here

    @property
    def failing(self) -> bool:
        """Whether a part that speaks with the store again and again did not get through when it last tried.

        Not the keeper and the settler, who speak when there are jobs: their last try may be long ago.
        """
        parts = (self.claim_backoff, self.rescuer, self.heartbeat)
        return any(part is not None and part.failing for part in parts)

    @property
    def idle(self) -> bool:
        """Whether everything that has ended is written, and everybody who wants to hear of it has."""
        return self.settler.idle and self.callbacks.idle

    def cancel_claim_after(self, seconds: float) -> asyncio.TimerHandle | None:
        """Cancel the claim under way if no answer comes in time. Its store gives back what it grants."""
        if self.pending_claim is None:
            return None
        return self.loop.call_later(seconds, self.pending_claim.cancel)

    def call_soon(self, function: Callable[[], None]) -> None:
        """On the worker's loop, from any thread; nothing when that loop is gone."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def wake(self) -> None:
        """Something was asked of the worker from outside: let every wait look again."""
        self.state_changed.set()
        self.stopping.set()
        self.cancel_claim_after(STOP_CLAIM_TIMEOUT_SECONDS)
        if self.wakeups is not None:
            self.wakeups.nudge()
