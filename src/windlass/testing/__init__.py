"""What tests of programs that use Windlass need; also the suites Windlass tests its own stores with.

* :class:`in_memory`, :func:`inline`: an app's tasks without a database, without a worker process
* :func:`enqueued`: which jobs a piece of code enqueued
* :class:`FrozenClock`: time that passes when the test says so
* ``windlass.testing.conformance``: the store conformance suite, ``windlass.testing.agreement``: random verbs
  on several stores at once (both need the ``test`` extra)
"""

from windlass.testing.apps import enqueued, in_memory, inline
from windlass.testing.clock import FrozenClock

__all__ = ["FrozenClock", "enqueued", "in_memory", "inline"]
