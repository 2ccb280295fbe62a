"""``app.limits``: what holds for whole topics, in the whole cluster; and what tasks declare about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidewheel.client.sync.blocking_app import BlockingTopicLimitControls
from tidewheel.core.names import check_any_topic, shorten
from tidewheel.core.security_context import require_system_context
from tidewheel.core.topic_limits import LimitsOrigin, TopicLimits
from tidewheel.errors import InvalidInput

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel


class TopicLimitControls:
    """Limits of topics: how much runs at once, how fast, in which order, for whom.

    They are kept in the store, so every worker obeys them, also those that run already. What is set here
    stands over what tasks declare, until it is removed. They are about all tenants: refused inside
    ``acting_as``.
    """

    def __init__(self, app: Tidewheel) -> None:
        self._app = app

    @property
    def sync(self) -> BlockingTopicLimitControls:
        """The same with blocking calls."""
        return BlockingTopicLimitControls(self, self._app.portal)

    async def set(self, topic: str, limits: TopicLimits) -> None:
        """Limit this topic from now on, in place of the limits it has."""
        require_system_context("limits")
        check_any_topic(topic)
        if not isinstance(limits, TopicLimits):
            raise InvalidInput(
                f"limits is {shorten(limits)} ({type(limits).__name__}); give TopicLimits(concurrency=5), say"
            )
        if limits.origin is not LimitsOrigin.OPERATOR:
            raise InvalidInput("limits set at run time are an operator's; leave origin out")
        await self._app.store.set_limits(topic, limits)

    async def declare(self, topic: str, limits: TopicLimits) -> bool:
        """The same as code declares it, for programs that pass on what workers elsewhere declare: False where
        an operator has set others, which stand.
        """
        require_system_context("limits")
        return await self._app.store.set_limits(check_any_topic(topic), limits.as_declared())

    async def get(self, topic: str) -> TopicLimits | None:
        """The limits of a topic; None when it has none."""
        require_system_context("limits")
        return (await self._app.store.limits()).get(check_any_topic(topic))

    async def list(self) -> dict[str, TopicLimits]:
        """Every topic that has limits, by name."""
        require_system_context("limits")
        return await self._app.store.limits()

    async def remove(self, topic: str) -> bool:
        """Let workers take any number of jobs of this topic again; whether it had limits.

        What tasks declare about it comes back when a worker with such a task starts.
        """
        require_system_context("limits")
        had = check_any_topic(topic) in await self._app.store.limits()
        await self._app.store.set_limits(topic, None)
        return had
