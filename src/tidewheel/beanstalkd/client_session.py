"""One client's state and the verbs it may use, without a socket: a command goes in, a reply comes out."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidewheel.beanstalkd import replies
from tidewheel.beanstalkd.server_state import clamp_seconds
from tidewheel.beanstalkd.tubes import DEFAULT_TUBE
from tidewheel.core.model import BodyFormat, State
from tidewheel.errors import (
    Backpressure,
    JobNotFound,
    LimitExceeded,
    NotReserved,
    StoreError,
    StoreUnavailable,
    WrongState,
)
from tidewheel.pull.prefetch import KEEP_SECONDS
from tidewheel.pull.queue import MAX_KICKED, MAX_TOPICS
from tidewheel.pull.queue_stats import QueueStats
from tidewheel.pull.reserved_job import return_abandoned

if TYPE_CHECKING:
    from uuid import UUID

    from tidewheel.beanstalkd.commands import Command
    from tidewheel.beanstalkd.server_state import ServerState
    from tidewheel.beanstalkd.tubes import Tube
    from tidewheel.client.job_handle import Job
    from tidewheel.core.model import Enqueued
    from tidewheel.pull.dispatcher import WaitingPuller
    from tidewheel.pull.job_returner import PulledJob
    from tidewheel.pull.queue_stats import JobStats, TopicState
    from tidewheel.pull.reserved_job import Reserved

SAFETY_MARGIN_SECONDS: Final = 1.0
"""Seconds before the end of a reservation in which its holder is not made to wait."""
MAX_WATCHED: Final = MAX_TOPICS
"""Most tubes that one connection watches."""
MAX_RESERVED: Final = 10_000
"""Most jobs that one connection has reserved."""
_INVISIBLE_STATES: Final = frozenset({State.COMPLETED, State.CANCELLED})
"""States of jobs that are kept for their history, and that a client has no business with any more."""
_RESERVING: Final = frozenset({"reserve", "reserve-with-timeout"})
_UNAFFECTED_BY_PREFETCH: Final = "touch"
"""A command that takes a while and whose answer does not depend on which jobs are ready."""
_TIMER_SLACK_SECONDS: Final = 0.005
"""Seconds that a timer may come too early."""
_INITIAL_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 2.0
"""Seconds between tries to give jobs back while the store is away; each pause is twice the one before."""

_log = logging.getLogger("tidewheel.beanstalkd")


class PendingReply(NamedTuple):
    """An answer that has to be waited for."""

    future: asyncio.Future[Any]
    make_reply: Callable[[Any], bytes | PendingReply]  # from its result to what the client is told
    name: str  # the command's


class ClientSession:
    """One connection. Its commands are answered one after the other."""

    def __init__(self, shared: ServerState) -> None:
        self._shared = shared
        self._app = shared.app
        self._queue = shared.queue
        self._counters = shared.counters
        self._tube = shared.tubes.use(DEFAULT_TUBE)
        self._watched = [shared.tubes.watch(DEFAULT_TUBE)]
        self._topics = frozenset({DEFAULT_TUBE})
        self._held: dict[int, Reserved] = {}  # by number
        self._soonest: float | None = None  # when the first of them ends; None is to be looked up
        self._timer: asyncio.TimerHandle | None = None
        self._waiter: WaitingPuller | None = None
        self._last = ""  # command
        self._answered_at = 0.0
        self._calls_again: set[str] = set()  # commands that were followed by another at once, the last time
        self._reserves_again = False  # a delete was followed by a reserve, the last time
        self._hung_up = False
        self._gone = False
        self._producer = False
        self._worker = False
        shared.counters.connections += 1
        shared.counters.total_connections += 1

    def answer(self, command: Command) -> bytes | PendingReply:
        """What to tell the client, or what that waits for. Every command but ``quit``, which is its
        connection's.
        """
        name = command.name
        if name:
            self._counters.commands[name] += 1
        if command.error:
            return self._refuse(command)
        self._learn_call_pattern(name)
        try:
            answer = _VERBS[name](self, command)
        except Exception as error:
            return self._failed(name, error)
        return answer if isinstance(answer, bytes | PendingReply) else self._begin(name, answer)

    def _learn_call_pattern(self, name: str) -> None:
        """What this client does after the command before this one: it will do the same again."""
        before, self._last = self._last, name
        if self._app.clock.monotonic() < self._answered_at + KEEP_SECONDS:
            self._calls_again.add(before)
        else:
            self._calls_again.discard(before)
        if before == "delete":
            self._reserves_again = name in _RESERVING and before in self._calls_again

    def _begin(self, name: str, answer: Coroutine[Any, Any, bytes]) -> PendingReply:
        if name != _UNAFFECTED_BY_PREFETCH and self._queue.has_prefetched:
            answer = self._after_returning_prefetched(answer)
        return PendingReply(asyncio.get_running_loop().create_task(answer), _unchanged, name)

    async def _after_returning_prefetched(self, answer: Coroutine[Any, Any, bytes]) -> bytes:
        """What a command sees must not depend on who is expected to ask for a job in a moment."""
        await self._queue.return_prefetched()
        return await answer

    def finish(self, reply: PendingReply) -> bytes | PendingReply:
        """What to tell the client now that it is there."""
        if self._waiter is not None:
            self._wait(None)
        self._answered_at = self._app.clock.monotonic()
        try:
            return reply.make_reply(reply.future.result())
        except Exception as error:
            return self._failed(reply.name, error)

    def _failed(self, name: str, error: Exception) -> bytes:
        match error:
            case JobNotFound() | NotReserved() | WrongState():
                return replies.NOT_FOUND
            case LimitExceeded() | Backpressure():
                _log.info("%s was refused: %s", name, error)
                return replies.OUT_OF_MEMORY
            case StoreUnavailable():
                self._shared.record_store_failure(error)
                return replies.OUT_OF_MEMORY
            case _:
                _log.error("%s failed", name, exc_info=error)
                return replies.INTERNAL_ERROR

    def hang_up(self, *, gone: bool = False) -> None:
        """The client sends nothing more: it is not made to wait any longer. ``gone``: nor does it read."""
        self._hung_up = True
        self._gone = self._gone or gone
        if self._waiter is not None:
            # A client that closed its side alone still gets a job that is there, as if it asked for no more.
            if gone:
                self._queue.remove_waiter(self._waiter)
            else:
                self._queue.expire_waiter(self._waiter)

    async def close(self) -> None:
        """The connection is gone: its jobs are given back."""
        shared = self._shared
        if self._timer is not None:
            self._timer.cancel()
        shared.tubes.stop_using(self._tube)
        for tube in self._watched:
            shared.tubes.stop_watching(tube)
        shared.counters.connections -= 1
        shared.counters.producers -= self._producer
        shared.counters.workers -= self._worker
        held, self._held = list(self._held.values()), {}
        pause = _INITIAL_PAUSE_SECONDS
        while held:
            given = await asyncio.gather(*map(self._give_back, held))
            held = [one for one, done in zip(held, given, strict=True) if not done and one.time_left > 0]
            if held and shared.stopping.is_set():
                _log.warning("%d jobs of a client stay reserved until their time to run is over", len(held))
                return
            if held:
                await shared.sleep_until_stopped(pause)
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    async def _give_back(self, reserved: Reserved) -> bool:
        """False when it has to be tried again: the store is away, and a time to run can be years."""
        try:
            await return_abandoned(reserved)
        except NotReserved:
            pass  # its time was over already, so it is anybody's as it should be
        except StoreUnavailable as error:
            self._shared.record_store_failure(error)
            return False
        except StoreError as error:
            _log.warning("job %d stays reserved until its time to run is over: %s", reserved.number, error)
        else:
            self._shared.record_store_success()
        return True

    # -- producers ----------------------------------------------------------------------------------------

    def _refuse(self, command: Command) -> bytes:
        if command.error == replies.EXPECTED_CRLF:
            self._count_as_producer()  # as in beanstalkd: its line was a good one
        return command.error

    def _count_as_producer(self) -> None:
        if not self._producer:
            self._producer = True
            self._counters.producers += 1

    def _put(self, command: Command) -> bytes | PendingReply:
        self._count_as_producer()
        if self._counters.draining:
            return replies.DRAINING
        tube = self._tube
        template = self._shared.template(tube.name, command.priority, command.delay, command.ttr)
        job = template.job(command.body, BodyFormat.BYTES)
        putting = self._queue.put_batched(job, calls_again="put" in self._calls_again)
        return PendingReply(putting, functools.partial(self._inserted, tube), "put")

    def _inserted(self, tube: Tube, answer: Enqueued) -> bytes:
        self._counters.total_jobs += 1
        tube.total_jobs += 1
        self._shared.record_store_success()
        return replies.inserted(answer.number)

    def _use(self, command: Command) -> bytes:
        tubes = self._shared.tubes
        before, self._tube = self._tube, tubes.use(command.tube)
        tubes.stop_using(before)
        return replies.using(command.tube)

    # -- workers ------------------------------------------------------------------------------------------

    def _reserve(self, command: Command) -> bytes | PendingReply:
        self._count_as_worker()
        if self._gone:
            return replies.TIMED_OUT  # what it had sent before is still read, and it will get no job of it
        if len(self._held) >= MAX_RESERVED:
            return replies.OUT_OF_MEMORY
        wait: float | None = 0.0 if self._hung_up else command.timeout
        until_deadline = self._until_deadline()
        if until_deadline is not None:
            wait = max(0.0, until_deadline if wait is None else min(wait, until_deadline))
        waiter = self._queue.add_waiter(self._topics, wait, calls_again=command.name in self._calls_again)
        self._wait(waiter)
        return PendingReply(waiter.future, self._reserved_reply, command.name)

    def _reserved_reply(self, pulled: PulledJob | None) -> bytes:
        if pulled is not None:
            return self._hold(self._queue.make_reserved(pulled))
        until_deadline = self._until_deadline()
        soon = until_deadline is not None and until_deadline <= _TIMER_SLACK_SECONDS
        return replies.DEADLINE_SOON if soon else replies.TIMED_OUT

    def _until_deadline(self) -> float | None:
        """Seconds until a job of this client comes into its last second; None when it has none."""
        if not self._held:
            return None
        now = self._app.clock.monotonic()
        if self._soonest is None:
            self._soonest = now + min(reserved.time_left for reserved in self._held.values())
        return self._soonest - SAFETY_MARGIN_SECONDS - now

    def _wait(self, waiter: WaitingPuller | None) -> None:
        self._waiter = waiter
        step = -1 if waiter is None else 1
        self._counters.waiting += step
        for tube in self._watched:
            tube.waiting += step

    def _count_as_worker(self) -> None:
        if not self._worker:
            self._worker = True
            self._counters.workers += 1

    def _hold(self, reserved: Reserved) -> bytes:
        self._held[reserved.number] = reserved
        self._shared.record_store_success()
        left = reserved.time_left
        if self._soonest is not None or len(self._held) == 1:
            ends = self._app.clock.monotonic() + left
            self._soonest = ends if len(self._held) == 1 else min(ends, self._soonest or ends)
        self._set_expiry_timer(left)
        return replies.reserved(reserved.number, reserved.raw)

    def _set_expiry_timer(self, delay: float) -> None:
        """See that the ends of reservations are noticed. A timer that comes too early sets the next one."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + delay:
                return
            self._timer.cancel()
        self._timer = loop.call_later(delay, self._forget_ended)

    def _forget_ended(self) -> None:
        self._timer = None
        ended = [number for number, reserved in self._held.items() if reserved.time_left <= 0]
        for number in ended:
            self._forget(number)
        if ended:
            self._counters.timeouts += len(ended)
            self._shared.rescue_soon()
        if self._held:
            self._set_expiry_timer(min(reserved.time_left for reserved in self._held.values()))

    def _forget(self, number: int) -> None:
        self._held.pop(number, None)
        self._soonest = None

    async def _reserve_job(self, command: Command) -> bytes:
        if len(self._held) >= MAX_RESERVED:
            return replies.OUT_OF_MEMORY
        reserved = await self._queue.reserve_job(await self._id_of(command.number))
        self._count_as_worker()
        return self._hold(reserved)

    def _delete(self, command: Command) -> PendingReply | Coroutine[Any, Any, bytes]:
        reserved = self._held.get(command.number)
        if reserved is None:
            return self._delete_free(command.number)
        then = self._topics if self._reserves_again else None
        deleting = reserved.start_delete(next_topics=then, calls_again="delete" in self._calls_again)
        return PendingReply(deleting, functools.partial(self._deleted, reserved), command.name)

    def _deleted(self, reserved: Reserved, held: bool) -> bytes | PendingReply:
        self._forget(reserved.number)
        if not held:
            # Its time is over: it may be ready again, and then anybody may delete it.
            return self._begin("delete", self._delete_free(reserved.number))
        return self._counted(reserved.topic)

    async def _delete_free(self, number: int) -> bytes:
        stats = await self._stats_of(number)
        if stats.state == "reserved":
            return replies.NOT_FOUND
        await self._queue.delete(stats.id)
        return self._counted(stats.topic)

    def _counted(self, topic: str) -> bytes:
        self._shared.tubes.make(topic).deletes += 1
        self._shared.record_store_success()
        return replies.DELETED

    async def _release(self, command: Command) -> bytes:
        return await self._end(
            command.number,
            lambda reserved: reserved.release(priority=-command.priority, delay=clamp_seconds(command.delay)),
            replies.RELEASED,
        )

    async def _bury(self, command: Command) -> bytes:
        return await self._end(
            command.number, lambda reserved: reserved.bury(priority=-command.priority), replies.BURIED
        )

    async def _end(self, number: int, verb: Callable[[Reserved], Awaitable[None]], done: bytes) -> bytes:
        reserved = self._held.get(number)
        if reserved is None:
            return replies.NOT_FOUND
        try:
            await verb(reserved)
        except NotReserved:
            self._forget(number)
            raise
        self._forget(number)
        return done

    async def _touch(self, command: Command) -> bytes:
        reserved = self._held.get(command.number)
        if reserved is None:
            return replies.NOT_FOUND
        await reserved.touch()
        # Its old end may have come meanwhile, and it been forgotten, though the store had it touched in time.
        self._held[command.number] = reserved
        self._soonest = None
        self._set_expiry_timer(reserved.time_left)
        return replies.TOUCHED

    def _watch(self, command: Command) -> bytes:
        name = command.tube
        if name not in self._topics:
            if len(self._watched) >= MAX_WATCHED:
                return replies.OUT_OF_MEMORY
            self._watched.append(self._shared.tubes.watch(name))
            self._topics |= {name}
        return replies.watching(len(self._watched))

    def _ignore(self, command: Command) -> bytes:
        watched = self._watched
        if command.tube in self._topics:
            if len(watched) == 1:
                return replies.NOT_IGNORED
            place = next(place for place, tube in enumerate(watched) if tube.name == command.tube)
            self._shared.tubes.stop_watching(watched[place])
            watched[place] = watched[-1]  # as beanstalkd fills the gap, and so lists them
            watched.pop()
            self._topics -= {command.tube}
        return replies.watching(len(watched))

    # -- looking and kicking ------------------------------------------------------------------------------

    async def _peek(self, command: Command) -> bytes:
        job = await self._queue.peek(await self._id_of(command.number))
        return replies.NOT_FOUND if job.record.state in _INVISIBLE_STATES else _found_reply(job)

    async def _peek_ready(self, _: Command) -> bytes:
        return _found_reply(await self._queue.peek_ready(self._tube.name))

    async def _peek_delayed(self, _: Command) -> bytes:
        return _found_reply(await self._queue.peek_delayed(self._tube.name))

    async def _peek_buried(self, _: Command) -> bytes:
        return _found_reply(await self._queue.peek_buried(self._tube.name))

    async def _kick(self, command: Command) -> bytes:
        return replies.kicked(await self._queue.kick(self._tube.name, min(command.bound, MAX_KICKED)))

    async def _kick_job(self, command: Command) -> bytes:
        await self._queue.kick_job(await self._id_of(command.number))
        return replies.KICKED_ONE

    async def _stats_job(self, command: Command) -> bytes:
        stats = await self._stats_of(command.number)
        return replies.yaml_reply(replies.job_stats(stats, self._app.settings.lease))

    async def _stats_tube(self, command: Command) -> bytes:
        topic = await self._topic(command.tube)
        if topic is None:
            return replies.NOT_FOUND
        return replies.yaml_reply(
            replies.tube_stats(command.tube, topic, self._shared.tubes.get(command.tube))
        )

    async def _stats(self, _: Command) -> bytes:
        depths = await self._queue.depths()
        tubes = self._shared.tubes.list_existing(depth.topic for depth in depths)
        return replies.yaml_reply(
            replies.server_stats(self._counters, QueueStats.from_depths(depths, 0), len(tubes))
        )

    async def _list_tubes(self, _: Command) -> bytes:
        depths = await self._queue.depths()
        return replies.yaml_list_reply(self._shared.tubes.list_existing(depth.topic for depth in depths))

    def _list_tube_used(self, _: Command) -> bytes:
        return replies.using(self._tube.name)

    def _list_tubes_watched(self, _: Command) -> bytes:
        return replies.yaml_list_reply(tube.name for tube in self._watched)

    async def _pause_tube(self, command: Command) -> bytes:
        name, length = command.tube, clamp_seconds(command.delay)
        if await self._topic(name) is None:
            return replies.NOT_FOUND
        if length:
            await self._queue.pause(name, length)
        else:
            await self._app.resume(name)
        tube = self._shared.tubes.make(name)
        tube.pauses += 1
        tube.paused_for = length
        return replies.PAUSED

    async def _topic(self, name: str) -> TopicState | None:
        """A tube's jobs; None when there is no such tube."""
        topic = await self._queue.stats_topic(name)
        has_jobs = bool(topic.ready or topic.delayed or topic.reserved or topic.buried)
        return topic if self._shared.tubes.exists(name, has_jobs=has_jobs) else None

    async def _stats_of(self, number: int) -> JobStats:
        """A job that is not finished, or ``JobNotFound``."""
        job_id = await self._id_of(number)
        stats = await self._queue.stats_job(job_id)
        if stats.state == "reserved" and stats.time_left <= 0:
            await self._queue.rescue()  # its time is over, and nobody has looked since
            stats = await self._queue.stats_job(job_id)
        if stats.state in {"deleted", "cancelled"}:
            raise JobNotFound(f"job {number} is {stats.state}")
        return stats

    async def _id_of(self, number: int) -> UUID:
        job_id = await self._queue.job_id(number)
        if job_id is None:
            raise JobNotFound(f"there is no job {number}")
        return job_id


