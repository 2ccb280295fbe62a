"""What one run of a worker shares between its parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidewheel.core.model import Claim
from tidewheel.stores.protocol import Wakeups
from tidewheel.worker.async_waits import Recovery
from tidewheel.worker.backoff import Backoff
from tidewheel.worker.callback_runner import CallbackRunner
from tidewheel.worker.executor import Workplace
from tidewheel.worker.heartbeat import Registrar
from tidewheel.worker.lease_keeper import Keeper
from tidewheel.worker.queue_sampler import Outlook
from tidewheel.worker.settler import Settler
from tidewheel.worker.slot_runner import Runner
from tidewheel.worker.store_maintenance import Janitor

STOPPED_SECONDS = 1.0
"""How long a worker that is to stop waits for the claim it has sent."""


class Events:
    """From the first claim of a run to its last words."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        workplace: Workplace,
        settler: Settler,
        callbacks: CallbackRunner,
        runner: Runner,
        changed: asyncio.Event,
        recovery: Recovery,
    ) -> None:
        self.loop = loop
        self.workplace = workplace
        self.settler = settler
        self.callbacks = callbacks
        self.runner = runner
        self.changed = changed  # a slot came free, a job was settled, or the worker is to stop
        self.recovery = recovery
        self.stopping = asyncio.Event()
        self.wakeups: Wakeups | None = None
        self.settling: asyncio.Task[None] | None = None
        self.claiming: asyncio.Future[Claim] | None = None
        self.keeper: Keeper | None = None
        self.janitor: Janitor | None = None
        self.registrar: Registrar | None = None
        self.outlook: Outlook | None = None
        self.claims: Backoff | None = None
        self.claimed_at: float | None = None  # when a claim was last answered, monotonic
        self.full = False  # it has all the jobs it wants
        self.kept_back = False  # jobs of topics with limits wait for a free slot here

    @property
    def failing(self) -> bool:
        """Whether a part that speaks with the store again and again did not get through when it last tried.

        Not the keeper and the settler, who speak when there are jobs: their last try may be long ago.
        """
        parts = (self.claims, self.janitor, self.registrar)
        return any(part is not None and part.failing for part in parts)

    @property
    def idle(self) -> bool:
        """Whether everything that has ended is written, and everybody who wants to hear of it has."""
        return self.settler.idle and self.callbacks.idle

    def call_off_claim(self, seconds: float) -> asyncio.TimerHandle | None:
        """Cancel the claim under way if no answer comes in time. Its store gives back what it grants."""
        if self.claiming is None:
            return None
        return self.loop.call_later(seconds, self.claiming.cancel)

    def call_soon(self, function: Callable[[], None]) -> None:
        """On the worker's loop, from any thread; nothing when that loop is gone."""
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def wake(self) -> None:
        """Something was asked of the worker from outside: let every wait look again."""
        self.changed.set()
        self.stopping.set()
        self.call_off_claim(STOPPED_SECONDS)
        if self.wakeups is not None:
            self.wakeups.nudge()
