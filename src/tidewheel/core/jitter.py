"""Random delays, so that many processes do not act in step.

The generator is private. A program that calls ``random.seed`` gets the same numbers with and without this
package, whose threads would otherwise draw from the program's sequence.
"""

from __future__ import annotations

import os
import random
from typing import Final

GENERATOR: Final = random.Random()  # noqa: S311 - spreads load, guards nothing

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=GENERATOR.seed)  # or all forked workers would wait for the same times


def jitter(low: float, high: float) -> float:
    """Return a random number between the two."""
    return GENERATOR.uniform(low, high)
