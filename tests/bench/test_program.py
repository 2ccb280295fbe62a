"""Harness and adapter, on the two ends of a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.environments import Environment
from bench.program import AdapterFailed, Program

FAKE = Environment((sys.executable, str(Path(__file__).with_name("fake_adapter.py"))))


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with Program(FAKE, tmp_path / "log") as started:
        yield started


def open_it(program: Program, directory: Path, behaviour: str = "good") -> None:
    program.ask(
        "open", url=f"sqlite:///{directory / 'jobs'}", options={"kind": "noop", "behaviour": behaviour}
    )


def test_jobs_are_enqueued_run_and_counted(program: Program, tmp_path: Path) -> None:
    open_it(program, tmp_path)
    program.ask("setup")
    assert program.ask("fill", jobs=25, payload=100)["jobs"] == 25
    assert program.ask("left") == {"unfinished": 25, "completed": 0}
    program.ask("work", concurrency=100)
    while (report := program.ask("count"))["ran"] < 25:
        time.sleep(0.01)
    assert report["first_ns"] <= report["last_ns"] <= time.monotonic_ns()
    assert report["cpu_seconds"] > 0
    assert program.ask("left") == {"unfinished": 0, "completed": 25}


def test_callers_go_on_until_the_time_is_up(program: Program, tmp_path: Path) -> None:
    open_it(program, tmp_path)
    program.ask("setup")
    answer = program.ask("enqueue", callers=10, seconds=0.1, payload=100)
    assert answer["jobs"] == len(answer["times"]) == program.ask("left")["unfinished"]
    assert answer["seconds"] >= 0.1


def test_counts_are_answered_while_the_adapter_is_busy(program: Program, tmp_path: Path) -> None:
    """Workers are looked at while they work."""
    open_it(program, tmp_path)
    program.tell("sulk")
    assert program.ask("count")["ran"] == 0


def test_an_error_in_the_adapter_reaches_the_harness(program: Program, tmp_path: Path) -> None:
    with pytest.raises(AdapterFailed, match="no cheese today"):
        open_it(program, tmp_path, "error")


def test_the_last_words_of_an_adapter_that_died_are_told(program: Program, tmp_path: Path) -> None:
    with pytest.raises(AdapterFailed, match="out of cheese"):
        open_it(program, tmp_path, "crash")


def test_silence_is_a_failure(program: Program, tmp_path: Path) -> None:
    open_it(program, tmp_path)
    with pytest.raises(AdapterFailed, match="no answer within 0 s"):
        program.ask("sulk", patience=0.05)


def test_a_busy_adapter_ends_when_the_harness_hangs_up(tmp_path: Path) -> None:
    """Whatever becomes of the harness, no adapter outlives it."""
    program = Program(FAKE, tmp_path / "log")
    open_it(program, tmp_path)
    program.tell("sulk")
    program.close()
    assert program.ended


def test_settings_of_a_queue_do_not_come_from_outside(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A TIDEWHEEL_CONCURRENCY of whoever runs the benchmark would make ours another queue than the others."""
    monkeypatch.setenv("TIDEWHEEL_CONCURRENCY", "1")
    log = tmp_path / "log"
    code = "import os, sys; print(sorted(os.environ), file=sys.stderr); sys.stdin.read()"
    with Program(Environment((sys.executable, "-c", code)), log):
        while not log.read_text():
            time.sleep(0.01)
        assert "TIDEWHEEL" not in log.read_text()
