"""Figures as lines of JSON."""

from __future__ import annotations

import json
import statistics
from typing import Any


def show(name: str, **figures: Any) -> None:
    print(json.dumps({"figure": name, **figures}), flush=True)


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "p50_ms": round(1000 * statistics.median(ordered), 3),
        "p99_ms": round(1000 * ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 3),
    }
