"""Granting due jobs: look at the head of each lane, take the best, put a new fence on each."""

from __future__ import annotations

import functools
import itertools
import operator
import sqlite3
from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import msgspec

from tidewheel.core.clock import MICROSECONDS, seconds_to_microseconds
from tidewheel.core.model import FOREVER, Claim, Claimed, ClaimRequest, Lane, Lease
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite import topic_limits
from tidewheel.stores.sqlite.maintenance import rescue_jobs
from tidewheel.stores.sqlite.row_mapping import FORMATS
from tidewheel.stores.sqlite.write_transaction import StateCode, WriteTransaction

_sql = SqlFile("tidewheel.stores.sqlite", "sql/claims.sql")

PROMOTE_LIMIT = 10_000
MAX_INLINE_BODY = 4096
"""Bodies up to this many bytes come with their jobs, all in one value."""

MIN_LANE_DEPTH = 4
"""Jobs of a lane that are looked at in any case: fewer would make it necessary to look again too often."""

MAX_LANES_PER_STATEMENT = 128
"""Of one statement. Fewer go in powers of two, so that few statements have to be prepared."""

_Candidate = tuple[int, int]
"""Priority (negative, so that the best sorts first) and number."""


class _ChosenJob(msgspec.Struct, array_like=True, gc=False):
    """What ``chosen`` tells of a job, in its order."""

    position: int  # among the chosen ones, best first
    id: UUID
    losses: int
    reserves: int
    format: int
    payload: str | None  # hexadecimal; None = it is large, and fetched apart
    topic: str
    task: str
    tenant: str
    priority: int
    attempt: int
    max_attempts: int | None
    timeout_us: int | None
    retry: str | None
    lease_us: int
    number: int
    created_at: int
    run_at: int
    key: str | None
    correlation_id: str | None
    user_id: str | None
    service_id: str | None
    headers: str | None
    limit_key: str | None


_read_found = msgspec.json.Decoder(list[tuple[int, int, int]]).decode
_read_tasks = msgspec.json.Decoder(list[str]).decode
_read_chosen = msgspec.json.Decoder(list[_ChosenJob]).decode
_lane_of = operator.attrgetter("tenant", "topic", "task")
_limit_of = operator.attrgetter("number", "topic", "tenant", "limit_key")


def claim(transaction: WriteTransaction, request: ClaimRequest) -> Claim:
    connection, now = transaction.connection, transaction.now
    moments, topics_say_something = run_maintenance(transaction)
    paused: dict[str, int] = {}
    limited: dict[str, TopicLimits] = {}
    if topics_say_something:
        paused, limited = _paused_and_limited(connection, request, now)
    lanes = _lanes(transaction, request)
    held_back = [lane for lane in lanes if lane[0] in paused]
    plain = [lane for lane in lanes if lane[0] not in paused and lane[0] not in limited]
    best = _choose(connection, request, plain)
    numbers = [number for _, number in best]
    kept_back = False
    if limited:
        choice = topic_limits.choose_jobs(transaction, request, lanes, limited, best)
        numbers, kept_back = choice.numbers, choice.needs_more_slots
        if choice.next_start_at is not None:
            moments.append(choice.next_start_at)
    more = len(numbers) == request.limit
    chosen = _read_chosen_jobs(connection, numbers, seconds_to_microseconds(request.lease_seconds))
    suspect = next((position for position, job in enumerate(chosen) if job.losses), None)
    if suspect is not None:
        # It waits for a claim of its own, which is this one when it comes first.
        more = True
        del chosen[max(suspect, 1) :]
    next_due = 0.0 if more else _next_due_in(transaction, moments, held_back, paused)
    if not chosen:
        return Claim((), next_due, kept_back)
    if limited:
        chosen.sort(key=_by_position)
        for position, job in enumerate(chosen):
            job.position = position
    return Claim(
        tuple(
            _grant(
                transaction,
                chosen,
                request.worker,
                request.lease_seconds,
                limited,
                counts_if_lost=len(chosen) == 1 and not request.reports_starts,
            )
        ),
        next_due,
        kept_back,
    )


def _paused_and_limited(
    connection: sqlite3.Connection, request: ClaimRequest, now: int
) -> tuple[dict[str, int], dict[str, TopicLimits]]:
    """Which of a claim's topics are paused, and until when; and which of the others have limits."""
    topics = {lane.topic for lane in request.lanes}
    rows = [row for row in connection.execute(_sql["paused"], (now,)) if row[0] in topics]
    paused = {topic: until for topic, until, _ in rows if until is not None and until > now}
    limited = {
        topic: TopicLimits.from_json(text)
        for topic, _, text in rows
        if text is not None and topic not in paused
    }
    return paused, limited


