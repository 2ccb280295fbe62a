"""Limits of topics: setting them, and choosing what has room."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from tidewheel.core.model import ClaimRequest
from tidewheel.core.topic_limits import NO_KEY, BlockedTopic, LimitsOrigin, TopicLimits
from tidewheel.stores.bounds import (
    MAX_BLOCKED_TOPICS,
    MAX_LIMITED_TOPICS,
    MAX_SCANNED_KEYS,
    MAX_SCANNED_KEYS_PER_TENANT,
    MAX_SCANNED_PER_LANE,
)
from tidewheel.stores.limit_check import (
    Candidate,
    LimitCheck,
    LimitKey,
    MergedChoice,
    TopicChoice,
    advance_meters,
    check_limited_topic_count,
    explain_block,
    max_jobs_from_topic,
    merge_choices,
)
from tidewheel.stores.sql_files import SqlFile
from tidewheel.stores.sqlite.tenant_scope import with_limit_key_condition
from tidewheel.stores.sqlite.write_transaction import StateCode, WriteTransaction

_sql = SqlFile("tidewheel.stores.sqlite", "sql/topic_limits.sql")
_claims_sql = SqlFile("tidewheel.stores.sqlite", "sql/claims.sql")
_read_tasks = msgspec.json.Decoder(list[str]).decode

_LAST_KEY = b""
"""After every limit key, whatever it is called: to SQLite bytes come after all texts."""

FIRST_SCAN_DEPTH = 32
"""Due jobs of a lane that are looked at first. Mostly the wish is filled by then."""

Lane = tuple[str, str]
"""Topic and task."""


def set_limits(transaction: WriteTransaction, argument: tuple[str, TopicLimits | None]) -> bool:
    topic, limits = argument
    execute = transaction.connection.execute
    if limits is None:
        execute(_sql["remove"], (topic,))
        remove_plain_topic(transaction, topic)
    else:
        found = execute(_sql["limits_of"], (topic,)).fetchone()
        before = found and found[0] and TopicLimits.from_json(found[0]).origin
        if before is LimitsOrigin.OPERATOR and limits.origin is LimitsOrigin.CODE:
            return False
        check_limited_topic_count(execute(_sql["count_limited_topics"], (topic,)).fetchone()[0] + 1)
        execute(_sql["set"], (topic, limits.to_json()))
        execute(_sql["mark_running"], (topic,))
        for statement, rate in (("fit_meter", limits.rate), ("fit_key_meters", limits.key_rate)):
            if rate is not None:
                execute(_sql[statement], {"furthest": rate.max_meter(transaction.now), "topic": topic})
    transaction.ready_topics.add(topic)
    return True


def remove_plain_topic(transaction: WriteTransaction, topic: str) -> None:
    """Let go of a topic's row that says nothing any more."""
    transaction.connection.execute(_sql["delete_plain_topic"], (topic,))


def limits(connection: sqlite3.Connection) -> dict[str, TopicLimits]:
    rows = connection.execute(_sql["limits"], (MAX_LIMITED_TOPICS,))
    return {topic: TopicLimits.from_json(text) for topic, text in rows}


def fair_topics(connection: sqlite3.Connection) -> set[str]:
    return {topic for (topic,) in connection.execute(_sql["fair_topics"])}


def wake_limited_topics(transaction: WriteTransaction, topics: Collection[str]) -> None:
    """Jobs of these topics ended: whoever waits for a limit is to look again."""
    found = {topic for (topic,) in transaction.connection.execute(_sql["limited_topics"])}
    transaction.ready_topics |= found.intersection(topics)


def remove_idle_meters(transaction: WriteTransaction, limit: int) -> None:
    """Those that are back at zero mean nothing any more, nor do pauses that have ended."""
    transaction.connection.execute(_sql["delete_idle_meters"], (transaction.trusted_now, limit))
    transaction.connection.execute(_sql["delete_ended_pauses"], (transaction.trusted_now,))


