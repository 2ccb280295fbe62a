"""Random delays: spread by a generator that belongs to this package alone."""

from __future__ import annotations

import ast
import os
import random
from pathlib import Path

import pytest

import tidewheel
from tidewheel import Tidewheel
from tidewheel.core.jitter import GENERATOR, jitter


def test_no_module_draws_from_the_generator_of_the_program() -> None:
    """A program that seeds ``random`` gets its sequence, whatever our threads do beside it."""
    package = Path(tidewheel.__file__).parent
    wrong = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "random":
                wrong.append(f"{path}:{node.lineno}")
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "random"
                and node.attr not in {"Random", "SystemRandom"}
            ):
                wrong.append(f"{path}:{node.lineno} random.{node.attr}")
    assert not wrong


async def test_a_worker_leaves_the_sequence_of_the_program_alone(tmp_path: Path) -> None:
    """Retries, polls and heartbeats wait for random times, and none of them comes from ``random``."""
    app = Tidewheel(f"sqlite:///{tmp_path}/jobs.db", check_on_start=False)

    @app.task(max_attempts=2, retry=tidewheel.Retry.fixed(0.01))
    def flaky(fail: bool) -> None:
        if fail:
            raise ValueError("once more")

    random.seed(7)
    before = random.getstate()
    async with app:
        await flaky.enqueue_many([{"fail": False}, {"fail": True}])
        await app.run_until_idle()
    assert random.getstate() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_waits_for_times_of_its_own() -> None:
    """Workers forked from one parent do not act in step."""
    state = GENERATOR.getstate()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr(jitter(0, 1)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = answer.read()
    os.waitpid(child, 0)
    GENERATOR.setstate(state)
    assert told
    assert float(told) != jitter(0, 1)
