"""Each tenant predicate of each store is taken away in turn, and the tests of two tenants see it (promise 7).

A test that passes without the predicate it is about proves nothing. Predicates are found in the sources by
``mutants``; one that no test can see is either listed here with the reason, or a gap in the tests.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio

from tests.servers.warm_connections import WarmConnections, warm_connections
from tests.stores.all_stores.urls import PACKED, STORES, made
from tests.tenancy.mutants import STORES as SOURCES
from tests.tenancy.mutants import Mutant, mutants
from tidewheel.errors import LimitExceeded
from tidewheel.stores.bounds import StoreLimits
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance import tenants
from tidewheel.testing.conformance.helpers import enqueue_one, job

AT_LEAST = {"memory": 9, "sqlite": 27, "postgres": 32}
"""How many predicates there are. More are welcome; fewer mean that one was lost, or is not found any more."""

BESIDE_AN_ID = "the row is named by its id or number as well; the tenant is there for the index"
WHERE_TO_LOOK = "decides which index is read first, not which jobs are found in it"
OF_ITS_CHILD = (
    "parents and children are of one tenant; this is for rows that a caller writes by hand, see the attacks"
)
OVER_ALL = "part of the store's own check, which is about all tenants"

UNSEEN = {
    "sqlite/topic_limits.sql:first_of_key#1": "each row that is found names its tenant and is judged by it",
    "postgres/11_topic_limits.sql:first_jobs_of_keys#1": "matters behind 1,000 jobs; this suite has few",
    "sqlite/tenant_scope.py:execute_for_tenant#1": WHERE_TO_LOOK,
    "sqlite/query_plan.sql:row_estimate_of_tenant#1": WHERE_TO_LOOK,
    "sqlite/job_removal.sql:remove_key#1": BESIDE_AN_ID,
    "sqlite/settlements.sql:release_key#1": BESIDE_AN_ID,
    "postgres/reports.sql:newest#1": "of the jobs of one key at most one is unfinished, and one is no group",
    "sqlite/pull.sql:count_jobs#1": WHERE_TO_LOOK,
    "sqlite/pull.py:_index_hint#2": WHERE_TO_LOOK,
    "sqlite/pull.py:_index_hint#3": WHERE_TO_LOOK,
    "postgres/database.py:Database.fetch_for_each#0": "names the tenant to policies; tests of those see it",
    "postgres/security_checks.sql:policies_complete#1": OVER_ALL,
    "postgres/integrity_checks.sql:bodies_present#1": OVER_ALL,
    "postgres/integrity_checks.sql:bodies_owned#1": OVER_ALL,
    "postgres/integrity_checks.sql:progress_owned#1": OVER_ALL,
    "postgres/integrity_checks.sql:attempts_owned#1": OVER_ALL,
    "postgres/integrity_checks.sql:steps_owned#1": OVER_ALL,
    "postgres/integrity_checks.sql:keys_owned#1": OVER_ALL,
    "postgres/integrity_checks.sql:keys_held#1": OVER_ALL,
    "postgres/job_queries.sql:get#1": BESIDE_AN_ID,
    "postgres/job_queries.sql:bodies#1": BESIDE_AN_ID,
    "postgres/job_queries.sql:in_payload#1": BESIDE_AN_ID,
    **{f"postgres/04_claim.sql:claim#{number}": BESIDE_AN_ID for number in range(1, 5)},
    "postgres/transfer.sql:large#1": BESIDE_AN_ID,
    "postgres/transfer.sql:key_holders#1": "the answer names the tenant, and is compared with it",
    "postgres/store_limits.sql:keys_taken#1": "the answer names the tenant, and is compared with it",
    "postgres/query_plan.sql:lanes#1": WHERE_TO_LOOK,
    **{f"postgres/query_plan.sql:row_estimates#{number}": WHERE_TO_LOOK for number in range(1, 6)},
    "postgres/02_helpers.sql:finish#1": BESIDE_AN_ID,
    "postgres/03_enqueue.sql:enqueue#1": BESIDE_AN_ID,
    "postgres/03_enqueue.sql:enqueue#2": "locks rows; whose job is replaced is told by the next one",
    "postgres/03_enqueue.sql:enqueue#4": BESIDE_AN_ID,
    "postgres/03_enqueue.sql:store_limits_json#1": "the answer names the tenant, and is compared with it",
    "postgres/03_enqueue.sql:jobs_as_json#1": BESIDE_AN_ID,
    "postgres/03_enqueue.sql:jobs_as_json#2": "for connections of others; tests of using see it",
    "postgres/05_settle.sql:settle#1": BESIDE_AN_ID,
    "postgres/06_admin.sql:delete_jobs#3": BESIDE_AN_ID,
    "postgres/06_admin.sql:prune#1": BESIDE_AN_ID,
    "postgres/09_pull.sql:claim_job#2": BESIDE_AN_ID,
    "postgres/09_pull.sql:claim_job#3": BESIDE_AN_ID,
    "postgres/09_pull.sql:kick_jobs#2": "locks rows; whose job is kicked is told by what is called next",
    "postgres/09_pull.sql:first_job_of_topic#5": "is about what a peek let in, unless a policy holds it",
    "postgres/08_statistics.sql:stats#6": "what it tells is dropped once more by the store's Python",
    "postgres/integrity_checks.sql:dependencies_owned#1": OVER_ALL,
    "postgres/integrity_checks.sql:blocked_add_up#1": OVER_ALL,
    "postgres/integrity_checks.sql:parents_flagged#1": OVER_ALL,
    **{
        f"postgres/integrity_checks.sql:blocked_jobs_have_parents#{number}": OVER_ALL
        for number in range(1, 4)
    },
    **{f"postgres/job_queries.sql:parents#{number}": OF_ITS_CHILD for number in range(1, 4)},
    **{f"postgres/dependencies.sql:resolve_imported#{number}": OF_ITS_CHILD for number in range(1, 4)},
    "postgres/dependencies.sql:dependents#1": OF_ITS_CHILD,
    "postgres/06_admin.sql:lock_ended_parents#1": "locks rows; whose job is requeued comes out later",
    "postgres/06_admin.sql:requeue#2": OF_ITS_CHILD,
    "postgres/06_admin.sql:requeue#5": BESIDE_AN_ID,
    "postgres/06_admin.sql:cancel#1": "locks rows; whose job is cancelled is told by what comes next",
    "postgres/09_pull.sql:claim_job#4": OF_ITS_CHILD,
    "postgres/07_leased_batches.sql:unbatch_jobs#1": "another tenant's job is looked for by its state before",
    **{f"postgres/10_dependencies.sql:add_parents#{number}": OF_ITS_CHILD for number in (3, 4)},
    **{f"postgres/10_dependencies.sql:release_dependents#{number}": OF_ITS_CHILD for number in range(1, 11)},
    **{
        f"postgres/10_dependencies.sql:clear_dependents_flag#{number}": OF_ITS_CHILD for number in range(1, 4)
    },
    "postgres/10_dependencies.sql:restore_parents#1": OF_ITS_CHILD,
    **{f"postgres/10_dependencies.sql:parents_of#{number}": OF_ITS_CHILD for number in range(1, 4)},
    "postgres/08_statistics.sql:stats#3": "of a tenant with few jobs those are looked at one by one",
}

MUTANTS = mutants()
SEEN = [mutant for mutant in MUTANTS if str(mutant) not in UNSEEN]

TenantTest = Callable[..., Awaitable[None]]
SUITE: list[TenantTest] = [value for name, value in vars(tenants).items() if name.startswith("test_")]


async def _run(test: TenantTest, store: Store, clock: FrozenClock) -> None:
    given = {"store": store, "clock": clock}
    await test(**{name: given[name] for name in inspect.signature(test).parameters})


async def _run_suite(
    store: Store, limited: Store, clock: FrozenClock, at: Callable[[TenantTest], None] = lambda _: None
) -> None:
    for test in SUITE:
        at(test)
        await _run(test, store, clock)
    await enqueue_one(limited, "limited", key="k", tenant="another")
    with pytest.raises(LimitExceeded):
        await enqueue_one(limited, "limited", key="k", tenant="mine")
    with pytest.raises(LimitExceeded):
        await limited.enqueue([job("at-once", key="k", tenant=tenant) for tenant in ("another", "mine")])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def warm() -> AsyncIterator[WarmConnections]:
    """For the stores of all mutants, which make hundreds of calls each."""
    async with warm_connections() as warm:
        yield warm


@asynccontextmanager
async def _stores(
    name: str, directory: Path, clock: FrozenClock, warm: WarmConnections
) -> AsyncIterator[tuple[Store, Store]]:
    """A store, and one on the same jobs that lets in one of each topic. PostgreSQL packs what it claims."""
    url, kind = STORES[name](directory), PACKED if name == "postgres" else name
    store, limited = (
        made(kind, url, clock=clock),
        made(kind, url, clock=clock, limits=StoreLimits(max_jobs_per_topic=1)),
    )
    for one in (store, limited):
        warm.lend_to(one)
        await one.open()
    try:
        await store.migrate()
        yield store, limited
    finally:
        for one in (limited, store):
            await one.close()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", STORES)
async def test_the_suite_passes_while_nothing_is_taken_away(
    name: str, tmp_path: Path, warm: WarmConnections
) -> None:
    """On a single store, as below: otherwise every mutant would look caught."""
    clock = FrozenClock()
    async with _stores(name, tmp_path, clock, warm) as (store, limited):
        await _run_suite(store, limited, clock)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("mutant", SEEN, ids=str)
async def test_a_store_without_this_predicate_is_caught(
    mutant: Mutant, tmp_path: Path, warm: WarmConnections
) -> None:
    """Whichever it is: a test of two tenants fails."""
    if not await _caught_like_its_neighbour(mutant, tmp_path, warm):
        clock = FrozenClock()
        async with _stores(mutant.store, tmp_path, clock, warm) as (store, limited), mutant.alive(store):
            with pytest.raises(mutant.caught_by):
                await _run_suite(store, limited, clock, partial(_caught.__setitem__, _file(mutant)))


_caught: dict[str, TenantTest] = {}
"""By the file of a mutant: the test that was running when the last one of that file was caught."""


def _file(mutant: Mutant) -> str:
    return str(mutant).partition(":")[0]


async def _caught_like_its_neighbour(mutant: Mutant, directory: Path, warm: WarmConnections) -> bool:
    """What saw the last mutant of this file mostly sees the next one, and need not wait for its turn.

    On a store of its own, where that test passes while nothing is taken away, as the conformance suite shows.
    """
    test = _caught.get(_file(mutant))
    if test is None:
        return False
    apart, clock = directory / "neighbour", FrozenClock()
    apart.mkdir()
    async with _stores(mutant.store, apart, clock, warm) as (store, _), mutant.alive(store):
        try:
            await _run(test, store, clock)
        except mutant.caught_by:
            return True
    return False


def test_every_predicate_is_found() -> None:
    """Also those that nobody sees have to be there: the list is not to outlive what it excuses."""
    assert UNSEEN.keys() <= {str(mutant) for mutant in MUTANTS}
    found = Counter(mutant.store for mutant in SEEN)
    assert all(found[store] >= number for store, number in AT_LEAST.items()), found


def test_sqlite_compares_tenants_in_one_place() -> None:
    """``tenant_scope.py`` says which condition, the ``.sql`` files where; there is no third way."""
    comparison = re.compile(r"\b(tenant|scope)\s*(=|<|>|!|\bIN\b|\bIS\b|\bLIKE\b|\bGLOB\b)", re.IGNORECASE)
    directory = SOURCES / "sqlite"
    for path in sorted((directory / "sql").glob("*.sql")):
        if (
            path.name == "integrity_checks.sql"
        ):  # about all tenants: whether keys belong to the jobs that hold them
            continue
        statements = re.sub(r"--.*", "", path.read_text("utf-8"))
        assert not comparison.search(statements), f"{path.name}: use {{tenant}} or {{key}}, tenant_scope.py"
    for path in sorted(directory.glob("*.py")):
        if path.name == "tenant_scope.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not comparison.search(node.value), f"{path.name}: {node.value!r}"
