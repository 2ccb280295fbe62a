"""A pytest plugin: how many test files run at once under ``-n auto``, and which begin first.

Tests spend half of their time waiting for processes, leases and servers, so that a core has room for two. And
whoever begins the longest file last leaves all others idle meanwhile.
"""

from __future__ import annotations

import os

import pytest

LONGEST = (
    "stores/test_stores_agree.py",
    "stores/test_conformance.py",
    "browser/test_flows.py",
    "browser/test_pages.py",
    "beanstalkd/test_corpus.py",
    "worker/test_processes.py",
    "worker/test_stuck.py",
    "cli/test_processes.py",
    "faults/test_sweep.py",
    "faults/test_mixer.py",
    "worker/test_lifecycle.py",
    "tenancy/test_mutants.py",
    "cli/test_stuck.py",
    "browser/test_build.py",
    "cli/test_health.py",
    "examples/test_json_files.py",
    "transactions/test_killing.py",
    "postgres/test_plans.py",
    "postgres/test_rls_conformance.py",
    "cli/test_doctor.py",
    "worker/test_stopping.py",
    "postgres/test_outage.py",
    "faults/test_store_clock.py",
    "cli/test_bench.py",
    "worker/test_outage.py",
    "postgres/test_rls_checking.py",
    "worker/isolation/test_endings.py",
    "docs/test_blocks.py",
    "stores/test_ways.py",
    "faults/simulation/test_simulation.py",
    "worker/isolation/test_programs.py",
    "stores/test_conditions_agree.py",
)
"""Files that take about a quarter of a minute or more, the longest first; ``--durations=0`` tells."""

_place = {f"tests/{name}": place for place, name in enumerate(LONGEST)}


def pytest_xdist_auto_num_workers() -> int | None:
    """Two for each core; the variable xdist itself has for it goes first.

    Of those that wait half of their time, three keep two cores at work for 70 % of it, and four for 85 %.
    """
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 * cores


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # by number of tests, which says nothing about their time


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # a single process need not jump about
        items.sort(key=lambda item: _place.get(item.nodeid.partition("::")[0], len(_place)))
