"""What needs attention: one answer for "what is wrong, and what do I do"."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.reports.test_questions import claim, worker
from tidewheel import JobError, SecurityContext, StoreUnavailable, Tidewheel, acting_as
from tidewheel.admin.reports.answers import Finding, FindingKind, Severity, StuckKind
from tidewheel.admin.reports.attention import HIGH_ERROR_SHARE, MIN_ERROR_SHARE, wilson_lower_bound
from tidewheel.admin.reports.findings import describe_health_finding
from tidewheel.admin.reports.questions import Questions
from tidewheel.core.model import ClaimRequest, Completed, Failed, Lane, Retried, Settlement
from tidewheel.core.reports import HealthFinding, HealthFindingKind
from tidewheel.core.topic_limits import Rate, TopicLimits
from tidewheel.stores.memory import MemoryStore
from tidewheel.stores.sqlite import health
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import enqueue_one

ERROR = JobError("boom", "it does not work")


@pytest.fixture
async def app(clock: FrozenClock) -> AsyncIterator[Tidewheel]:
    """In memory: what stores tell is the same on all of them, and what ails them is tried for itself."""
    async with Tidewheel("memory://", clock=clock) as made:
        yield made


async def findings(app: Tidewheel) -> dict[FindingKind, Finding]:
    """By kind; of two of a kind the first."""
    found = (await app.questions.attention()).findings
    return {finding.kind: finding for finding in reversed(found)}


async def settle(app: Tidewheel, topic: str, outcomes: list[Any]) -> None:
    """Jobs of a topic that end so."""
    await app.enqueue_many(topic, [{}] * len(outcomes))
    held = await claim(app, topic)
    pairs = zip(held, outcomes, strict=True)
    await app.store.settle([Settlement(job.lease, outcome, 0.1) for job, outcome in pairs])


async def test_nothing_needs_attention(app: Tidewheel) -> None:
    """An empty queue in memory has nothing to complain about."""
    found = await app.questions.attention()
    assert (found.answer, found.findings, found.more) == ("Nothing needs attention.", (), 0)
    assert (found.critical, found.warnings, found.infos) == (0, 0, 0)


@pytest.mark.parametrize(("number", "told"), [(3, 3), (4, 1), (120, 1)])
async def test_many_workers_that_vanished_are_one_finding(
    app: Tidewheel, clock: FrozenClock, number: int, told: int
) -> None:
    """A machine that went away is one thing to look at; who was gone before is no news, and told apart."""
    await app.store.heartbeat(worker("of yesterday"))
    clock.advance(2 * 3600)
    for index in range(number):
        await app.store.heartbeat(worker(f"w{index:03}"))
        clock.advance(0.01)
    clock.advance(30)
    found = [one for one in (await app.questions.attention()).findings if one.kind == "worker_missing"]
    assert [one.severity for one in found] == ["warning"] * told + ["info"]
    assert found[-1].worker == "of yesterday"
    if told == 1:
        names = "w000, w001, w002, w003" + ("" if number == 4 else ", w004 and 115 more")
        assert found[0].title == f"{number} workers are missing"
        assert found[0].explanation == f"Workers {names} have not been heard of for 30 s or longer."
        assert found[0].worker is None


def test_every_kind_has_its_word() -> None:
    """What is stuck and what ails a store are findings under the same names."""
    assert {str(kind) for kind in (*StuckKind, *HealthFindingKind)} <= {str(kind) for kind in FindingKind}


@pytest.mark.parametrize(
    ("errors", "attempts", "told"),
    [(1, 5, False), (1, 1, True), (2, 2, True), (25, 100, False), (30, 100, True), (230, 1000, True)],
)
def test_how_sure_one_can_be(errors: int, attempts: int, told: bool) -> None:
    """The bound the module's own words promise; that one failure is not told is another rule."""
    assert (wilson_lower_bound(errors, attempts) >= MIN_ERROR_SHARE) is told
    assert wilson_lower_bound(4, 4) >= HIGH_ERROR_SHARE > wilson_lower_bound(3, 3)
    assert wilson_lower_bound(0, 0) == 0.0


