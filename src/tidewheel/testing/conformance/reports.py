"""Reports for operators: lanes, durations, failures, repeats, longest-running jobs, held-back topics (Q29).

A held-back topic has due jobs that a limit keeps from starting; the report names the limit.
"""

from __future__ import annotations

from dataclasses import replace

from tidewheel.core.model import (
    BodyFormat,
    Cancelled,
    Completed,
    Failed,
    JobError,
    JobFilter,
    KeyLifetime,
    Released,
    Retried,
    Settlement,
    State,
)
from tidewheel.core.reports import HealthFindingKind, MinuteStats, TaskActivity, TaskStats
from tidewheel.core.retry import Retry
from tidewheel.core.topic_limits import BlockedTopic, BlockingLimit, Rate, TopicLimits
from tidewheel.stores.bounds import (
    LANE_MINUTES_KEPT_SECONDS,
    MAX_BLOCKED_TOPICS,
    MAX_COMPARED_PAYLOAD_BYTES,
    MAX_HEALTH_FINDINGS,
    MAX_LANE_SERIES,
    MAX_LANES,
    TREND_BUCKETS,
)
from tidewheel.stores.protocol import Store
from tidewheel.testing.clock import FrozenClock
from tidewheel.testing.conformance.helpers import (
    BOOM,
    TOPIC,
    claim_jobs,
    claim_one,
    enqueue_many,
    enqueue_one,
    job,
    make_cancelled,
    make_completed,
    make_failed,
    settle_one,
)

HOUR = 3600.0
MINUTE = 60_000_000


async def test_a_lane_is_told_with_what_is_there_and_what_happened(store: Store, clock: FrozenClock) -> None:
    """Counts as of now, by topic and task; events and durations of the window, minute by minute."""
    first = clock.now() - clock.now() % MINUTE
    await enqueue_many(store, 6, "mail", task="send")
    await enqueue_one(store, "mail", task="digest", delay=60)
    clock.advance(120)
    await settle_one(store, (await claim_one(store, "mail")).lease, Completed(), 0.5)
    await settle_one(store, (await claim_one(store, "mail")).lease, Failed(BOOM), 1.5)
    await settle_one(store, (await claim_one(store, "mail")).lease, Retried(60, BOOM), 2.0)
    await settle_one(store, (await claim_one(store, "mail")).lease, Cancelled(BOOM), 8.0)
    await settle_one(store, (await claim_one(store, "mail")).lease, Released())
    digest, send = await store.lanes(window_seconds=HOUR)
    assert send == TaskStats(
        "mail",
        "send",
        pending=3,
        due=2,
        running=0,
        completed=1,
        failed=1,
        cancelled=1,
        activity=TaskActivity(
            enqueued=6,
            completed=1,
            failed=1,
            cancelled=1,
            retried=1,
            runs=3,
            run_seconds=4.0,
            waits=4,
            wait_seconds=4 * 120 - 12.0,
            series=(
                MinuteStats(first, enqueued=6),
                MinuteStats(first + 2 * MINUTE, completed=1, failed=1, cancelled=1, retried=1),
            ),
        ),
    )
    assert send.activity is not None
    assert send.activity.average_run_seconds == 4.0 / 3
    assert (digest.topic, digest.task, digest.pending, digest.due) == ("mail", "digest", 1, 1)
    assert await store.check() == []


async def test_jobs_settled_together_count_for_their_own_lanes(store: Store, clock: FrozenClock) -> None:
    """A batch of several lanes is added up lane by lane, what was not measured left out."""
    await store.enqueue([job("a"), job("b"), job("b", task="t"), job("b", task="t")])
    clock.advance(10)
    held = await claim_jobs(store, "a", "b")
    lengths = {"a": 1.0, "b": 2.0}
    settled = [
        Settlement(one.lease, Completed(), lengths[one.topic] if place < 3 else None)
        for place, one in enumerate(held)
    ]
    assert all(await store.settle(settled))
    lanes = {(lane.topic, lane.task): lane.activity for lane in await store.lanes(window_seconds=HOUR)}
    measured = {name: (a.completed, a.runs, a.run_seconds, a.wait_seconds) for name, a in lanes.items() if a}
    assert measured == {
        ("a", ""): (1, 1, 1.0, 9.0),
        ("b", ""): (1, 1, 2.0, 8.0),
        ("b", "t"): (2, 1, 2.0, 8.0),
    }


