"""What a store can do on this machine: a minute of measuring, in a place of its own beside the real jobs."""

from tidewheel.verification.benchmark.report import Figure, Figures, Measurement, concerns
from tidewheel.verification.benchmark.run import LONGEST_SECONDS, SHORTEST_SECONDS, measure

__all__ = [
    "LONGEST_SECONDS",
    "SHORTEST_SECONDS",
    "Figure",
    "Figures",
    "Measurement",
    "concerns",
    "measure",
]
