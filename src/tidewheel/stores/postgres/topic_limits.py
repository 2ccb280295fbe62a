"""Pauses and limits of topics. What has room is chosen by the claim itself, in the database
(``11_topic_limits.sql``).
"""

from __future__ import annotations

from tidewheel.core.topic_limits import BlockedTopic, TopicLimits
from tidewheel.stores.bounds import MAX_BLOCKED_TOPICS, MAX_LIMITED_TOPICS
from tidewheel.stores.limit_check import (
    WHOLE_TOPIC,
    Candidate,
    LimitKey,
    check_limited_topic_count,
    explain_block,
)
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.sql_files import SqlFile

_sql = SqlFile("tidewheel.stores.postgres", "sql/functions.sql")


async def pause(database: Database, topic: str, until: int | None) -> None:
    if until is None:
        await database.fetch(_sql["resume"], topic)
    else:
        await database.fetch(_sql["pause"], topic, until)


async def set_limits(database: Database, topic: str, limits: TopicLimits | None) -> bool:
    text = None if limits is None else limits.to_json()
    values = (database.now, topic, text, MAX_LIMITED_TOPICS)
    [(done, others)] = await database.fetch(_sql["set_limits"], *values)
    if done is None:
        check_limited_topic_count(others + 1)
    return bool(done)


async def limits(database: Database) -> dict[str, TopicLimits]:
    rows = await database.fetch(_sql["limits"], MAX_LIMITED_TOPICS)
    return {topic: TopicLimits.from_json(text) for topic, text in rows}


async def find_blocked_topics(database: Database) -> list[BlockedTopic]:
    found = []
    for row in await database.fetch(_sql["blocked_by_limits"], database.now, MAX_BLOCKED_TOPICS):
        topic, text, now, *first, due_since, running, of_key, meter, key_meter = row
        candidate = Candidate._make(first)
        meters: dict[LimitKey, int] = {candidate.key or WHOLE_TOPIC: key_meter, WHOLE_TOPIC: meter}
        limits, numbers = TopicLimits.from_json(text), (running, of_key)
        found.append(explain_block(topic, limits, now, candidate, due_since, numbers, meters.__getitem__))
    return found


async def limited_topics(database: Database) -> list[str]:
    return [topic for (topic,) in await database.fetch(_sql["limited_topics"], MAX_LIMITED_TOPICS)]


async def remove_idle_meters(database: Database, limit: int, now: int) -> None:
    """Those that are back at zero mean nothing any more, nor do pauses that have ended."""
    await database.fetch(_sql["delete_idle_meters"], now, limit)
    await database.fetch(_sql["delete_ended_pauses"], now)
