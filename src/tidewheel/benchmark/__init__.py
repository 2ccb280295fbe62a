"""What a store can do on this machine: a minute of measuring, in a place of its own beside the real jobs."""

from tidewheel.benchmark.concerns import concerns
from tidewheel.benchmark.course import LONGEST_SECONDS, SHORTEST_SECONDS, measure
from tidewheel.benchmark.figures import Figure, Figures, Measurement

__all__ = [
    "LONGEST_SECONDS",
    "SHORTEST_SECONDS",
    "Figure",
    "Figures",
    "Measurement",
    "concerns",
    "measure",
]