def claim_ready_job(transaction: WriteTransaction, number: int, worker: str, lease_seconds: float) -> Claimed:
    """Just this job, which is ready. No limit of its topic is asked, but it runs."""
    chosen = _read_chosen_jobs(transaction.connection, [number], seconds_to_microseconds(lease_seconds))
    topic_limits.mark_granted(transaction, chosen[0].topic, number)
    return _grant(transaction, chosen, worker, lease_seconds, counts_if_lost=True)[0]


def _grant(
    transaction: WriteTransaction,
    chosen: list[_ChosenJob],
    worker: str,
    lease_seconds: float,
    limited: Mapping[str, TopicLimits] | None = None,
    *,
    counts_if_lost: bool,
) -> list[Claimed]:
    connection = transaction.connection
    first_fence = transaction.reserve_sequence("fence", len(chosen))
    connection.execute(
        _sql["grant"],
        {
            "first_fence": first_fence,
            "now": transaction.now,
            "lease_us": seconds_to_microseconds(lease_seconds),
            "worker": worker,
            "counts_if_lost": counts_if_lost,
            "numbers": _to_json([job.number for job in chosen]),
        },
    )
    jobs = _claimed(connection, chosen, first_fence)
    transaction.grants.add(first_fence, jobs)
    if limited:
        topic_limits.advance_job_meters(transaction, limited, [_limit_of(job) for job in chosen])
    for (tenant, topic, task), n in Counter(map(_lane_of, chosen)).items():
        transaction.counter_deltas.count_transition(
            tenant, topic, task, StateCode.READY, StateCode.RUNNING, n
        )
    return jobs


def run_maintenance(transaction: WriteTransaction) -> tuple[list[int], bool]:
    """Bring back and promote what is due. When the next such moments are, and whether any topic is paused or
    has limits.
    """
    execute, now = transaction.connection.execute, transaction.now
    lease_end, expiry, due, topics_say_something = execute(_sql["next_deadlines"]).fetchone()
    if any(moment is not None and moment <= now for moment in (lease_end, expiry, due)):
        rescue_jobs(transaction, MAX_BATCH)
        promote(transaction)
        lease_end, _, due, _ = execute(_sql["next_deadlines"]).fetchone()
    return [moment for moment in (lease_end, due) if moment is not None], bool(topics_say_something)


def promote(transaction: WriteTransaction) -> None:
    rows = transaction.connection.execute(_sql["promote"], (transaction.now, PROMOTE_LIMIT)).fetchall()
    for (tenant, topic, task), n in Counter(rows).items():
        transaction.counter_deltas.count_transition(
            tenant, topic, task, StateCode.WAITING, StateCode.READY, n
        )


def _lanes(transaction: WriteTransaction, request: ClaimRequest) -> list[tuple[str, str]]:
    """The request's lanes as (topic, task) pairs, each once; ``None`` becomes every task of its topic."""
    connection = transaction.connection
    lanes: dict[tuple[str, str], None] = {}
    for lane in request.lanes:
        if lane.task is not None:
            lanes[lane.topic, lane.task] = None
            continue
        lanes.update(dict.fromkeys(_lanes_of(connection, lane.topic)))
    return list(lanes)


def _lanes_of(connection: sqlite3.Connection, topic: str) -> list[tuple[str, str]]:
    """Those of a topic that have ready jobs."""
    (found,) = connection.execute(_sql["tasks_of_topic"], {"topic": topic}).fetchone()
    return [(topic, task) for task in _read_tasks(found)]


def maintenance_due(connection: sqlite3.Connection, now: int) -> bool:
    """Whether ``run_maintenance`` has something to do."""
    *moments, _ = connection.execute(_sql["next_deadlines"]).fetchone()
    return any(moment is not None and moment <= now for moment in moments)


def first_ready(connection: sqlite3.Connection, topic: str) -> int | None:
    """The number of the best ready job of a topic."""
    request = ClaimRequest("", (Lane(topic),), 1, 0.0)
    best = _choose(connection, request, _lanes_of(connection, topic))
    return best[0][1] if best else None


