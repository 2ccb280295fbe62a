"""Jobs waiting to start, and the slots they start in."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping

from tidewheel.core.clock import Clock
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.worker.active_jobs import ActiveJob

MAX_PREFETCHED = 2000
"""Jobs at hand that nobody runs yet: enough for the next claim to be answered before they run out."""
TARGET_CLAIM_SECONDS = 0.02
"""How long one claim should take at most: an urgent job waits for the one under way, and then for its own."""
MIN_CLAIM_SIZE = 500
"""Smaller claims than this cost too much, however long they take."""
OFFER_DELAY_SECONDS = 0.01
"""How long room in topics with limits is left to other workers, before more slots are offered."""
BUSY_OFFER_DELAY_SECONDS = 1.0
"""The same for a worker whose jobs end all the time, and so do those of others, who fill their places again.
As often as an idle worker polls: if it were more often, busy ones would have all the room in the end."""
PREFETCH_SECONDS_OF_WORK = 0.15
"""How much work to have at hand, measured by how fast jobs start: enough to bridge a claim, no hoarding."""

ALONE_AFTER_LOSSES = 2
"""A job that was lost with this many workers runs alone."""


class Slots:
    """Counts what runs, keeps what waits, and says how many jobs to claim."""

    def __init__(
        self, concurrency: int, prefetch: int | None, topic_concurrency: Mapping[str, int], clock: Clock
    ) -> None:
        self.concurrency = concurrency
        self.max_running = concurrency  # less while a suspect runs
        self._suspects: list[ActiveJob] = []  # those that run
        self.draining_for: ActiveJob | None = (
            None  # the suspect that waits for others to end; nothing else starts
        )
        self.waiting: deque[ActiveJob] = deque()
        self.running = 0
        self.refill_at = 0  # so few jobs waiting are a reason to claim
        self._fixed_prefetch = prefetch
        self._topic_concurrency = dict(topic_concurrency)
        self._by_topic: Counter[str] = Counter()
        self._clock = clock
        self._rate = 0.0  # jobs started per second, smoothed
        self._window_start = clock.monotonic()
        self.started = 0  # handlers started since the window began
        self._asked = 0  # jobs of the last claim
        self.may_be_more = False  # whether it brought all it asked for, so that there are more, most likely
        self._claim_size = MAX_BATCH  # jobs of one claim, by how long the store takes for them
        self.freed = 0  # places in topics, perhaps, by jobs that are settled; since the last claim
        self._share = 1  # slots to offer besides: twice as many each time that nobody else took what was left
        self._share_at = 0.0  # when to do so at the latest
        self._sharing = False  # whether the last claim did

    @property
    def limits_topics(self) -> bool:
        return bool(self._topic_concurrency)

    @property
    def free(self) -> int:
        return self.max_running - self.running

    def max_concurrent_with(self, active: ActiveJob) -> int:
        """Return how many handlers may run while this one does, itself included.

        All slots for most jobs, and half of them for a job that lost one worker: the suspects of a power cut
        still run side by side. A job that lost more runs alone, and a crash then counts for it.
        """
        losses = active.job.losses
        if losses == 0:
            return self.concurrency
        return 1 if losses >= ALONE_AFTER_LOSSES else max(1, self.concurrency // 2)

    def add_suspect(self, suspect: ActiveJob) -> None:
        """Narrow the worker until this job leaves."""
        suspect.runs_alone = self.max_concurrent_with(suspect) == 1
        self._suspects.append(suspect)
        self._narrow()

    def remove_suspect(self, suspect: ActiveJob) -> bool:
        """Widen the worker again after a suspect. False if that was done before."""
        if suspect not in self._suspects:
            return False
        self._suspects.remove(suspect)
        self._narrow()
        return True

    @property
    def narrowed(self) -> bool:
        return bool(self._suspects)

    def _narrow(self) -> None:
        self.max_running = min([self.concurrency, *map(self.max_concurrent_with, self._suspects)])

    @property
    def startable(self) -> int:
        """How many more jobs would start at once."""
        return max(0, self.free - len(self.waiting))

    def take_offer(self) -> int:
        """How many of those the next claim offers to topics with limits: as many as came free here since the
        last one. Now and then, and if none did, some more (``_share``).

        With all of them the worker that claims most would soon have all the room there is: the others would
        have nothing to do, and when it dies, all of that room is gone until its leases end.
        """
        freed, self.freed = self.freed, 0
        self._sharing = freed == 0 or self._clock.monotonic() >= self._share_at
        return min(self.startable, freed + self._share if self._sharing else freed)

    def next_offer_in(self, *, kept_back: bool) -> float | None:
        """After how many seconds to offer more: there may be room for slots that were not offered."""
        if not kept_back or self.startable == 0:
            return None
        return OFFER_DELAY_SECONDS if self._sharing else BUSY_OFFER_DELAY_SECONDS

    def claim_limit(self) -> int:
        """How many jobs to ask for now; 0 when it is not worth a claim yet."""
        prefetch = self._prefetch()
        if self.draining_for is not None:
            return 0
        room = self.free + prefetch - len(self.waiting)
        self.refill_at = max(prefetch // 2, prefetch - self._claim_size)
        # Small claims cost as much as large ones: refill when there is room for a large one or half is gone,
        # or at once when a slot is idle.
        if room <= 0 or (len(self.waiting) > self.refill_at and self.free <= len(self.waiting)):
            return 0
        self._asked = min(room, self._claim_size)
        return self._asked

    def record_claim(self, number: int, seconds: float, *, kept_back: bool = False) -> None:
        """A claim brought so many jobs and took so long; the next one is made to last not too long."""
        self.may_be_more = number >= self._asked
        if self._sharing:
            self._share = min(2 * self._share if kept_back else max(1, number), self.concurrency)
            self._share_at = self._clock.monotonic() + BUSY_OFFER_DELAY_SECONDS
        if number >= MIN_CLAIM_SIZE:
            fitting = int(number * TARGET_CLAIM_SECONDS / max(seconds, 1e-6))
            size = (3 * self._claim_size + min(fitting, MAX_BATCH)) // 4
            self._claim_size = max(MIN_CLAIM_SIZE, size)

    def topic_limits(self) -> dict[str, int]:
        """How many more jobs of each limited topic may be taken."""
        return {
            topic: max(0, limit - self._by_topic[topic]) for topic, limit in self._topic_concurrency.items()
        }

    def queue_job(self, active: ActiveJob) -> None:
        """Queue a claimed job for a slot: suspects first, then by priority."""
        if self._topic_concurrency:
            self._by_topic[active.job.topic] += 1
        waiting, priority = self.waiting, active.job.priority
        if active.job.losses:
            ordinary = (index for index, other in enumerate(waiting) if not other.job.losses)
            waiting.insert(next(ordinary, len(waiting)), active)
        elif not waiting or waiting[-1].job.priority >= priority:
            waiting.append(active)
        else:
            # Claimed after a thousand others, but more urgent than they are: it must not wait for them all.
            lesser = (
                index
                for index, other in enumerate(waiting)
                if other.job.priority < priority and not other.job.losses
            )
            waiting.insert(next(lesser, len(waiting)), active)

    def job_left(self, active: ActiveJob) -> None:
        """The job is out of this worker's hands."""
        self._by_topic[active.job.topic] -= 1

    def _prefetch(self) -> int:
        if self._fixed_prefetch is not None:
            return self._fixed_prefetch
        now = self._clock.monotonic()
        elapsed = now - self._window_start
        if elapsed >= 0.05:
            rate = self.started / elapsed
            self._rate = rate if rate > self._rate else 0.5 * self._rate + 0.5 * rate
            self._window_start, self.started = now, 0
        return min(MAX_PREFETCHED, int(self._rate * PREFETCH_SECONDS_OF_WORK))
