"""Fields of statistics that cannot be equal on two servers, and why."""

from __future__ import annotations

from typing import Final

UNEQUAL: Final = {
    "pid": "each process has its own",
    "version": "each server has its own; ours is that of the commands we speak",
    "rusage-utime": "what the process has used so far",
    "rusage-stime": "what the process has used so far",
    "uptime": "in seconds, and the two were started at different moments",
    "id": "of the server: random at every start (the id of a job is renamed instead)",
    "hostname": "of the machine; a test of its own compares the two servers' on this one",
    "os": "of the machine; a test of its own compares the two servers' on this one",
    "platform": "of the machine; a test of its own compares the two servers' on this one",
}

OURS: Final = frozenset({"tidewheel-version"})
"""Fields that beanstalkd does not have. They come last."""

ABOUT: Final = {
    "age": "seconds since the job was put: a busy machine is a second late",
    "time-left": "seconds until something happens to the job",
    "pause-time-left": "seconds until a pause ends",
}
"""Equal when they are this close, and when neither or both are zero (an age may be either)."""
CLOSE_SECONDS: Final = 15


def without_the_unequal(line: str) -> str:
    """A line of statistics, with a star for a value that cannot be equal."""
    name, _, value = line.partition(": ")
    return f"{name}: *" if name in UNEQUAL and value else line


def same(expected: str, heard: str) -> bool:
    """Whether two lines say the same."""
    if expected == heard:
        return True
    name, _, value = expected.partition(": ")
    other, _, seen = heard.partition(": ")
    if name != other or name not in ABOUT or not (value.isdigit() and seen.isdigit()):
        return False
    close = abs(int(value) - int(seen)) <= CLOSE_SECONDS
    return close and (name == "age" or (int(value) == 0) == (int(seen) == 0))