def _choose(
    connection: sqlite3.Connection, request: ClaimRequest, lanes: list[tuple[str, str]]
) -> list[_Candidate]:
    """The best jobs across the lanes: highest priority, then lowest number.

    A thousand lanes are not read to the limit each: twice as far as their share of it, and deeper only where
    all that was seen is among the best.
    """
    limit = request.limit
    depths = dict.fromkeys(lanes, min(limit, max(2 * limit // max(len(lanes), 1), MIN_LANE_DEPTH)))
    seen: dict[tuple[str, str], list[_Candidate]] = {}
    deeper = lanes
    best: list[_Candidate] = []
    while deeper:
        seen.update(_read_lane_heads(connection, [(lane, depths[lane]) for lane in deeper]))
        best = _pick_best(seen, limit, request.topic_limits)
        last = best[-1] if len(best) == limit else None
        deeper = [
            lane
            for lane in deeper
            if depths[lane] == len(seen[lane]) < limit and (last is None or seen[lane][-1] <= last)
        ]
        for lane in deeper:
            depths[lane] = min(limit, 8 * depths[lane])
    return best


def _read_lane_heads(
    connection: sqlite3.Connection, lanes: list[tuple[tuple[str, str], int]]
) -> dict[tuple[str, str], list[_Candidate]]:
    """The first jobs of each lane, so many. In few statements, because each has to be prepared."""
    seen: dict[tuple[str, str], list[_Candidate]] = {lane: [] for lane, _ in lanes}
    start = 0
    while start < len(lanes):
        size = min(MAX_LANES_PER_STATEMENT, 1 << (len(lanes) - start).bit_length() - 1)
        values: list[object] = []
        for index, ((topic, task), depth) in enumerate(lanes[start : start + size], start):
            values += (index, topic, task, depth)
        for index, urgency, number in _read_found(connection.execute(_ready(size), values).fetchone()[0]):
            seen[lanes[index][0]].append((urgency, number))
        start += size
    return seen


@functools.lru_cache(16)
def _ready(lanes: int) -> str:
    """The statement for so many lanes. One value comes back: each row of an answer costs a thread a fight for
    the interpreter.
    """
    parts = " UNION ALL ".join([f"SELECT * FROM ({_sql['ready_of_lane']})"] * lanes)  # noqa: S608 - our own
    return f"SELECT json_group_array(json_array(lane, urgency, number)) FROM ({parts})"  # noqa: S608


def _pick_best(
    seen: dict[tuple[str, str], list[_Candidate]], limit: int, rooms: Mapping[str, int]
) -> list[_Candidate]:
    """The first of what was seen, without those whose topic has no room left."""
    if not rooms:
        return sorted(itertools.chain.from_iterable(seen.values()))[:limit]
    left = dict(rooms)
    best: list[_Candidate] = []
    for candidate, topic in sorted((candidate, topic) for (topic, _), of in seen.items() for candidate in of):
        if len(best) == limit:
            break
        if left.get(topic, 1) > 0:
            best.append(candidate)
            if topic in left:
                left[topic] -= 1
    return best


def _read_chosen_jobs(connection: sqlite3.Connection, numbers: list[int], lease_us: int) -> list[_ChosenJob]:
    if not numbers:
        return []
    parameters = {"numbers": _to_json(numbers), "lease_us": lease_us, "small": MAX_INLINE_BODY}
    return _read_chosen(connection.execute(_sql["chosen_jobs"], parameters).fetchone()[0])


def _claimed(connection: sqlite3.Connection, chosen: list[_ChosenJob], first_fence: int) -> list[Claimed]:
    checkpoints: dict[int, bytes] = {}
    # Only a job that was granted before can have left a checkpoint; most claims skip the look.
    if again := [job.number for job in chosen if job.reserves]:
        checkpoints = dict(connection.execute(_sql["checkpoints"], (_to_json(again),)).fetchall())
    large: dict[int, bytes] = {}
    if absent := [job.number for job in chosen if job.payload is None]:
        large = dict(connection.execute(_sql["large_bodies"], (_to_json(absent),)).fetchall())
    return [
        Claimed(  # by position, because this is done for every job
            Lease(job.id, first_fence + job.position),
            job.topic,
            job.task,
            job.tenant,
            job.priority,
            job.attempt,
            job.max_attempts,
            None if job.timeout_us is None else job.timeout_us / MICROSECONDS,
            job.retry,
            job.lease_us / MICROSECONDS,
            large[job.number] if job.payload is None else bytes.fromhex(job.payload),
            FORMATS[job.format],
            checkpoints.get(job.number),
            job.number,
            job.created_at,
            job.run_at,
            job.key,
            job.correlation_id,
            job.user_id,
            job.service_id,
            job.headers,
            job.losses,
        )
        for job in chosen
    ]


def _by_position(job: _ChosenJob) -> _Candidate:
    return -job.priority, job.number


def _to_json(numbers: list[int]) -> str:
    return msgspec.json.encode(numbers).decode()


def _next_due_in(
    transaction: WriteTransaction,
    moments: list[int],
    held_back: list[tuple[str, str]],
    paused: dict[str, int],
) -> float | None:
    """Seconds until a claim may find more: a delayed job, a lease that ends, a pause that ends."""
    execute = transaction.connection.execute
    pause_ends = [
        paused[lane[0]]
        for lane in held_back
        if paused[lane[0]] < FOREVER and execute(_sql["lane_has_ready"], lane).fetchone()[0]
    ]
    moment = min([*moments, *pause_ends], default=None)
    return None if moment is None else max(0.0, (moment - transaction.now) / MICROSECONDS)
