"""What a listener may hear, and what it wants to."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from tidewheel.core.conditions import Condition, depends_on_topic_only, matches_topic
from tidewheel.core.security_context import SecurityContext
from tidewheel.server.events.ring_buffer import Event, JobSubject, TopicSubject


@dataclass(frozen=True, slots=True)
class JobScope:
    """Whose jobs, and how much of them. Listeners with equal views share what is looked up for them."""

    tenant: str | None  # None: everybody's
    only: Condition | None = None
    superuser: bool = False  # who is told of tenants and workers

    @property
    def context(self) -> SecurityContext | None:
        """On whose behalf to look."""
        return None if self.tenant is None else SecurityContext(self.tenant, only=self.only, allow_root=True)

    @property
    def sees_whole_topics(self) -> bool:
        """Whether it has all jobs of a topic or none, so that its counts are no secret."""
        return self.only is None or depends_on_topic_only(self.only)

    def sees_topic(self, topic: str) -> bool:
        """Whether it has this topic's jobs; for views on whole topics."""
        return self.only is None or matches_topic(self.only, self.tenant or "", topic)


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one listener listens to: some jobs, or topics (None = all it may see)."""

    scope: JobScope
    topics: frozenset[str] | None = None
    job_ids: tuple[UUID, ...] = ()

    def matches_topic(self, subject: TopicSubject) -> bool:
        return (
            not self.job_ids
            and subject.tenant == self.scope.tenant
            and (self.topics is None or subject.topic in self.topics)
            and self.scope.sees_topic(subject.topic)
        )

    def matches(self, event: Event) -> bool:
        match event.subject:
            case TopicSubject() as topic:
                return self.matches_topic(topic)
            case JobSubject(view, job_id):
                return job_id in self.job_ids and view == self.scope
            case None:
                return True