async def test_a_lane_without_jobs_is_told_while_something_happened(store: Store, clock: FrozenClock) -> None:
    """Deleted jobs had been there; after the window nothing is left to tell."""
    await store.delete([await make_completed(store, "gone")])
    [lane] = await store.lanes(window_seconds=HOUR)
    assert (lane.topic, lane.pending, lane.completed) == ("gone", 0, 0)
    assert lane.activity is not None
    assert (lane.activity.enqueued, lane.activity.completed) == (1, 1)
    clock.advance(HOUR + 60)
    assert await store.lanes(window_seconds=HOUR) == []


async def test_minutes_of_lanes_are_forgotten(store: Store, clock: FrozenClock) -> None:
    """They go back six hours, however long the window, and pruning takes the others away."""
    await make_completed(store, "old")
    clock.advance(LANE_MINUTES_KEPT_SECONDS + 60)
    await store.prune()
    [lane] = await store.lanes(window_seconds=10 * LANE_MINUTES_KEPT_SECONDS)
    assert (lane.completed, lane.activity) == (1, TaskActivity())
    assert (await store.stats(window_seconds=10 * LANE_MINUTES_KEPT_SECONDS)).series != ()


async def test_the_busiest_of_many_lanes_are_told(store: Store) -> None:
    """With more than can be told, those in which nothing happened for long are left out."""
    await store.enqueue([job(f"lane-{number:04}") for number in range(MAX_LANES)])
    await enqueue_many(store, 2, "zebra")
    lanes = await store.lanes(window_seconds=HOUR)
    assert len(lanes) == MAX_LANES
    assert (lanes[0].topic, lanes[-2].topic, lanes[-1].topic) == ("lane-0000", "lane-0998", "zebra")
    assert sum(bool(lane.activity and lane.activity.series) for lane in lanes) == MAX_LANE_SERIES
    assert lanes[-1].activity is not None
    assert lanes[-1].activity.series[0].enqueued == 2


async def test_due_jobs_are_counted_whoever_has_claimed(store: Store, clock: FrozenClock) -> None:
    """Also without a worker, which would promote delayed jobs when they are due."""
    await enqueue_one(store, "late", delay=10)
    await enqueue_one(store, "later", delay=100)
    clock.advance(10)
    lanes = {lane.topic: (lane.pending, lane.due) for lane in await store.lanes(window_seconds=HOUR)}
    assert lanes == {"late": (1, 1), "later": (1, 0)}


async def test_durations_are_those_of_completed_jobs(store: Store, clock: FrozenClock) -> None:
    """By lane: how long handlers ran and jobs had waited. What failed or was not measured is left out."""
    for seconds in (1.0, 1.0, 4.0):
        await enqueue_one(store, "mail", task="send")
        clock.advance(10)
        await settle_one(store, (await claim_one(store, "mail")).lease, Completed(), seconds)
    await enqueue_many(store, 2, "other")
    await settle_one(store, (await claim_one(store, "other")).lease, Failed(BOOM), 1.0)
    await settle_one(store, (await claim_one(store, "other")).lease, Completed())
    [lane] = await store.durations()
    assert (lane.topic, lane.task, lane.run_time.count, lane.run_time.average) == ("mail", "send", 3, 2.0)
    assert 0.8 < (lane.run_time.p50 or 0) < 1.2
    assert 3.5 < (lane.run_time.p99 or 0) < 4.6
    assert lane.wait_time.average == 8.0


