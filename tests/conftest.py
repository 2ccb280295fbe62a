"""Servers for every test that wants one, and Hypothesis with the same examples on every run.

``--hypothesis-profile=long`` searches on for hours.
"""

import signal

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.servers.fixtures",
    "tests.bytecode",
    "tests.distribution",
    "tests.garbage",
    "tests.tiers",
]

# A shell that starts a run in the background makes it, and every program it starts, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "tidewheel",
    derandomize=True,
    max_examples=100,
    stateful_step_count=60,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=_SLOW,
)
settings.register_profile(
    "long", max_examples=10_000, stateful_step_count=100, deadline=None, suppress_health_check=_SLOW
)
settings.load_profile("tidewheel")