def choose_jobs(
    transaction: WriteTransaction,
    request: ClaimRequest,
    lanes: Sequence[Lane],
    limited: Mapping[str, TopicLimits],
    unlimited: Sequence[tuple[int, int]],
) -> MergedChoice:
    """The best of these jobs of topics without limits, and of what has room in the others."""
    offers: list[TopicChoice] = []
    for topic, of_topic in sorted(limited.items()):
        wish = max_jobs_from_topic(request, topic, of_topic)
        tasks = [task for of, task in lanes if of == topic and _has_due(transaction.connection, of, task)]
        if wish >= 0 and tasks:
            looked = _TopicChoice(transaction.connection, transaction.now, topic, of_topic, tasks)
            taken, room_at = looked.choose(wish) if wish else ((), None)
            offers.append(TopicChoice(of_topic, taken, room_at))
    return merge_choices(request, unlimited, offers)


def _has_due(connection: sqlite3.Connection, topic: str, task: str) -> bool:
    return bool(connection.execute(_sql["has_due"], (topic, task)).fetchone()[0])


def find_blocked_topics(connection: sqlite3.Connection, now: int) -> list[BlockedTopic]:
    found: list[BlockedTopic] = []
    looked = 0
    rows = connection.execute(_sql["limited_unpaused_topics"], (now, MAX_LIMITED_TOPICS)).fetchall()
    for topic, text in rows:
        tasks = _read_tasks(connection.execute(_claims_sql["tasks_of_topic"], {"topic": topic}).fetchone()[0])
        if not tasks:
            continue
        looked += 1
        if looked > MAX_BLOCKED_TOPICS:
            break
        of_topic = _TopicChoice(connection, now, topic, TopicLimits.from_json(text), tasks)
        if not of_topic.choose(1)[0]:
            found.append(of_topic.explain_block())
    return found


def mark_granted(transaction: WriteTransaction, topic: str, number: int) -> None:
    """A job is granted without a look at limits; in a topic that has some it runs all the same."""
    found = transaction.connection.execute(_sql["limits_of"], (topic,)).fetchone()
    if found is not None and found[0] is not None:
        transaction.grants.limited_topics.add(topic)
        transaction.connection.execute(_sql["mark_granted"], (f"[{number}]",))


def advance_job_meters(
    transaction: WriteTransaction,
    limited: Mapping[str, TopicLimits],
    jobs: Sequence[tuple[int, str, str, str | None]],
) -> None:
    """Jobs were granted, told as (number, topic, tenant, limit key): let the meters of their topics know."""
    execute = transaction.connection.execute
    numbers: list[int] = []
    meters: dict[tuple[str, LimitKey], int] = {}
    for number, topic, tenant, limit_key in jobs:
        if (of_topic := limited.get(topic)) is None:
            continue
        transaction.grants.limited_topics.add(topic)
        transaction.freed_slots[topic] -= 1
        if limit_key is None:
            numbers.append(number)
        read = _MeterReader(transaction.connection, topic, meters)
        line = (tenant, limit_key) if limit_key else None
        for moved, meter in advance_meters(of_topic, line, read, transaction.now):
            meters[topic, moved] = meter
    if numbers:
        execute(_sql["mark_granted"], (msgspec.json.encode(numbers).decode(),))
    for (topic, line), meter in meters.items():
        execute(_sql["set_meter"], (topic, *line, meter))