async def test_failures_are_grouped_by_what_their_errors_say(store: Store, clock: FrozenClock) -> None:
    """Numbers and the like aside; by lane; with when, how many, and which job to look at."""
    began = clock.now()
    await make_failed(store, error=JobError("timeout", "timeout after 30.1 s"), task="send")
    clock.advance(HOUR / 2)
    second = await make_failed(store, error=JobError("timeout", "timeout after 29.8 s"), task="send")
    elsewhere = await make_failed(store, error=JobError("timeout", "timeout after 29.8 s"), task="digest")
    clock.advance(60)
    await make_failed(store, error=JobError("missing", "user 42 not found"))
    await make_completed(store)
    await make_cancelled(store)
    found = await store.failures(JobFilter(), window_seconds=HOUR)
    assert (found.jobs, found.found, found.complete) == (4, 3, True)
    most = found.groups[0]
    assert (most.task, most.count, most.newest) == ("send", 2, second)
    assert (most.pattern, most.sample) == ("timeout: timeout after … s", "timeout: timeout after 29.8 s")
    assert (most.first_failed_at, most.last_failed_at) == (began, began + 1800 * 1_000_000)
    assert [group.pattern for group in found.groups[1:]] == [
        "missing: user … not found",
        "timeout: timeout after … s",
    ]
    assert found.groups[2].newest == elsewhere
    assert len({group.fingerprint for group in found.groups}) == 3


async def test_the_trend_of_a_failure_is_that_of_the_window(store: Store, clock: FrozenClock) -> None:
    """In equal parts, the oldest first; what failed before the window counts, but is in none of them."""
    await make_failed(store)
    clock.advance(60)
    await make_failed(store)
    clock.advance(HOUR)
    await make_failed(store)
    clock.advance(1)
    [group] = (await store.failures(JobFilter(), window_seconds=HOUR + 1)).groups
    assert group.count == 3
    assert group.trend == (1, *(0,) * (TREND_BUCKETS - 2), 1)


async def test_failures_can_be_narrowed(store: Store, clock: FrozenClock) -> None:
    """By the filter of lists, its state aside, and by a text; the largest groups are told, all counted."""
    await make_failed(store, "a", error=JobError("x", "first"))
    clock.advance(10)
    await make_failed(store, "b", error=JobError("x", "second"))
    await make_failed(store, "b", error=JobError("x", "second"))

    async def told(limit: int = 10, **conditions: object) -> list[tuple[str, int]]:
        where = JobFilter(**conditions)  # type: ignore[arg-type]  # as the tests below have it
        groups = (await store.failures(where, window_seconds=HOUR, limit=limit)).groups
        return [(group.topic, group.count) for group in groups]

    assert await told() == [("b", 2), ("a", 1)]
    assert await told(topic="a") == [("a", 1)]
    assert await told(topic="a", state=State.COMPLETED) == [("a", 1)]
    assert await told(created_after=clock.now()) == [("b", 2)]
    assert await told(text="first") == [("a", 1)]
    assert await told(limit=1) == [("b", 2)]
    assert (await store.failures(JobFilter(), window_seconds=HOUR, limit=1)).found == 2
    assert await told(topic="nowhere") == []


async def test_a_failed_job_that_was_requeued_is_no_failure(store: Store) -> None:
    """What is failed now is told, not what has been."""
    await store.requeue([await make_failed(store)])
    assert (await store.failures(JobFilter(), window_seconds=HOUR)).groups == ()


async def test_jobs_that_share_a_key_are_repeats(store: Store) -> None:
    """One after the other, as ``until="finished"`` allows; by task, or topic of jobs without one."""
    first = await make_completed(store, "mail", key="k", key_until=KeyLifetime.FINISHED)
    await make_completed(store, "mail", key="k", key_until=KeyLifetime.FINISHED)
    newest = await enqueue_one(store, "mail", key="k", key_until=KeyLifetime.FINISHED)
    await enqueue_one(store, "mail", key="k", task="send")
    await enqueue_one(store, "mail", key="other")
    found = await store.duplicate_jobs()
    [group] = found.by_key
    assert (group.topic, group.task, group.key, group.count) == ("mail", "", "k", 3)
    assert (group.newest, group.oldest) == (newest, first)
    assert (found.keys_complete, found.payloads_complete) == (True, True)


