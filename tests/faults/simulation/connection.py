"""The way from a process to the store: slow, lossy, and cut now and then."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any

from tests.faults.simulation.loop import SimulatedLoop, Timeline
from tidewheel.errors import StoreUnavailable
from tidewheel.stores.memory import MemoryStore
from tidewheel.stores.wakeups import WakeupSubscription

VERBS = frozenset({
    "open", "now", "enqueue", "claim", "mark_started", "extend", "settle", "report",
    "finished_steps",
    "cancel_requests", "cancel", "rescue", "prune", "heartbeat", "deregister_worker", "list_jobs",
    "document", "documents", "write_documents", "enqueue_with_document", "limits", "set_limits",
})  # fmt: skip


class Weather:
    """How bad a network is just now; one for each process."""

    __slots__ = (
        "cut", "cut_from", "ever_bad", "hang", "hint_loss", "lose_reply", "lose_request", "only", "refuses",
        "slowest",
    )  # fmt: skip

    def __init__(self) -> None:
        self.slowest = 0.01  # seconds one way
        self.cut = False  # nothing gets through
        self.cut_from = ""  # who is cut off, for the history
        self.refuses = False  # who is cut off is told at once, instead of having to wait
        self.lose_request = self.lose_reply = self.hang = 0.0  # chances
        self.only: Collection[str] = ()  # when not empty, just calls of these verbs are lost
        self.hint_loss = 0.0
        self.ever_bad = False  # calls were lost, or slow

    def clear_up(self) -> None:
        self.lose_request = self.lose_reply = self.hang = self.hint_loss = 0.0


class Network:
    """Carries calls to the one store and answers back. What is under way arrives even if its sender dies."""

    def __init__(
        self,
        timeline: Timeline,
        store: MemoryStore,
        chance: random.Random,
        tell: Callable[[str], None],
        patience: float,
    ) -> None:
        self.store = store
        self.under_way = 0  # requests that may still change something
        self._timeline = timeline
        self._chance = chance.random
        self._tell = tell
        self._patience = patience  # of the driver with a connection that has gone silent

    async def call(self, weather: Weather, verb: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Send a call, wait for what comes back."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimulatedLoop)
        if weather.cut and weather.refuses:
            self._tell("call refused")
            raise StoreUnavailable("the store cannot be reached")
        chance, after = self._chance, self._timeline.after
        answer: asyncio.Future[Any] = loop.create_future()
        lossy = not weather.only or verb in weather.only
        if weather.cut or (lossy and chance() < weather.lose_request):
            self._tell("request lost")
            self._silence(loop, answer, weather, lossy)
            return await answer

        def arrive() -> None:
            self.under_way -= 1
            value, error = self._carry_out(verb, args, kwargs)
            if weather.cut or (lossy and chance() < weather.lose_reply):
                self._tell(f"reply to {verb} lost")
                self._silence(loop, answer, weather, lossy)
            else:
                after(weather.slowest * chance() ** 2, lambda: _deliver(loop, answer, value, error))

        self.under_way += 1
        after(weather.slowest * chance() ** 2, arrive)
        return await answer

    def _silence(
        self, loop: SimulatedLoop, answer: asyncio.Future[Any], weather: Weather, lossy: bool
    ) -> None:
        """No answer. The connection is found to be broken after a while, or only when patience ends."""
        hangs = lossy and self._chance() < weather.hang
        if hangs:
            self._tell("call hangs")
        error = StoreUnavailable("the connection was lost")
        seconds = self._patience if hangs else 0.3 * self._chance()
        self._timeline.after(seconds, lambda: _deliver(loop, answer, None, error))

    def _carry_out(
        self, verb: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, Exception | None]:
        """The store's own doing, which never waits."""
        call = getattr(self.store, verb)(*args, **kwargs)
        try:
            call.send(None)
        except StopIteration as done:
            return done.value, None
        except Exception as error:
            return None, error
        raise AssertionError(f"{verb} of the memory store waits for something")

    def pass_on_hint(self, weather: Weather, hear: Callable[[], None]) -> None:
        if weather.cut or (weather.hint_loss and self._chance() < weather.hint_loss):
            self._tell("hint lost")
        else:
            self._timeline.after(weather.slowest * self._chance() ** 2, hear)


class LossyStore:
    """One handle of one process; its siblings go through the same weather."""

    url = "memory://"
    clock_step_seconds = 0.0
    notifications_down = False  # hints get lost on the way, which nobody notices

    def __init__(self, network: Network, weather: Weather) -> None:
        self._network = network
        self._weather = weather
        for verb in VERBS:
            setattr(self, verb, self._verb(verb))

    def _verb(self, verb: str) -> Callable[..., Any]:
        network, weather = self._network, self._weather
        return lambda *args, **kwargs: network.call(weather, verb, args, kwargs)

    def sibling(self) -> LossyStore:
        return LossyStore(self._network, self._weather)

    async def close(self) -> None:
        """Nothing to let go of."""

    def wakeups(self, *, topics: Collection[str] | None = (), finished: bool = False) -> DistantWakeups:
        return DistantWakeups(self._network, self._weather, topics, finished)


class DistantWakeups(WakeupSubscription):
    """A subscription over the network. The worker's own nudge takes no such way."""

    def __init__(
        self, network: Network, weather: Weather, topics: Collection[str] | None, finished: bool
    ) -> None:
        super().__init__(topics=topics, finished=finished)
        self._ear = _Ear(self, network, weather)

    async def __aenter__(self) -> DistantWakeups:
        self._ear.attach()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ear.detach()


class _Ear(WakeupSubscription):
    """The store's end of a subscription."""

    def __init__(self, wakeups: DistantWakeups, network: Network, weather: Weather) -> None:
        super().__init__(topics=wakeups.topics, finished=wakeups.finished)
        self._wakeups = wakeups
        self._network = network
        self._weather = weather
        self._hub = network.store._table.hub

    def attach(self) -> None:
        self._hub._subscriptions = (*self._hub._subscriptions, self)

    def detach(self) -> None:
        self._hub._subscriptions = tuple(one for one in self._hub._subscriptions if one is not self)

    def nudge(self) -> None:
        self._network.pass_on_hint(self._weather, self._wakeups.nudge)


def _deliver(loop: SimulatedLoop, answer: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_set, answer, value, error)


def _set(answer: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    """Nobody may be waiting any more."""
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)
