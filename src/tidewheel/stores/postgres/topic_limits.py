"""Pauses and limits of topics. What has room is chosen by the claim itself, in the database
(``11_topic_limits.sql``).
"""

from __future__ import annotations

from tidewheel.core.topic_limits import HeldBack, TopicLimits
from tidewheel.stores.enqueue import check_limited_topics
from tidewheel.stores.limit_check import WHOLE, Candidate, Line, held_back
from tidewheel.stores.postgres.database import Database
from tidewheel.stores.protocol import MAX_HELD_BACK, MAX_LIMITED_TOPICS
from tidewheel.stores.sql_files import Queries

_sql = Queries("tidewheel.stores.postgres", "sql/functions.sql")


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
        check_limited_topics(others + 1)
    return bool(done)


async def limits(database: Database) -> dict[str, TopicLimits]:
    rows = await database.fetch(_sql["limits"], MAX_LIMITED_TOPICS)
    return {topic: TopicLimits.from_json(text) for topic, text in rows}


async def find_held_back(database: Database) -> list[HeldBack]:
    found = []
    for row in await database.fetch(_sql["blocked_by_limits"], database.now, MAX_HELD_BACK):
        topic, text, now, *first, due_since, running, of_key, meter, key_meter = row
        candidate = Candidate._make(first)
        meters: dict[Line, int] = {candidate.line or WHOLE: key_meter, WHOLE: meter}
        limits, numbers = TopicLimits.from_json(text), (running, of_key)
        found.append(held_back(topic, limits, now, candidate, due_since, numbers, meters.__getitem__))
    return found


async def limited_topics(database: Database) -> list[str]:
    return [topic for (topic,) in await database.fetch(_sql["limited_topics"], MAX_LIMITED_TOPICS)]


async def forget_meters(database: Database, limit: int, now: int) -> None:
    """Those that are back at zero mean nothing any more, nor do pauses that have ended."""
    await database.fetch(_sql["delete_idle_meters"], now, limit)
    await database.fetch(_sql["delete_ended_pauses"], now)
