"""Commands that work for a while, and signals."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tidewheel.cli.signals import cancel_on_signals

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows hangs nobody up")


@pytest.fixture
def hang_up_does() -> Iterator[Callable[[Any], None]]:
    """What a hang-up does to the process before the command begins."""
    before = signal.getsignal(signal.SIGHUP)

    def does(handler: Any) -> None:
        signal.signal(signal.SIGHUP, handler)

    yield does
    signal.signal(signal.SIGHUP, before)


async def test_a_closed_window_ends_a_command(hang_up_does: Callable[[Any], None]) -> None:
    """What it made is cleared away."""
    hang_up_does(signal.SIG_DFL)
    begun = asyncio.Event()

    async def work() -> None:
        with cancel_on_signals():
            begun.set()
            await asyncio.sleep(10)

    working = asyncio.create_task(work())
    await begun.wait()
    signal.raise_signal(signal.SIGHUP)
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_what_nohup_started_goes_on(hang_up_does: Callable[[Any], None]) -> None:
    """A copy of a large store outlives the terminal if whoever started it wants that."""
    hang_up_does(signal.SIG_IGN)
    with cancel_on_signals():
        signal.raise_signal(signal.SIGHUP)
        await asyncio.sleep(0.01)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