@pytest.mark.parametrize(
    ("failed", "retried", "completed", "severity"),
    [
        (1, 0, 4, None),
        (1, 0, 0, None),
        (1, 2, 0, Severity.WARNING),
        (5, 0, 0, Severity.CRITICAL),
        (0, 6, 0, Severity.CRITICAL),
        (4, 0, 8, None),
        (40, 0, 40, Severity.WARNING),
    ],
)
async def test_a_task_that_fails_is_told_and_one_that_failed_once_is_not(
    app: Tidewheel, failed: int, retried: int, completed: int, severity: Severity | None
) -> None:
    """Neither does one failure in five cry wolf, nor does a task that always fails go unnoticed."""
    outcomes = [Failed(ERROR)] * failed + [Retried(60, ERROR)] * retried + [Completed()] * completed
    await settle(app, "mail", outcomes)
    found = (await findings(app)).get(FindingKind.FAILING_TASK)
    assert (None if found is None else found.severity) == severity
    if found is not None:
        assert (found.topic, found.jobs) == ("mail", failed)
        assert found.details["errored"] == failed + retried
        assert found.where is not None
        assert (await app.count(where=found.where)).total == (failed or retried)


async def test_old_trouble_is_forgotten_once_a_task_works_again(app: Tidewheel, clock: FrozenClock) -> None:
    """The last quarter of an hour decides, when enough happened in it; before that the hour does."""
    await settle(app, "mail", [Failed(ERROR)] * 20)
    clock.advance(20 * 60)
    await settle(app, "mail", [Completed()] * 5)
    assert FindingKind.FAILING_TASK in await findings(app)
    await settle(app, "mail", [Completed()] * 5)
    assert FindingKind.FAILING_TASK not in await findings(app)
    await settle(app, "mail", [Failed(ERROR)] * 20)
    assert (await findings(app))[FindingKind.FAILING_TASK].details["attempts"] == 30
    clock.advance(3660)
    assert FindingKind.FAILING_TASK not in await findings(app)


async def test_a_lane_that_falls_behind_says_how_long_it_takes(app: Tidewheel, clock: FrozenClock) -> None:
    """Due jobs by the pace of the last minutes; a warning only where they become more."""
    await app.store.heartbeat(worker("w", Lane("mail")))
    await settle(app, "mail", [Completed()] * 15)
    await app.enqueue_many("mail", [{}] * 300)
    found = (await findings(app))[FindingKind.BACKLOG]
    assert (found.severity, found.jobs, found.details["drain_seconds"]) == (Severity.WARNING, 300, 1200)
    assert "at the present pace of 15.0 a minute they take 20m" in found.explanation
    assert "and 315.0 a minute come in" in found.explanation
    clock.advance(16 * 60)
    await app.store.heartbeat(worker("w", Lane("mail")))
    held = await claim(app, "mail")
    await app.store.settle([Settlement(job.lease, Completed(), 0.1) for job in held[:2]])
    found = (await findings(app))[FindingKind.BACKLOG]
    assert (found.severity, found.title) == (Severity.INFO, "mail has a long backlog")
    await app.store.settle([Settlement(job.lease, Completed(), 0.1) for job in held[2:20]])
    assert FindingKind.BACKLOG not in await findings(app)


async def test_a_queue_without_a_worker_is_one_finding(app: Tidewheel) -> None:
    """Not one for each of its lanes; the lanes that a worker leaves out are told one by one."""
    await app.enqueue_many("mail", [{}] * 2)
    await app.enqueue("reports", {})
    found = await app.questions.attention()
    [only] = found.findings
    assert (only.kind, only.severity, only.jobs) == (FindingKind.NO_WORKER, Severity.CRITICAL, 3)
    assert found.answer == "1 thing is critical; first: No worker is running."
    await app.store.heartbeat(worker("w", Lane("mail")))
    [only] = (await app.questions.attention()).findings
    assert (only.title, only.where) == ("No worker takes reports", 'state:pending topic:reports task:""')


