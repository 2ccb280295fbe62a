"""The conformance suite that ships with Tidewheel, on our own stores."""

from tidewheel.testing.conformance import *  # noqa: F403
