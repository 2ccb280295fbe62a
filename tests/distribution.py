"""A pytest plugin: how many test files run at once under ``-n auto``, and which begin first.

Tests spend half of their time waiting for processes, leases and servers, so that a core has room for more
than two. And whoever begins the longest file last leaves all others idle meanwhile.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

LONGEST = (
    "stores/test_stores_agree.py",
    "browser/test_pages.py",
    "stores/test_conformance.py",
    "cli/test_processes.py",
    "faults/simulation/test_simulation.py",
    "worker/test_processes.py",
    "tenancy/test_mutants.py",
    "docs/test_blocks.py",
    "postgres/test_rls_conformance.py",
    "postgres/test_plans.py",
    "faults/test_mixer.py",
    "stores/test_ways.py",
    "http/test_conformance.py",
    "worker/test_stuck.py",
    "server/test_schemathesis.py",
    "cli/test_bench.py",
    "worker/isolation/test_endings.py",
    "faults/test_sweep.py",
    "transactions/test_killing.py",
    "worker/test_lifecycle.py",
    "examples/test_examples.py",
    "cli/test_health.py",
    "beanstalkd/test_corpus.py",
    "worker/test_stopping.py",
    "postgres/test_unknown_outcomes.py",
    "cli/test_doctor.py",
    "postgres/test_rls_store.py",
    "faults/test_store_clock.py",
    "sdk/test_sdk.py",
    "cli/test_stuck.py",
    "deploy/test_backup.py",
    "cli/test_reload.py",
    "postgres/test_outage.py",
    "examples/test_json_files.py",
    "cli/test_demo.py",
    "integrations/django/test_claims.py",
    "cli/test_completion.py",
    "worker/test_outage.py",
    "beanstalkd/test_greenstalk.py",
    "transactions/test_transactions.py",
    "cli/test_top.py",
    "faults/sqlite/test_kill_sweep.py",
    "beanstalkd/test_fuzzing.py",
)
"""Files that take about ten seconds or more in one of the tiers, the longest first; ``--durations=0`` tells.
The tests in a browser, which one process runs, begin where their first file does."""

BROWSER = "tests/browser/"

_place = {f"tests/{name}": place for place, name in enumerate(LONGEST)}


@pytest.hookimpl(optionalhook=True)  # where xdist is not loaded
def pytest_xdist_auto_num_workers() -> int | None:
    """Three for each core; the variable xdist itself has for it goes first.

    Of those that wait half of their time, three keep two cores at work for 70 % of it, four for 80 %, five
    for 90 %; with six the suite took 6 % less time than with five.
    """
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 3 * cores


@pytest.hookimpl(optionalhook=True)  # where xdist is not loaded
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process runs all tests in a browser: starting Chromium takes as long as many of them."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # has no types
        def _split_scope(self, nodeid: str) -> str:
            return BROWSER if nodeid.startswith(BROWSER) else super()._split_scope(nodeid)

    return Scheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # by number of tests, which says nothing about their time


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # a single process need not jump about
        items.sort(key=lambda item: _place.get(item.nodeid.partition("::")[0], len(_place)))