async def test_a_thousand_lanes_with_one_trouble_hide_no_other(app: Tidewheel, clock: FrozenClock) -> None:
    """The worst are told one by one and the rest in one, so that there is room for what else is wrong."""
    await app.store.heartbeat(worker("anna", Lane("left")))
    left = await app.enqueue("left", timeout=None)
    await claim(app, "left", lease_seconds=30)
    for number in range(150):
        await app.enqueue(f"topic{number:03}")
    await app.enqueue("topic149")
    clock.advance(60)
    await app.store.heartbeat(worker("anna", Lane("left")))
    told = await app.questions.attention()
    kinds = Counter(finding.kind for finding in told.findings)
    assert kinds[FindingKind.NO_WORKER] == 11
    assert kinds[FindingKind.LEASE_ENDED] == 1
    of_lanes = [finding for finding in told.findings if finding.kind is FindingKind.NO_WORKER]
    assert of_lanes[0].topic == "topic149"  # with the most jobs
    assert of_lanes[-1].title == "The same of 140 more"
    assert "topic009, topic010" in of_lanes[-1].explanation
    assert of_lanes[-1].explanation.endswith("and 135 more, 140 jobs together.")
    assert sum(finding.jobs for finding in of_lanes) == 151
    assert any(finding.job_id == left.id for finding in told.findings)


async def test_a_worker_with_many_lanes_does_not_hide_one_that_nobody_takes(
    app: Tidewheel, clock: FrozenClock
) -> None:
    """It lists some of its lanes only, so that it is told by what happens in the others."""

    async def untaken() -> bool:
        await app.store.heartbeat(worker("w", Lane("mail"), more_lanes=3))
        return FindingKind.NO_WORKER in await findings(app)

    await app.enqueue_many("reports", [{}] * 3)
    assert not await untaken()  # it may be taken in a moment
    clock.advance(7 * 60)
    assert await untaken()
    assert [thing.kind for thing in (await app.questions.stuck()).things] == [StuckKind.NO_WORKER]
    [held] = (await app.store.claim(ClaimRequest("w", (Lane("reports"),), 1, 60))).jobs
    assert not await untaken()
    await app.store.settle([Settlement(held.lease, Completed(), 0.1)])
    assert not await untaken()
    clock.advance(7 * 60)
    assert await untaken()


@pytest.mark.parametrize(
    ("failed", "retried", "words"),
    [
        (4, 0, "4 ended in an error; 4 jobs failed for good."),
        (0, 5, "5 ended in an error; no job has failed for good yet, each has attempts left."),
        (1, 5, "6 ended in an error; 1 job failed for good, the other attempts had one after them."),
    ],
)
async def test_a_failing_task_is_told_in_plain_words(
    app: Tidewheel, failed: int, retried: int, words: str
) -> None:
    """What became of the jobs, and a command that finds them, whatever they are called."""
    await settle(app, "mail", [Failed(ERROR)] * failed + [Retried(60, ERROR)] * retried)
    found = (await findings(app))[FindingKind.FAILING_TASK]
    assert found.explanation.endswith(words)
    state = "failed" if failed else "retrying"
    assert f"tidewheel jobs list --where 'state:{state} topic:mail task:\"\"'" in found.remedy
    assert ("requeue" in found.remedy) is bool(failed)


async def test_a_command_is_safe_to_paste(app: Tidewheel) -> None:
    """Over the beanstalkd wire a topic may have a name that means something to a shell."""
    await app.pause("a;$(reboot)")
    [found] = (await app.questions.attention()).findings
    assert found.remedy == "tidewheel topics resume 'a;$(reboot)'"
    await enqueue_one(app.store, "a;$(reboot)")
    [found] = (await app.questions.attention()).findings
    assert found.remedy == "tidewheel topics resume 'a;$(reboot)'"


async def test_the_worst_comes_first_and_each_says_what_to_do(app: Tidewheel, clock: FrozenClock) -> None:
    """Workers in trouble, paused topics, versions: with a remedy, and a filter that finds the jobs."""
    await app.store.heartbeat(worker("gone", Lane("mail")))
    clock.advance(60)
    late = worker("late", Lane("mail"), loop_lag_seconds=2.5, polling=True, stuck=1)
    await app.store.heartbeat(late)
    other = worker("other", Lane("mail"))
    await app.store.heartbeat(other)
    await app.enqueue("mail", {})
    await app.pause("mail")
    await app.pause("idle", 90)
    await settle(app, "reports", [Failed(ERROR)] * 4)
    found = (await app.questions.attention()).findings
    assert [finding.severity for finding in found] == sorted(
        (finding.severity for finding in found), key=list(Severity).index
    )
    assert {finding.kind for finding in found} == {
        FindingKind.FAILING_TASK,
        FindingKind.PAUSED,
        FindingKind.WORKER_LAGGING,
        FindingKind.WORKER_MISSING,
        FindingKind.WORKER_POLLING,
        FindingKind.WORKER_STUCK,
    }
    for finding in found:
        assert finding.remedy
        assert finding.explanation.endswith(".")
        if finding.where is not None:
            await app.count(where=finding.where)
    paused = [finding for finding in found if finding.kind is FindingKind.PAUSED]
    assert [(one.topic, one.severity) for one in paused] == [("mail", "warning"), ("idle", "info")]


