"""A pytest plugin: the two tiers of the suite, and ``python -m tests.tiers``, which counts them.

The first tier checks every claim (each distinct test function), on one store where it runs on several. The
repetitions get the marker ``extended``: the other stores, and the larger sizes that tests mark themselves.
``pytest`` runs the first tier and ``pytest -m "extended and not long"`` the repetitions. ``pytest PATH`` runs
both tiers of the files it names.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import sys
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import pytest

FIRST = "not long and not extended"
"""The tests that ``pytest`` runs by default, as in pyproject.toml."""

NAMED = "not long"
"""The tests that ``pytest PATH`` runs by default: both tiers of these files."""

KINDS = {
    "sqlite": "sqlite",
    "on_sqlite": "sqlite",
    "memory": "memory",
    "in_memory": "memory",
    "postgres": "postgres",
    "postgresql": "postgres",
    "on_postgres": "postgres",
    "postgres15": "variant",
    "postgres-packed": "variant",
    "oldest": "variant",
}
"""The stores by the parameters that name them."""

PREFERRED = ("sqlite", "memory", "postgres")
"""A claim that runs on several stores runs on the first of these in the first tier."""

ALL_STORES = ("tests/stores/all_stores/",)
"""Tests that compare the stores, as the conformance suite does: they run on memory, SQLite and PostgreSQL."""

SAMPLED = {
    "tests/bench/test_adapters.py": 2,
    "tests/cli/test_process_manager.py": 2,
    "tests/cli/test_top.py::test_however_it_ends_the_terminal_is_as_before": 2,
    "tests/docs/test_blocks.py::test_the_code_of_a_page_runs": 8,
    "tests/faults/simulation/test_seeded_bugs.py": 5,
    "tests/faults/simulation/test_simulation.py": 2,
    "tests/stores/postgres/test_integrity_check.py": 6,
    "tests/stores/postgres/test_query_plans.py": 2,
    "tests/stores/postgres/test_rls_check.py": 4,
    "tests/stores/postgres/test_unknown_outcomes.py": 3,
    "tests/stores/test_time_ranges.py": 2,
    "tests/stores/all_stores/test_query_plans_agree.py": 2,
    "tests/tenancy/test_mutants.py::test_a_store_without_this_predicate_is_caught": 10,
    "tests/client/external_transactions/test_connection_kinds.py": 20,
}
"""Expensive tests with many parameters: how many cases of each, two or more, run in the first tier."""

AGREEMENT = "tests/stores/all_stores/test_stores_agree.py"
EXTENDED_ONLY = {
    f"{AGREEMENT}::TestPackedPostgresAgrees::runTest": "as TestStoresAgree, on another store",
    f"{AGREEMENT}::TestOldestPostgresAgrees::runTest": "as TestStoresAgree, on another store",
    f"{AGREEMENT}::TestStoresAgreeAtLength::runTest": "as TestStoresAgree, with more examples",
}
"""Claims without a case in the first tier, each with the reason."""


@dataclasses.dataclass(slots=True)
class Tiers:
    """The tests that were collected: cases by claim, in each tier."""

    first: collections.Counter[str]
    extended: collections.Counter[str]
    long: collections.Counter[str]

    def lost(self) -> list[str]:
        """Return the claims that only the extended tier checks, without a listed reason."""
        return sorted(set(self.extended) - set(self.first) - set(EXTENDED_ONLY))

    def summary(self) -> str:
        """Return one line per tier: claims and cases."""
        lines = [
            f"{name:<10}{len(cases):>6,} claims{cases.total():>8,} cases"
            for name, cases in (("first", self.first), ("extended", self.extended), ("long", self.long))
        ]
        every = self.first + self.extended + self.long
        return "\n".join([*lines, f"{'all':<10}{len(every):>6,} claims{every.total():>8,} cases"])


TIERS = pytest.StashKey[Tiers]()


def claim(item: pytest.Item) -> str:
    """Return the name of a test's function: the same for all cases, also where another file imports it."""
    if not isinstance(item, pytest.Function) or item.cls is not None:
        return _test(item)
    return f"{item.function.__module__}.{item.function.__qualname__}"


def store_of(item: pytest.Item) -> str | None:
    """Return the kind of store that a case runs on, if a parameter says so."""
    parameters: Mapping[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    for value in parameters.values():
        for part in value if isinstance(value, tuple) else (value,):
            name = part if isinstance(part, str) else getattr(part, "__name__", None)
            if name in KINDS:
                return KINDS[name]
    return None


def mark(items: Sequence[pytest.Item]) -> None:
    """Give the marker ``extended`` to the cases that repeat a claim."""
    stores: dict[str, set[str]] = collections.defaultdict(set)
    for item in items:
        stores[_test(item)].add(store_of(item) or "none")
    sampled: dict[str, list[pytest.Item]] = collections.defaultdict(list)
    for item in items:
        test = _test(item)
        if repeats(item, stores[test]):
            item.add_marker(pytest.mark.extended)
        elif test in SAMPLED or test.partition("::")[0] in SAMPLED:
            sampled[test].append(item)
    for test, cases in sampled.items():
        most = SAMPLED.get(test) or SAMPLED[test.partition("::")[0]]
        kept = {number * (len(cases) - 1) // (most - 1) for number in range(most)}
        for number, item in enumerate(cases):
            if number not in kept and len(cases) > most:
                item.add_marker(pytest.mark.extended)


def repeats(item: pytest.Item, stores: Set[str]) -> bool:
    """Return whether a case repeats a claim: on another store, or as part of the conformance suite."""
    path = item.nodeid.partition("::")[0]
    store = store_of(item)
    if store == "variant" or path.startswith(ALL_STORES):
        return store == "variant" and stores != {"variant"}
    if isinstance(item, pytest.Function) and item.function.__module__.startswith(
        "tidewheel.testing.conformance"
    ):
        return True
    return store is not None and store != next((name for name in PREFERRED if name in stores), store)


def _test(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def count(items: Iterable[pytest.Item]) -> Tiers:
    """Return the claims and cases of each tier."""
    tiers = Tiers(collections.Counter(), collections.Counter(), collections.Counter())
    for item in items:
        cases = (
            tiers.long
            if item.get_closest_marker("long")
            else tiers.extended
            if item.get_closest_marker("extended")
            else tiers.first
        )
        cases[claim(item)] += 1
    return tiers


def pytest_configure(config: pytest.Config) -> None:
    """Select both tiers where paths are named. The processes of xdist get the same arguments."""
    if config.option.markexpr == FIRST and config.args_source is pytest.Config.ArgsSource.ARGS:
        config.option.markexpr = NAMED


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marker
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark(items)
    config.stash[TIERS] = count(items)


class _Counted:
    """Counts what a collection without a choice of markers found."""

    tiers: Tiers

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tiers = count(session.items)


def collected() -> Tiers:
    """Collect the whole suite and return its tiers."""
    counted, output = _Counted(), io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(["--collect-only", "-q", "-m", "", "-p", "no:cacheprovider"], plugins=[counted])
    if code != pytest.ExitCode.OK:
        sys.exit(output.getvalue())
    return counted.tiers


def main() -> None:
    """Print the number of claims and cases of each tier; exit with 1 if a claim is lost."""
    tiers = collected()
    print(tiers.summary())
    for name in tiers.lost():
        print(f"only in the extended tier: {name}")
    sys.exit(1 if tiers.lost() else 0)


if __name__ == "__main__":
    main()
