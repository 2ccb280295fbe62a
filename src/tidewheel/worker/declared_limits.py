"""What a worker's tasks declare about their topics, written when it starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from tidewheel.core.model import Lane
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.errors import StoreError
from tidewheel.stores.protocol import Store
from tidewheel.tasks.registry import Registry
from tidewheel.worker.async_waits import wait_for_first
from tidewheel.worker.backoff import Backoff, RecoverySignal

_log = logging.getLogger("tidewheel.worker")


async def write_declared_limits(
    store: Store, limits: Mapping[str, TopicLimits], recovery: RecoverySignal, stopping: asyncio.Event
) -> None:
    """Before the first claim, which is to obey them. Tries again until the store is there.

    Raises ``StoreError`` for a role that may not write them.
    """
    if not limits:
        return
    backoff = Backoff("declaring limits", recovery)
    while not stopping.is_set():
        try:
            # Looked at first: a fleet that starts would otherwise write the same again and again.
            present = await store.limits()
            for topic, declared in limits.items():
                if present.get(topic) != declared and not await store.set_limits(topic, declared):
                    kept = present.get(topic, "just now")  # not there when they were looked at
                    _log.info("topic %s keeps the limits an operator has set: %s", topic, kept)
        except StoreError as error:
            if error.lacks_rights:
                raise
            await wait_for_first(backoff.pause(backoff.record_failure(error)), stopping.wait())
        else:
            backoff.record_success()
            return


def limits_of_tasks(registry: Registry, lanes: Iterable[Lane]) -> Mapping[str, TopicLimits]:
    """What tasks declare about the topics of these lanes."""
    declared = {task.topic: task.limits for task in registry if task.limits is not None}
    topics = {lane.topic for lane in lanes}
    return {topic: limits.as_declared() for topic, limits in declared.items() if topic in topics}
