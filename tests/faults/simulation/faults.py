"""What goes wrong in a run, and when: drawn from its seed before it begins."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.faults.simulation.connection import Weather
from tests.faults.simulation.process import Process
from tidewheel.verification.history import ClockStepped, StoreReachable, StoreUnreachable

if TYPE_CHECKING:
    from tests.faults.simulation.producers import Producer
    from tests.faults.simulation.world import Workplace, World

FATAL_VERBS = ((), (), ("claim",), ("settle",), ("extend",), ("enqueue",), ("mark_started", "settle"))


class Faults:
    """Strikes the world at moments of its choice. ``heal`` ends whatever still goes on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = random.Random(world.chance.random())
        self.length = self._chance.uniform(2.0, 4.0 + world.lease)
        if self._chance.random() < 0.3:  # long enough for outages that outlast leases and those who hold them
            self.length += 2 * world.lease
        kinds: list[Callable[[], None]] = [
            self._kill, self._kill, self._freeze, self._cut_one, self._cut_one, self._cut_all, self._rain,
            self._rain, self._stop, self._slow, self._slow, self._sleep, self._sleep,
        ]  # fmt: skip
        if self._chance.random() < 0.1:  # then the checker knows less: not too often
            kinds.append(self._step_clock)
        for _ in range(self._chance.randint(2, 8)):
            world.timeline.at(self._chance.uniform(0.0, self.length), self._chance.choice(kinds))

    def heal(self) -> None:
        """From now on nothing goes wrong any more, jobs that kill their workers aside."""
        for one in self._world.workers:
            one.process.thaw()
        for weather in self._all_weather():
            self._end_cut(weather)
            weather.clear_up()
            weather.slowest = min(weather.slowest, 0.02)

    def _all_weather(self) -> list[Weather]:
        return [one.weather for one in self._places()]

    def _places(self) -> list[Workplace | Producer]:
        return [*self._world.workers, *self._world.producers]

    def _victim(self) -> Workplace | None:
        alive = [one for one in self._world.workers if one.process.alive]
        return self._chance.choice(alive) if alive else None

    # -- one fault each -------------------------------------------------------------------------------------

    def _kill(self) -> None:
        if (victim := self._victim()) is not None:
            self._world.trouble("kill")
            victim.process.kill()

    def _freeze(self) -> None:
        if (victim := self._victim()) is not None:
            self._world.trouble("freeze")
            victim.process.freeze()
            self._world.timeline.after(
                self._chance.uniform(0.1, 2.0) * self._world.lease, victim.process.thaw
            )

    def _sleep(self) -> None:
        """The machine on which they all run is put to sleep, and wakes up again."""
        self._world.trouble("sleep")
        asleep = [one.process for one in self._world.workers if one.process.alive]
        for process in asleep:
            process.freeze()
        self._world.timeline.after(
            self._chance.uniform(0.3, 2.0) * self._world.lease, lambda: _thaw(asleep, self._chance)
        )

    def _stop(self) -> None:
        if (victim := self._victim()) is not None:
            self._world.trouble("stop")
            victim.stop()
            if self._chance.random() < 0.3:
                self._world.timeline.after(self._chance.uniform(0.0, 1.0), lambda: victim.stop(now=True))

    def _cut_one(self) -> None:
        if (victim := self._victim()) is not None:
            self._world.trouble("cut")
            self._cut(victim.weather, victim.process.name, self._chance.uniform(0.1, 3.5) * self._world.lease)

    def _cut_all(self) -> None:
        self._world.trouble("store away")
        seconds = self._chance.uniform(0.1, 1.5) * self._world.lease
        for one in self._places():
            self._cut(one.weather, one.process.name, seconds)

    def _cut(self, weather: Weather, name: str, seconds: float) -> None:
        if weather.cut:
            return
        world = self._world
        weather.ever_bad = True
        weather.cut, weather.refuses = True, self._chance.random() < 0.5
        weather.hang = self._chance.choice((0.0, 0.2))
        weather.cut_from = name
        world.keep(StoreUnreachable(at=world.timeline.now, process=name))
        world.timeline.after(seconds, lambda: self._end_cut(weather))

    def _end_cut(self, weather: Weather) -> None:
        if weather.cut:
            weather.cut = False
            self._world.keep(StoreReachable(at=self._world.timeline.now, process=weather.cut_from))

    def _rain(self) -> None:
        """Messages get lost, for one process or for all."""
        self._world.trouble("rain")
        chance = self._chance
        victim = self._victim()
        hit = self._all_weather() if victim is None or chance.random() < 0.5 else [victim.weather]
        only = chance.choice(FATAL_VERBS)
        request, reply = 0.5 * chance.random(), 0.7 * chance.random()
        hang = chance.choice((0.0, 0.0, 0.3))
        for weather in hit:
            weather.ever_bad = True
            weather.lose_request, weather.lose_reply, weather.hang = request, reply, hang
            weather.only, weather.hint_loss = only, chance.random()
        self._world.timeline.after(chance.uniform(0.2, 1.5) * self._world.lease, lambda: _clear_up(hit))

    def _step_clock(self) -> None:
        """The store's clock is set: leases end sooner or later than they were to."""
        seconds = self._chance.uniform(-3.0, 3.0)
        self._world.trouble("clock stepped")
        self._world.keep(ClockStepped(at=self._world.timeline.now, seconds=seconds))
        self._world.store_clock.step(seconds)

    def _slow(self) -> None:
        """A network, or a disk, that takes its time."""
        if (victim := self._victim()) is not None:
            self._world.trouble("slow")
            victim.weather.ever_bad = True
            victim.weather.slowest = self._chance.choice((0.3, 1.5, 4.0))
            usual = 0.02
            self._world.timeline.after(
                self._chance.uniform(0.5, 2.0) * self._world.lease,
                lambda: setattr(victim.weather, "slowest", usual),
            )


def _clear_up(hit: list[Weather]) -> None:
    for weather in hit:
        weather.clear_up()


def _thaw(asleep: list[Process], chance: random.Random) -> None:
    chance.shuffle(asleep)
    for process in asleep:
        process.thaw()
