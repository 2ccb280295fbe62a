"""Two worker processes, each frozen past several firings, in the night in which clocks change (Q24)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.schedules.scheduler_process import START, FastClock, make_app
from tests.worker.conftest import URLS
from tidewheel import Cron, Tidewheel
from tidewheel.core import headers

HOURS = 12

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="nothing there can be frozen")

EXPECTED = Counter(
    {
        ("night in New York", "2024-03-10T07:00:00+00:00"): 1,  # 02:30 is left out there: 03:00 it is
        ("night in Casablanca", "2024-03-10T01:30:00+00:00"): 1,  # 02:30 comes twice there: the first one
        **{
            (f"half hours in {city}", (START + timedelta(minutes=30 * number)).isoformat()): 1
            for city in ("New York", "Casablanca")
            for number in range(1, 2 * HOURS + 1)
        },
    }
)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_every_firing_of_the_night_is_made_once(store: str, tmp_path: Path) -> None:
    """The night of 10 March 2024: New York's clock leaves an hour out, Casablanca's has one twice. Two
    processes look for what is due; each is stopped (SIGSTOP) past several firings while the other goes on.

    The processes, their signals and the stores are real. The time is not: all processes share a clock that
    runs four hours a second, so that the night is over in three.
    """
    url = URLS[store](tmp_path)
    file = tmp_path / "began"
    async with make_app(url, file) as app:
        assert isinstance(app.clock, FastClock)
        for city, zone in (("New York", "America/New_York"), ("Casablanca", "Africa/Casablanca")):
            place = city.replace(" ", "_")
            for what, expression in (("night", "30 2 * * *"), ("half_hours", "*/30 * * * *")):
                when = Cron(expression, zone=zone, missed="all", most=1000)
                await app.schedules.create(f"{what}:{place}", "pile", when)
        async with _process(url, file) as first, _process(url, file) as second:
            app.clock.begin()
            await asyncio.sleep(0.3)
            for process in (first, second, first):
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(0.4)
                process.send_signal(signal.SIGCONT)
                await asyncio.sleep(0.1)
            async with asyncio.timeout(60):
                while EXPECTED - (made := await _made(app)):
                    await asyncio.sleep(0.1)
        made = await _made(app)
        last = (START + timedelta(hours=HOURS)).isoformat()
        assert {name: number for name, number in made.items() if name[1] <= last} == dict(EXPECTED)
        assert set(made.values()) == {1}
        assert [one.missed for one in await app.schedules.all()] == [0] * 4


async def _made(app: Tidewheel) -> Counter[tuple[str, str]]:
    """Which schedule made a job for which moment, and how often."""
    found: Counter[tuple[str, str]] = Counter()
    for job in await app.store.export_jobs(limit=1000):
        entries = headers.read_headers(job.record.headers)
        what, _, place = entries[headers.SCHEDULE_HEADER].partition(":")
        found[f"{what} in {place}".replace("_", " "), entries[headers.FIRE_TIME_HEADER]] += 1
    return found


@contextlib.asynccontextmanager
async def _process(url: str, file: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.schedules.scheduler_process", url, str(file)),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"ready\n"
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.kill()
        await process.wait()
