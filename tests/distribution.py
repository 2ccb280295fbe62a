"""A pytest plugin: how many test files run at once under ``-n auto``, and which begin first.

Tests spend half of their time waiting for processes, leases and servers, so that a core has room for more
than two. And whoever begins the longest file last leaves all others idle meanwhile.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

LONGEST = (
    "stores/all_stores/test_stores_agree.py",
    "browser/test_pages.py",
    "stores/all_stores/test_conformance.py",
    "cli/test_process_manager.py",
    "faults/simulation/test_simulation.py",
    "worker/test_processes.py",
    "tenancy/test_mutants.py",
    "docs/test_blocks.py",
    "stores/postgres/test_rls_conformance.py",
    "stores/postgres/test_query_plans.py",
    "faults/test_mixer.py",
    "stores/all_stores/test_query_plans_agree.py",
    "stores/http/test_conformance.py",
    "worker/test_stuck_handlers.py",
    "server/test_schemathesis.py",
    "cli/test_bench.py",
    "worker/processes/test_crashes.py",
    "verification/test_fault_run.py",
    "client/handler_transactions/test_killed_transfers.py",
    "worker/test_lifecycle.py",
    "examples/test_examples.py",
    "cli/test_health_port.py",
    "beanstalkd/test_conversations.py",
    "worker/test_timeouts_and_cancellation.py",
    "stores/postgres/test_unknown_outcomes.py",
    "cli/test_doctor.py",
    "stores/postgres/test_rls_store.py",
    "faults/test_store_clock.py",
    "sdk/test_sdk.py",
    "cli/test_stuck_worker.py",
    "deploy/test_backup.py",
    "cli/test_reload.py",
    "stores/postgres/test_outage.py",
    "examples/test_json_files.py",
    "cli/test_demo.py",
    "integrations/django/test_claims.py",
    "cli/test_completion.py",
    "worker/test_outage.py",
    "beanstalkd/test_greenstalk.py",
    "client/handler_transactions/test_handler_transactions.py",
    "cli/test_top.py",
    "faults/sqlite/test_kill_sweep.py",
    "beanstalkd/test_fuzzer.py",
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
