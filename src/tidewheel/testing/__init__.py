"""What tests of programs that use Tidewheel need; also the suites Tidewheel tests its own stores with.

* :class:`in_memory`, :func:`inline`: an app's tasks without a database, without a worker process
* :func:`enqueued`: which jobs a piece of code enqueued
* :class:`FrozenClock`: time that passes when the test says so
* ``tidewheel.testing.conformance``: the store conformance suite, ``tidewheel.testing.agreement``: random
  verbs on several stores at once (both need the ``test`` extra)

What it offers is imported when it is first asked for: pytest loads ``tidewheel.testing.plugin`` wherever
Tidewheel is installed, also for tests that have nothing to do with it.
"""

TYPE_CHECKING = False  # as type checkers know it
if TYPE_CHECKING:
    from typing import Any

    from tidewheel.testing.app_helpers import enqueued, in_memory, inline
    from tidewheel.testing.clock import FrozenClock

_MODULE_OF = {
    "FrozenClock": "clock",
    "enqueued": "app_helpers",
    "in_memory": "app_helpers",
    "inline": "app_helpers",
}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> "list[str]":
    return sorted(__all__)


__all__ = ["FrozenClock", "enqueued", "in_memory", "inline"]