class _MeterReader:
    """Tells the meters of a topic, those that were moved already included."""

    def __init__(
        self, connection: sqlite3.Connection, topic: str, moved: Mapping[tuple[str, LimitKey], int]
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._moved = moved

    def __call__(self, line: LimitKey) -> int:
        if (moved := self._moved.get((self._topic, line))) is not None:
            return moved
        found = self._connection.execute(
            with_limit_key_condition(_sql["meter"]), (self._topic, *line)
        ).fetchone()
        return 0 if found is None else int(found[0])


class _TopicChoice:
    """The choice of one claim in one topic."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        now: int,
        topic: str,
        limits: TopicLimits,
        tasks: Sequence[str],
    ) -> None:
        self._connection = connection
        self._now = now
        self._execute = connection.execute
        self._topic = topic
        self._limits = limits
        self._tasks = tasks
        rows = self._execute(_sql["running"], (topic,))
        self._running = {(tenant, limit_key): number for tenant, limit_key, number in rows}

    def choose(self, wish: int) -> tuple[list[Candidate], int | None]:
        """The jobs to take, and when a rate lets the next one start.

        First among the first jobs of each lane; where those are many and have no room, among the first of
        each key, so that a hundred thousand jobs of a full key do not hide the others.
        """
        if self._limits.fair:
            seen, _, untold = self._first_jobs_of_lanes(FIRST_SCAN_DEPTH)
            if untold:
                seen, _, _ = self._first_jobs_of_lanes(MAX_SCANNED_PER_LANE)
            return self._decide({*seen, *self._first_jobs_of_keys(wish)}, wish)
        seen, horizon, _ = self._first_jobs_of_lanes(FIRST_SCAN_DEPTH)
        rooms = self._limit_check()
        within = seen if horizon is None else [one for one in seen if one[:2] <= horizon]
        taken = rooms.choose(sorted(within), wish)
        if len(taken) == wish or horizon is None or rooms.topic_full:
            return taken, rooms.next_start_at
        seen, _, _ = self._first_jobs_of_lanes(MAX_SCANNED_PER_LANE)
        return self._decide({*seen, *self._first_jobs_of_keys(wish)}, wish)

    def _decide(self, candidates: Collection[Candidate], wish: int) -> tuple[list[Candidate], int | None]:
        rooms = self._limit_check()
        return rooms.choose(sorted(candidates), wish), rooms.next_start_at

    def _limit_check(self) -> LimitCheck:
        return LimitCheck(self._limits, self._now, self._running, self._meter(), self._is_first_of_key)

    def _meter(self) -> _MeterReader:
        return _MeterReader(self._connection, self._topic, {})

    def explain_block(self) -> BlockedTopic:
        """Of a topic of which nothing can be chosen."""
        seen, _, _ = self._first_jobs_of_lanes(1)
        first = min(seen)
        of_key = self._running.get(first.key, 0) if first.key is not None else 0
        numbers = (sum(self._running.values()), of_key)
        [run_at] = self._execute(_sql["due_since"], (first.number,)).fetchone()
        return explain_block(self._topic, self._limits, self._now, first, run_at, numbers, self._meter())

    def _first_jobs_of_lanes(self, depth: int) -> tuple[list[Candidate], tuple[int, int] | None, bool]:
        """The first jobs of each lane; up to where all of them were seen, when not to the end; and whether
        some of those are in no line, because they were enqueued before there were limits.
        """
        seen: list[Candidate] = []
        ends: list[tuple[int, int]] = []
        for task in self._tasks:
            rows = self._execute(_sql["first_of_lane"], (self._topic, task, depth)).fetchall()
            seen += map(Candidate._make, rows)
            if len(rows) == depth:
                ends.append((rows[-1][0], rows[-1][1]))
        return seen, min(ends, default=None), any(one.limit_key is None for one in seen)

    def _first_jobs_of_keys(self, wish: int) -> Iterator[Candidate]:
        """The first jobs of each key, so many of each; in strict order whoever is first."""
        for task in self._tasks:
            for line in self._keys(task):
                if self._limits.ordered and line[1] != NO_KEY:
                    *head, state, its_task = self._head(line)
                    if state == StateCode.READY and its_task == task:
                        yield Candidate._make(head)
                else:
                    values = (self._topic, task, *line, wish)
                    yield from map(
                        Candidate._make, self._execute(with_limit_key_condition(_sql["first_of_key"]), values)
                    )

    def _keys(self, task: str) -> Iterator[LimitKey]:
        """Tenants and keys that have due jobs in a lane."""
        line: LimitKey = ("", "")
        of_tenant = 0
        for _ in range(MAX_SCANNED_KEYS):
            on = self._limits.fair and of_tenant == MAX_SCANNED_KEYS_PER_TENANT
            after = (line[0], _LAST_KEY if on else line[1])  # on to the next tenant
            found = self._execute(_sql["next_key"], (self._topic, task, *after)).fetchone()
            if found is None:
                return
            of_tenant = of_tenant + 1 if found[0] == line[0] else 1
            line = found
            yield line

    def _is_first_of_key(self, candidate: Candidate) -> bool:
        return bool(self._head((candidate.tenant, candidate.limit_key or NO_KEY))[1] == candidate.number)

    def _head(self, line: LimitKey) -> tuple[int, int, str, str, int, str]:
        row: tuple[int, int, str, str, int, str] = self._execute(
            with_limit_key_condition(_sql["head_of_key"]), (self._topic, *line)
        ).fetchone()
        return row
