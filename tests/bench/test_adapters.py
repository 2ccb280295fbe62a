"""The adapters we can run without anybody else's queue, and rules for the others."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.environments import ADAPTERS, prepare
from bench.grounds import FilePlace, Place, PostgresPlace, execute
from bench.systems import BY_NAME as SYSTEMS_BY_NAME
from bench.systems import SYSTEMS
from bench.trial import Trial
from bench.workloads import BY_NAME as WORKLOADS

from tests.servers import PostgresServer

OWN = [system for system in SYSTEMS if not system.requirements]
SHARED = {"talk", "run_tidewheel", "run_raw_store", "tidewheel_scale", "tidewheel_late"}


@contextlib.contextmanager
def database(server: PostgresServer) -> Iterator[Place]:
    execute(server.url(), "CREATE DATABASE bench_test")
    try:
        yield PostgresPlace(server, "bench_test")
    finally:
        execute(server.url(), "DROP DATABASE bench_test WITH (FORCE)")


@pytest.mark.parametrize("name", [system.name for system in OWN])
def test_our_own_adapters_drain_all_jobs(name: str, tmp_path: Path, postgres: PostgresServer) -> None:
    """The baselines use functions of the schema by hand, and must follow its changes."""
    system = SYSTEMS_BY_NAME[name]
    with contextlib.ExitStack() as stack:
        place = FilePlace(tmp_path) if system.ground == "sqlite" else stack.enter_context(database(postgres))
        trial = Trial(system, prepare(system, tmp_path), place, tmp_path / "log", 0.012, stack)
        figures = WORKLOADS["drain"].run(trial)
    assert figures["jobs"] >= 1200
    assert figures["jobs_per_second"] > 0
    assert figures["worker_cpu_us"] > 0


def test_adapters_know_nothing_of_the_harness() -> None:
    """They run where the harness is not installed."""
    for file in ADAPTERS.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [node.module or ""] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names]
                )
                assert not [name for name in names if name.split(".")[0] in {"bench", "tests"}], file.name


def test_every_adapter_belongs_to_a_system() -> None:
    files = {file.name for file in ADAPTERS.iterdir() if file.is_file() and file.stem not in SHARED}
    assert files == {system.adapter for system in SYSTEMS} - {f"{name}.py" for name in SHARED}


def test_every_peer_is_pinned() -> None:
    for system in SYSTEMS:
        assert all("==" in each or "@" in each for each in system.requirements), system.name


def test_names_are_unique() -> None:
    assert len(SYSTEMS_BY_NAME) == len(SYSTEMS)