async def test_a_worker_that_vanished_long_ago_is_no_news(app: Tidewheel, clock: FrozenClock) -> None:
    """It stays on the list for a day, but does not cry for so long."""
    await app.store.heartbeat(worker("gone"))
    clock.advance(120)
    assert (await findings(app))[FindingKind.WORKER_MISSING].severity is Severity.WARNING
    clock.advance(2 * 3600)
    assert (await findings(app))[FindingKind.WORKER_MISSING].severity is Severity.INFO


async def test_workers_and_the_store_are_not_for_tenants(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant is told of its own jobs, and nothing of what is everybody's."""

    async def ail(store: MemoryStore) -> list[HealthFinding]:
        return [HealthFinding(HealthFindingKind.POOLED)]

    monkeypatch.setattr(MemoryStore, "health", ail)
    await app.store.heartbeat(worker("late", Lane("mail"), loop_lag_seconds=2.5))
    with acting_as(SecurityContext("acme")):
        await app.enqueue("mail", {})
    await app.pause("mail")
    with acting_as(SecurityContext("acme")):
        [only] = (await app.questions.attention()).findings
        assert (only.kind, only.jobs, only.worker) == (FindingKind.PAUSED, 1, None)
    with acting_as(SecurityContext("globex")):
        assert (await app.questions.attention()).findings == ()
    assert {FindingKind.POOLED, FindingKind.WORKER_LAGGING} <= (await findings(app)).keys()


@pytest.mark.parametrize("trouble", ["error", "silence"])
async def test_a_store_that_does_not_say_what_ails_it_is_a_finding(
    app: Tidewheel, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """The rest of the answer does not depend on it."""

    async def ail(store: MemoryStore) -> list[HealthFinding]:
        if trouble == "error":
            raise StoreUnavailable("no right to look")
        await asyncio.sleep(60)
        return []

    monkeypatch.setattr(MemoryStore, "health", ail)
    monkeypatch.setattr("tidewheel.admin.reports.questions.HEALTH_TIMEOUT_SECONDS", 0.01)
    await app.enqueue("mail", {})
    found = await findings(app)
    assert found[FindingKind.UNSEEN].severity is Severity.INFO
    assert FindingKind.NO_WORKER in found


async def test_what_is_usual_is_asked_only_where_a_job_could_be_slow(
    app: Tidewheel, clock: FrozenClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at ten thousand finished jobs, which a page that asks every few seconds must not pay for."""
    asked = []
    durations = MemoryStore.durations

    async def count(store: MemoryStore, **named: Any) -> Any:
        asked.append(1)
        return await durations(store, **named)

    monkeypatch.setattr(MemoryStore, "durations", count)
    await app.enqueue("mail", {})
    await claim(app, "mail", lease_seconds=600)
    await app.questions.attention()
    assert asked == []
    clock.advance(61)
    await Questions(app).attention()
    assert asked == [1]


def test_every_ailment_has_words() -> None:
    """With its figures in them, for the doctor and for attention alike."""
    examples = [
        (HealthFinding(HealthFindingKind.OLD_SQLITE, {"version": "3.40.1", "fixed": "3.51.3"}), "3.40.1"),
        (
            HealthFinding(HealthFindingKind.LONG_LOG, {"bytes": 2**28, "limit": 1, "file": "/x-wal"}),
            "256.0 MB",
        ),
        (HealthFinding(HealthFindingKind.LITTLE_SPACE, {"free": 2**20, "directory": "/data"}), "1.0 MB"),
        (HealthFinding(HealthFindingKind.IN_MEMORY, {"directory": "/tmp", "file_system": "tmpfs"}), "tmpfs"),
        (
            HealthFinding(HealthFindingKind.NETWORK_FILE, {"directory": "/mnt", "file_system": "nfs4"}),
            "(nfs4)",
        ),
        (
            HealthFinding(
                HealthFindingKind.READABLE_FILE, {"file": "/x.db", "mode": "0644", "readers": "everyone"}
            ),
            "chmod 600 /x.db",
        ),
        (
            HealthFinding(HealthFindingKind.UNSAFE_COMMITS, {"setting": "fsync", "value": "off"}),
            "fsync is off",
        ),
        (
            HealthFinding(HealthFindingKind.PINNED_VACUUM, SESSION),
            "process 42 (report, ann, idle in transaction)",
        ),
        (
            HealthFinding(HealthFindingKind.PINNED_VACUUM, {**SESSION, "holder": "prepared", "name": "x"}),
            "prepared",
        ),
        (
            HealthFinding(
                HealthFindingKind.PINNED_VACUUM,
                {"holder": "slot", "name": "standby", "active": "no", "transactions": 5},
            ),
            "only where it is gone for good: SELECT pg_drop_replication_slot('standby')",
        ),
        (
            HealthFinding(
                HealthFindingKind.PINNED_VACUUM,
                {"holder": "standby", "name": "replica", "active": "yes", "transactions": 5},
            ),
            "hot_standby_feedback",
        ),
        (
            HealthFinding(HealthFindingKind.PINNED_VACUUM, {**SESSION, "holder": "prepared", "name": "a'b"}),
            "ROLLBACK PREPARED 'a''b'",
        ),
        (
            HealthFinding(HealthFindingKind.DEAD_ROWS, {"table": "w.jobs", "dead": 200_000, "live": 5}),
            "200,000 dead",
        ),
        (
            HealthFinding(HealthFindingKind.SPARSE, {"table": "w.jobs", "bytes": 2**30, "used": 0.1}),
            "10% of the 1.0 GB",
        ),
        (HealthFinding(HealthFindingKind.NO_VACUUM, {"setting": "autovacuum"}), "set autovacuum = on"),
        (
            HealthFinding(
                HealthFindingKind.LONG_LOG,
                {"bytes": 2**28, "limit": 1, "file": "/x", "holders": "7 (backup)"},
            ),
            "end its transaction: 7 (backup)",
        ),
        (
            HealthFinding(
                HealthFindingKind.LONG_LOG, {"bytes": 1, "limit": 1, "file": "/x", "readers": "7 (backup)"}
            ),
            "process 7 (backup) keeps a read transaction open",
        ),
        (HealthFinding(HealthFindingKind.UNPRUNED, {"seconds": 7200.0}), "2h after their retention ended"),
        (HealthFinding(HealthFindingKind.NOTIFY_QUEUE, {"usage": 0.5}), "50% full"),
        (HealthFinding(HealthFindingKind.FEW_CONNECTIONS, {"used": 95, "limit": 100}), "95 of at most 100"),
        (HealthFinding(HealthFindingKind.POOLED), "pooler"),
        (
            HealthFinding(HealthFindingKind.UNSEEN, {"part": "the disk", "reason": "no such thing"}),
            "no such thing",
        ),
        (
            HealthFinding(HealthFindingKind.UNSEEN, {"part": "x", "reason": "y", "role": "some_role"}),
            "GRANT some_role TO …",
        ),
        (
            HealthFinding(
                HealthFindingKind.UNSEEN, {"part": "x", "reason": "y", "role": "r", "grantee": "plain"}
            ),
            "GRANT r TO plain",
        ),
    ]
    assert {ailment.kind for ailment, _ in examples} == set(HealthFindingKind)
    for ailment, text in examples:
        words = describe_health_finding(ailment)
        assert text in f"{words.title} {words.sentence}"
        assert words.remedy
        assert ("GRANT" in words.remedy) is ("role" in ailment.figures and "part" in ailment.figures)


@pytest.mark.parametrize(
    ("version", "bad"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 4), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_which_sqlite_has_the_reset_bug(version: tuple[int, ...], bad: bool) -> None:
    """All before 3.51.3, but for the two branches that were given the same correction."""
    assert health.has_reset_bug(version) is bad


SESSION: dict[str, str | int | float | None] = {
    "holder": "session",
    "seconds": 4000.0,
    "process": 42,
    "role": "ann",
    "application": "report",
    "address": None,
    "state": "idle in transaction",
    "transactions": 12,
    "query": "SELECT 1",
}


async def test_a_long_log_and_a_full_disk_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their size alone: nothing is opened that SQLite has open."""
    async with Tidewheel(f"sqlite:///{tmp_path.as_posix()}/jobs.db?synchronous=normal") as app:
        await app.enqueue("mail", {})
        monkeypatch.setattr(health, "BLOCKING_CHECKPOINT_BYTES", 1)
        monkeypatch.setattr(health, "LOW_DISK_BYTES", 2**62)
        found = await findings(app)
    assert {FindingKind.LONG_LOG, FindingKind.LITTLE_SPACE, FindingKind.UNSAFE_COMMITS} <= found.keys()
    assert str(found[FindingKind.LONG_LOG].details["file"]).endswith("jobs.db-wal")


LIMITED = [
    (TopicLimits(concurrency=1), "its limit of 1 at once (1 run)"),
    (TopicLimits(rate=Rate(1, 3600)), "its rate of 1 per 3600 s, which lets the next start in 59m"),
    (
        TopicLimits(key_concurrency=1),
        "its limit of 1 at once of each key (1 of key 'k' of tenant root run)",
    ),
    (
        TopicLimits(key_rate=Rate(1, 3600)),
        "its rate of 1 per 3600 s of each key, which lets the next of key 'k' of tenant root start in 59m",
    ),
    (
        TopicLimits(ordered=True),
        "the strict order of key 'k' of tenant root, in which an earlier one has not ended",
    ),
]


@pytest.mark.parametrize(("limits", "named"), LIMITED, ids=[str(limits) for limits, _ in LIMITED])
async def test_jobs_that_wait_for_a_limit_are_told(
    app: Tidewheel, clock: FrozenClock, limits: TopicLimits, named: str
) -> None:
    """With the topic, the key and the limit, and what to do; not while they wait for a moment only."""
    await app.limits.set("mail", limits)
    for _ in range(3):
        await enqueue_one(app.store, limit_key="k")
    assert len(await claim(app, "mail")) == 1
    await app.store.heartbeat(worker("w", Lane("mail")))
    assert FindingKind.LIMITED not in await findings(app)
    clock.advance(60)
    await app.store.heartbeat(worker("w", Lane("mail")))
    found = (await findings(app))[FindingKind.LIMITED]
    assert found.explanation == f"2 jobs of mail are due and wait for {named}; the first has waited for 1m."
    assert (found.severity, found.topic, found.jobs) == (Severity.INFO, "mail", 2)
    assert "tidewheel limits set mail" in found.remedy
    assert found.where is not None
    assert (await app.count(where=found.where)).total == 2
    clock.advance(3600)
    await app.store.heartbeat(worker("w", Lane("mail")))
    if limits.rate is None and limits.key_rate is None:
        assert (await findings(app))[FindingKind.LIMITED].severity is Severity.WARNING


async def test_a_limited_backlog_is_not_said_to_need_workers(app: Tidewheel, clock: FrozenClock) -> None:
    """They would wait, too."""
    await app.limits.set("mail", TopicLimits(concurrency=1))
    await app.enqueue_many("mail", [{}] * 200)
    assert len(await claim(app, "mail")) == 1
    clock.advance(60)
    await app.store.heartbeat(worker("w", Lane("mail")))
    found = await findings(app)
    assert FindingKind.LIMITED in found
    assert FindingKind.BACKLOG not in found
    await app.limits.remove("mail")
    found = await findings(app)
    assert FindingKind.BACKLOG in found
    assert FindingKind.LIMITED not in found


async def test_limits_are_not_told_to_a_tenant(app: Tidewheel, clock: FrozenClock) -> None:
    """Whose keys they are full with is nothing it may know."""
    await app.limits.set("mail", TopicLimits(key_concurrency=1))
    for _ in range(2):
        await enqueue_one(app.store, limit_key="k", tenant="acme")
    await claim(app, "mail")
    clock.advance(60)
    with acting_as(SecurityContext("acme")):
        assert FindingKind.LIMITED not in await findings(app)
