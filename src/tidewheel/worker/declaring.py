"""What a worker's tasks declare about their topics, written when it starts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from tidewheel.errors import StoreError
from tidewheel.limits import TopicLimits
from tidewheel.stores.protocol import Store
from tidewheel.worker.backoff import Backoff
from tidewheel.worker.waiting import Recovery, first_of

_log = logging.getLogger("tidewheel.worker")


async def declare_limits(
    store: Store, limits: Mapping[str, TopicLimits], recovery: Recovery, stopping: asyncio.Event
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
            await first_of(backoff.pause(backoff.failed(error)), stopping.wait())
        else:
            backoff.reset()
            return