async def test_pending_jobs_with_the_same_payload_are_repeats(store: Store) -> None:
    """Of one lane, one tenant and one format, and not too long; neither running nor finished ones."""
    await make_completed(store, payload=b"1")
    await enqueue_one(store, payload=b"1")
    await claim_one(store)
    oldest = await enqueue_one(store, payload=b"1", delay=60)
    newest = await enqueue_one(store, payload=b"1")
    await enqueue_one(store, payload=b"1", format=BodyFormat.BYTES)
    await enqueue_one(store, payload=b"1", task="send")
    await enqueue_one(store, payload=b"1", tenant="acme")
    await enqueue_one(store, payload=b"2")
    await enqueue_many(store, 2, payload=b'"%s"' % (b"x" * MAX_COMPARED_PAYLOAD_BYTES))
    long = b"x" * MAX_COMPARED_PAYLOAD_BYTES
    await enqueue_many(store, 3, "raw", payload=long, format=BodyFormat.BYTES)
    most, group = (await store.duplicate_jobs()).by_payload
    assert (most.topic, most.count) == ("raw", 3)
    assert (group.key, group.count, group.newest, group.oldest) == (None, 2, newest, oldest)
    assert [one.topic for one in (await store.duplicate_jobs(limit=1)).by_payload] == ["raw"]


async def test_the_longest_running_job_is_the_one_claimed_first(store: Store, clock: FrozenClock) -> None:
    """Whatever its number; no more than asked for, and nothing that is not running."""
    await enqueue_many(store, 2, priority=-1)
    held = [await claim_one(store)]
    clock.advance(1)
    await enqueue_one(store, "other")
    held.append(await claim_one(store, "other"))
    clock.advance(1)
    held += await claim_jobs(store)
    await make_completed(store, "done")
    expected = [one.lease.job_id for one in held]
    assert [record.id for record in await store.longest_running(10)] == expected
    first, second = await store.longest_running(2)
    assert (first.id, second.id) == (expected[0], expected[1])
    assert (first.state, first.claimed_at, first.payload) == (State.RUNNING, clock.now() - 2_000_000, None)


async def test_what_ails_a_store_is_told_without_looking_at_jobs(store: Store) -> None:
    """Of known kinds, no more than there may be, and the same whatever jobs there are."""
    before = [(ailment.kind, ailment.figures.get("setting")) for ailment in await store.health()]
    await enqueue_many(store, 3)
    await claim_jobs(store)
    found = await store.health()
    assert before == [(ailment.kind, ailment.figures.get("setting")) for ailment in found]
    assert len(found) <= MAX_HEALTH_FINDINGS
    # A role with few rights may not see what others do: then the answer says which role sees it.
    assert all(ailment.figures.get("role") for ailment in found if ailment.kind is HealthFindingKind.UNSEEN)
    assert store.notifications_down in {True, False}


async def test_a_job_shows_the_retry_policy_it_was_given(store: Store) -> None:
    """In every state, so that a copy of it can have the same; lists leave it out."""
    policy = Retry.fixed(7).dump()
    job_id = await enqueue_one(store, retry=policy)
    states = []
    for _ in range(3):
        record = await store.get(job_id)
        assert record is not None
        states.append(record.state)
        assert record.retry == policy
        if record.state is State.PENDING:
            granted = await claim_one(store)
        elif record.state is State.RUNNING:
            await store.settle([Settlement(granted.lease, Completed(), 0.1)])
    assert states == [State.PENDING, State.RUNNING, State.COMPLETED]
    [listed] = (await store.list_jobs(JobFilter(), limit=1)).items
    assert listed.retry is None


