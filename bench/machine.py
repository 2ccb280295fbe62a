"""What the figures were taken on, and the processor time of processes."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """The machine, for the result file."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": os.cpu_count(),
        "memory": _field("/proc/meminfo", "MemTotal"),
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
    }


def load_average() -> float | None:
    """Over the last minute; None where there is no such thing."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def tree_cpu_seconds(pid: int) -> float:
    """Processor time of a server: its main process, its children, and those that have ended."""
    ended = _times(pid)
    return sum(ended) + sum(sum(_times(child)[:2]) for child in _children(pid)) if ended else 0.0


def resident_megabytes(pid: int) -> float:
    """Memory a process holds; 0 where that is unknown."""
    told = _field(f"/proc/{pid}/status", "VmRSS")
    return int(told.split()[0]) / 1000 if told else 0.0


def _times(pid: int) -> tuple[float, ...]:
    """user, system, and those of children that were waited for; () when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ()
    tick = os.sysconf("SC_CLK_TCK")
    return tuple(int(ticks) / tick for ticks in fields[11:15])


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def total_cpu_seconds() -> tuple[float, float]:
    """Busy and all processor time of the whole machine since it started; (0, 0) where that is unknown."""
    try:
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    except OSError:
        return 0.0, 0.0
    ticks = [int(word) for word in words]
    rate = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - ticks[3] - ticks[4]) / rate, sum(ticks) / rate


def _field(file: str, name: str) -> str | None:
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)
