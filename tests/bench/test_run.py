"""A whole run, of queues that are made up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench.results import Measurement, Results
from bench.run import run, suits
from bench.systems import BY_NAME as SYSTEMS
from bench.systems import System
from bench.workloads import BY_NAME as WORKLOADS

from tests.patience import PATIENCE

FAKE = str(Path(__file__).with_name("fake_adapter.py"))


def fake(name: str, behaviour: str = "good", **more: object) -> System:
    return System(name, FAKE, "sqlite", 1000, options={"behaviour": behaviour}, **more)  # type: ignore[arg-type]


def run_fakes(
    *systems: System, repeat: int = 1, output: Path | None = None
) -> tuple[Results, list[Measurement]]:
    seen: list[Measurement] = []
    found = run(
        systems,
        [WORKLOADS["drain"]],
        repeat=repeat,
        scale=0.01,
        cache=Path("unused"),
        watcher=seen.append,
        output=output,
    )
    return found, seen


def test_systems_take_turns(tmp_path: Path) -> None:
    """A B, A B: a machine that slows down slows down everybody."""
    output = tmp_path / "results.json"
    found, seen = run_fakes(fake("a"), fake("b"), repeat=2, output=output)
    assert [(each.system, each.repetition) for each in seen] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert [each.problem for each in seen] == [None] * 4
    assert all(each.figures["jobs_per_second"] > 0 for each in seen)
    assert Results.load(output) == found


def test_a_system_that_fails_does_not_stop_the_others() -> None:
    _, seen = run_fakes(fake("a", "crash"), fake("b", "error"), fake("c"))
    problems = [each.problem for each in seen]
    assert "out of cheese" in str(problems[0])
    assert "no cheese today" in str(problems[1])
    assert problems[2] is None


def test_a_system_that_loses_a_job_is_found_out() -> None:
    """All handlers were called, and one job is not recorded as completed."""
    _, seen = run_fakes(fake("a", "forget"))
    assert seen[0].problem == "lost jobs: 100 jobs ran, 99 are recorded as completed"
    assert seen[0].figures == {}


def test_a_system_that_cannot_be_here_is_named_once_with_the_reason() -> None:
    found, seen = run_fakes(fake("a", program="no-such-program"), fake("b"), repeat=2)
    assert [each.problem for each in seen if each.system == "a"] == ["not measured: needs no-such-program"]
    assert found.systems["a"]["problem"] == "needs no-such-program"


def test_results_say_which_settings_a_system_had() -> None:
    found, _ = run_fakes(fake("a"))
    assert found.systems["a"]["options"] == {"behaviour": "good"}
    assert found.machine["cores"]


def test_defaults_of_peers_and_bare_loops_do_only_what_compares() -> None:
    assert suits(SYSTEMS["pgqueuer:default"], WORKLOADS["drain"])
    assert not suits(SYSTEMS["pgqueuer:default"], WORKLOADS["together"])
    assert suits(SYSTEMS["bare-sqlite"], WORKLOADS["drain"])
    assert not suits(SYSTEMS["bare-sqlite"], WORKLOADS["pickup"])
    assert not suits(SYSTEMS["procrastinate"], WORKLOADS["deep"])
    assert not suits(SYSTEMS["pgqueuer"], WORKLOADS["flat"])
    assert not suits(SYSTEMS["tidewheel-sqlite"], WORKLOADS["pinned"])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")
def test_ctrl_c_leaves_nothing_behind() -> None:
    words = ["-m", "bench", "--systems", "bare-sqlite", "--workloads", "drain", "--repeat", "100"]
    harness = subprocess.Popen(
        [sys.executable, *words, "--scale", "0.01"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert harness.stdout is not None
    assert "bare-sqlite" in harness.stdout.readline()
    children = Path(f"/proc/{harness.pid}/task/{harness.pid}/children").read_text().split()
    harness.send_signal(signal.SIGINT)
    _, errors = harness.communicate(timeout=60)
    assert harness.returncode == 130, errors
    # One that was just being started is ended by the silence on its standard input, a moment later.
    deadline = time.monotonic() + PATIENCE
    while any(_runs(int(child)) for child in children):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
