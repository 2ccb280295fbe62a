"""Who runs next: drawn from a seed, so that the same seed gives the same run, step by step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from tests.faults.simulation.loop import SimulatedLoop, Timeline

LONGEST_TURN = 8
"""Most handles one loop runs before another may."""
MOST_STEPS = 400_000
"""Of one run. More means that something turns in circles without time going on."""


class TooManySteps(Exception):
    """The run would never end."""


class Scheduler:
    """Steps loops in a seeded order; when none has anything to do, time jumps to whatever comes next."""

    def __init__(self, timeline: Timeline, chance: random.Random, stalls: float) -> None:
        self._timeline = timeline
        self._chance = chance.random
        self._stalls = stalls  # how often a loop that would run gets no processor
        self.loops: list[SimulatedLoop] = []
        self.steps = 0

    def run(self, done: Callable[[], bool], until: float) -> bool:
        """Run until ``done``, which is asked between turns; False when ``until`` came first."""
        timeline, chance = self._timeline, self._chance
        while not done():
            now = timeline.now
            runnable = [
                loop for loop in self.loops if loop.ready and not loop.frozen and loop.blocked_until <= now
            ]
            if not runnable:
                if now >= until or not timeline.move_on():
                    return False
                continue
            loop = runnable[0] if len(runnable) == 1 else runnable[int(chance() * len(runnable))]
            if self._stalls and chance() < self._stalls:
                loop.stall(0.5 * chance() ** 2)
                continue
            self._turn(loop, 1 + int(chance() * LONGEST_TURN))
        return True

    def _turn(self, loop: SimulatedLoop, most: int) -> None:
        """As a thread that has the processor. Nothing may run here for which asyncio finds no loop."""
        asyncio._set_running_loop(loop)
        try:
            blocked = loop.blocked_until
            for _ in range(most):
                if not loop.ready:
                    break
                loop.step()
                self.steps += 1
                if loop.blocked_until > blocked:
                    loop.put_last_first()
                    break
        finally:
            asyncio._set_running_loop(None)
        if self.steps > MOST_STEPS:
            raise TooManySteps(f"{self.steps:,} steps, and it is only {self._timeline.now:.3f} s")
