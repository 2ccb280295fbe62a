"""The worker: claims jobs, runs their handlers, settles what came of it.

Its parts are of use to processes that run no handlers; the whole is imported when it is asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidewheel.worker.worker import Worker

__all__ = ["Worker"]


def __getattr__(name: str) -> Any:
    if name != "Worker":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tidewheel.worker.worker import Worker

    return Worker