def _found_reply(job: Job[object] | None) -> bytes:
    if job is None:
        return replies.NOT_FOUND
    return replies.found(job.number, job.record.payload or b"")


def _unchanged(reply: bytes) -> bytes:
    return reply


_VERBS: Final[
    dict[str, Callable[[ClientSession, Command], bytes | PendingReply | Coroutine[Any, Any, bytes]]]
] = {
    "put": ClientSession._put,
    "use": ClientSession._use,
    "reserve": ClientSession._reserve,
    "reserve-with-timeout": ClientSession._reserve,
    "reserve-job": ClientSession._reserve_job,
    "delete": ClientSession._delete,
    "release": ClientSession._release,
    "bury": ClientSession._bury,
    "touch": ClientSession._touch,
    "watch": ClientSession._watch,
    "ignore": ClientSession._ignore,
    "peek": ClientSession._peek,
    "peek-ready": ClientSession._peek_ready,
    "peek-delayed": ClientSession._peek_delayed,
    "peek-buried": ClientSession._peek_buried,
    "kick": ClientSession._kick,
    "kick-job": ClientSession._kick_job,
    "stats": ClientSession._stats,
    "stats-job": ClientSession._stats_job,
    "stats-tube": ClientSession._stats_tube,
    "list-tubes": ClientSession._list_tubes,
    "list-tube-used": ClientSession._list_tube_used,
    "list-tubes-watched": ClientSession._list_tubes_watched,
    "pause-tube": ClientSession._pause_tube,
}
