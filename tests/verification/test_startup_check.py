"""The look a worker takes after its start: in the background, and only to tell."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

import tidewheel
from tests.app.conftest import URLS
from tests.patience import PATIENCE
from tidewheel import Tidewheel
from tidewheel.errors import StoreUnavailable
from tidewheel.verification import startup_check
from tidewheel.verification.store_checks import DoctorFinding, FindingLevel


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(startup_check, "CHECK_DELAY_SECONDS", 0.0)
    caplog.set_level(logging.INFO, "tidewheel.doctor")


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "tidewheel.doctor"
    ]


async def worked(app: Tidewheel, caplog: pytest.LogCaptureFixture) -> None:
    """A worker runs until the look is over."""
    async with app:
        worker = asyncio.ensure_future(app.run_worker(handle_signals=False))
        async with asyncio.timeout(PATIENCE):
            while not lines(caplog):
                await asyncio.sleep(0.01)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


def filing(url: str, root: Path, **settings: bool) -> Tidewheel:
    app = Tidewheel(url, **settings)  # type: ignore[arg-type]
    app.include(tidewheel.builtin, roots=[root])
    return app


@pytest.mark.parametrize("name", URLS)
async def test_what_is_wrong_is_logged_once_and_the_worker_works(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that is gone, on every store; of the workers that start together one looks."""
    url, root = URLS[name](tmp_path), tmp_path / "root"
    root.mkdir()
    app = filing(url, root)
    async with app:
        await app.enqueue("create_file", {"path": "a", "content": "one"})
        await app.run_until_idle()
        assert lines(caplog) == []  # who runs jobs for a moment only does not look
        (root / "a").unlink()
        worker = asyncio.ensure_future(app.run_worker(handle_signals=False))
        async with asyncio.timeout(PATIENCE):
            while not any("looked at the store" in text for _, text in lines(caplog)):
                await asyncio.sleep(0.01)
        warnings = [text for level, text in lines(caplog) if level == "WARNING"]
        assert len(warnings) == 1
        assert warnings[0].startswith(f"wrong: {root}/a is gone, though job")
        assert not (root / "a").exists()  # it tells, and repairs nothing
        caplog.clear()
        await startup_check.run_startup_check(app)
        assert lines(caplog) == []  # it was somebody else's turn
        job = await app.enqueue("create_file", {"path": "b", "content": "two"})
        await job.result(timeout=PATIENCE)
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)


async def test_it_can_be_switched_off(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """check_on_start=False."""
    app = filing("memory://", tmp_path, check_on_start=False)
    async with app:
        await startup_check.run_startup_check(app)
    assert lines(caplog) == []


@pytest.mark.parametrize("error", [StoreUnavailable("the store is away"), RuntimeError("a bug")])
async def test_a_look_that_fails_harms_nobody(
    error: Exception, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is logged, and the worker goes on running jobs."""

    async def fail(app: Tidewheel) -> bool:
        raise error

    monkeypatch.setattr(startup_check, "_take_check_lock", fail)
    app = filing("memory://", tmp_path)
    async with app:
        worker = asyncio.ensure_future(app.run_worker(handle_signals=False))
        job = await app.enqueue("create_file", {"path": "a", "content": "one"})
        await job.result(timeout=PATIENCE)
        assert not worker.done()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
    [(level, text)] = lines(caplog)
    if isinstance(error, RuntimeError):
        assert (level, text) == ("WARNING", "the look at the store after the start failed")
    else:
        assert (level, text) == (
            "INFO",
            "the store could not be looked at after the start: the store is away",
        )


async def test_a_large_store_is_not_read_as_a_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own check is left to whoever asks for it, and that is said."""
    monkeypatch.setattr(startup_check, "MAX_FILE_BYTES", 10)
    app = filing(f"sqlite:///{tmp_path}/jobs.db", tmp_path)

    async def never(self: object) -> list[str]:
        raise AssertionError("it was checked")

    monkeypatch.setattr(Tidewheel, "check", never)
    await worked(app, caplog)
    assert "its own check was left out, it is large" in lines(caplog)[-1][1]


def test_many_problems_are_summed_up(caplog: pytest.LogCaptureFixture) -> None:
    """A log is no place for thousands of lines."""
    startup_check._log_findings(
        [DoctorFinding(FindingLevel.PROBLEM, str(number)) for number in range(25)], checked=True
    )
    told = [text for level, text in lines(caplog) if level == "WARNING"]
    assert len(told) == 21
    assert told[-1] == "and 5 more things are wrong; tidewheel doctor tells them"