async def test_topics_that_have_room_are_not_held_back(store: Store, clock: FrozenClock) -> None:
    """Nor are those without due jobs, those without limits, and paused ones, which have another reason."""
    await store.set_limits(TOPIC, TopicLimits(concurrency=2))
    assert await store.blocked_by_limits() == []
    await enqueue_many(store, 3)
    await enqueue_one(store, "plain")
    assert await store.blocked_by_limits() == []
    await claim_jobs(store)
    [told] = await store.blocked_by_limits()
    assert told.topic == TOPIC
    await store.pause(TOPIC, clock.now() + 1_000_000)
    assert await store.blocked_by_limits() == []
    clock.advance(1)
    assert await store.blocked_by_limits() == [told]
    await store.set_limits(TOPIC, TopicLimits(fair=True))
    assert await store.blocked_by_limits() == []


async def test_a_limit_on_what_runs_is_told(store: Store, clock: FrozenClock) -> None:
    """With how many run, and since when the first of the others is due."""
    limits = TopicLimits(concurrency=2, key_concurrency=1)
    await store.set_limits(TOPIC, limits)
    await enqueue_one(store, limit_key="a", tenant="acme")
    clock.advance(5)
    waiting = await enqueue_many(store, 3, limit_key="a", tenant="acme")
    due = clock.now()
    first = await claim_one(store)
    clock.advance(5)
    of_key = BlockedTopic(TOPIC, limits, BlockingLimit.KEY_CONCURRENCY, 1, due, None, "acme", "a")
    assert await store.blocked_by_limits() == [of_key]
    await enqueue_one(store)
    assert await store.blocked_by_limits() == []
    await claim_jobs(store)
    assert await store.blocked_by_limits() == [BlockedTopic(TOPIC, limits, BlockingLimit.CONCURRENCY, 2, due)]
    await settle_one(store, first.lease, Completed())
    assert (await claim_one(store)).lease.job_id == waiting[0]


async def test_a_rate_is_told_with_the_moment_of_the_next_start(store: Store, clock: FrozenClock) -> None:
    """That of the topic, and that of the key of the first job."""
    limits = TopicLimits(rate=Rate(1, 10, 2), key_rate=Rate(1, 60, 1))
    await store.set_limits(TOPIC, limits)
    due = clock.now()
    await enqueue_many(store, 3, limit_key="k")
    await claim_one(store)
    at = due + 60_000_000
    of_key = BlockedTopic(TOPIC, limits, BlockingLimit.KEY_RATE, 1, due, at, "root", "k")
    assert await store.blocked_by_limits() == [of_key]
    await enqueue_one(store)
    await claim_one(store)
    of_topic = BlockedTopic(TOPIC, limits, BlockingLimit.RATE, 2, due, due + 10_000_000)
    assert await store.blocked_by_limits() == [of_topic]
    clock.advance(10)
    assert await store.blocked_by_limits() == [replace(of_key, running=2)]


async def test_strict_order_is_told(store: Store) -> None:
    """Of a line whose first job runs, and of one whose first job waits to be run again."""
    limits = TopicLimits(ordered=True)
    await store.set_limits(TOPIC, limits)
    await enqueue_many(store, 2, limit_key="k")
    first = await claim_one(store)
    [told] = await store.blocked_by_limits()
    assert (told.blocking_limit, told.running, told.limit_key) == (BlockingLimit.ORDERED, 1, "k")
    await settle_one(store, first.lease, Retried(60.0, BOOM))
    [told] = await store.blocked_by_limits()
    assert (told.blocking_limit, told.running, told.limit_key) == (BlockingLimit.ORDERED, 0, "k")


async def test_so_many_topics_are_looked_at(store: Store) -> None:
    """By name, those with due jobs."""
    topics = [f"t{number:03}" for number in range(MAX_BLOCKED_TOPICS + 1)]
    for topic in topics:
        await store.set_limits(topic, TopicLimits(concurrency=1))
    await store.enqueue([job(topic) for topic in topics for _ in range(2)])
    assert len(await claim_jobs(store, *topics, limit=len(topics))) == len(topics)
    assert [one.topic for one in await store.blocked_by_limits()] == topics[:-1]
