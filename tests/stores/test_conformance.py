"""The conformance suite that ships with Windlass, on our own stores."""

from windlass.testing.conformance import *  # noqa: F403
