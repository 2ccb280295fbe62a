"""Registry of an app's tasks, declared schedules and middleware.

It resolves which task runs a job, and which lanes a worker of the app can take. :class:`ScheduleChanges`
wakes the schedulers of this process when a schedule changes. It is a hint: schedulers also look at intervals.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tidewheel.core.cron import MAX_SCHEDULES
from tidewheel.core.model import Lane, NewJob
from tidewheel.core.names import check_any_topic, is_topic
from tidewheel.errors import ConfigurationError
from tidewheel.tasks.middleware import MiddlewareStack

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.schedules.declarations import DeclaredSchedule
    from tidewheel.tasks.task import Task


class ScheduleChanges:
    """Events of any event loop, set from any thread. A hint: schedulers look now and then in any case."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    @contextmanager
    def notify(self, event: asyncio.Event) -> Iterator[None]:
        """Set this event of the running loop at every change meanwhile."""
        with self._lock:
            self._heard[event] = asyncio.get_running_loop()
        try:
            yield
        finally:
            with self._lock:
                del self._heard[event]

    def announce(self) -> None:
        with self._lock:
            for event, loop in self._heard.items():
                try:
                    loop.call_soon_threadsafe(event.set)
                except RuntimeError:
                    if not loop.is_closed():  # closed: who listened is gone with it
                        raise


class Registry:
    """Tasks by name, alias and topic."""

    def __init__(self) -> None:
        self._tasks: dict[str, Task[..., Any]] = {}
        self._names: dict[str, Task[..., Any]] = {}  # aliases included
        self._by_topic: dict[str, list[Task[..., Any]]] = {}
        self._with_callbacks: list[str] = []
        self.middleware = MiddlewareStack()  # middleware and carried variables
        self._schedules: dict[str, DeclaredSchedule] = {}
        self.schedule_changes = ScheduleChanges()

    @property
    def schedules(self) -> Mapping[str, DeclaredSchedule]:
        """Every schedule that the code declares, by name."""
        return MappingProxyType(self._schedules)

    def add_schedule(self, schedule: DeclaredSchedule) -> None:
        """Take in a schedule of the code. A name that is taken is refused."""
        if schedule.name in self._schedules:
            raise ConfigurationError(
                f"the name {schedule.name!r} is given to two schedules; give one of them another name"
            )
        if len(self._schedules) >= MAX_SCHEDULES:
            raise ConfigurationError(f"more than {MAX_SCHEDULES:,} schedules are declared; that is the limit")
        self._schedules[schedule.name] = schedule

    @property
    def tasks(self) -> Mapping[str, Task[..., Any]]:
        """Every task by its own name."""
        return MappingProxyType(self._tasks)

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, task: Task[..., Any]) -> None:
        """Take in a task. A name that is taken, by a task or by an alias, is refused with both places."""
        for name in (task.name, *task.aliases):
            holder = self._names.get(name)
            if holder is not None:
                raise ConfigurationError(
                    f"the name {name!r} is given to two tasks: {holder.location} and {task.location}; "
                    "give one of them another name="
                )
        for other in self._by_topic.get(task.topic, ()):
            if None not in (task.limits, other.limits) and task.limits != other.limits:
                raise ConfigurationError(
                    f"topic {task.topic!r} is given two different limits: by {other.location} and by "
                    f"{task.location}; limits are of a topic with all of its tasks: declare them once"
                )
        self._tasks[task.name] = task
        for name in (task.name, *task.aliases):
            self._names[name] = task
        self._by_topic.setdefault(task.topic, []).append(task)
        if task.callbacks is not None:
            self._with_callbacks.append(task.name)

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Forget the tasks that are added inside when it ends with an error."""
        before = dict(self._tasks), dict(self._names), list(self._with_callbacks), dict(self._schedules)
        topics = {topic: list(tasks) for topic, tasks in self._by_topic.items()}
        try:
            yield
        except BaseException:
            self._tasks, self._names, self._with_callbacks, self._schedules = before
            self._by_topic = topics
            raise

    @property
    def active_middleware(self) -> MiddlewareStack | None:
        """What is to be done around runs; None where that is nothing."""
        return self.middleware if self.middleware.has_run_hooks else None

    @property
    def has_batches(self) -> bool:
        """Whether any task here runs several jobs in one call."""
        return any(task.batch is not None for task in self)

    @property
    def has_callbacks(self) -> bool:
        """Whether any task here has: workers of others never look."""
        return bool(self._with_callbacks)

    def prepare_jobs(self, app: Tidewheel, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Run the enqueue middleware on checked jobs. Every way in does this before it writes them."""
        return self.middleware.prepare(app, jobs) if self.middleware.has_enqueue_hooks else jobs

    def find(self, name: str) -> Task[..., Any] | None:
        """The task of this name or alias."""
        return self._names.get(name)

    def tasks_on_topic(self, topic: str) -> tuple[Task[..., Any], ...]:
        """The tasks that live on this topic."""
        return tuple(self._by_topic.get(topic, ()))

    def resolve(self, topic: str, task: str) -> Task[..., Any] | None:
        """Who runs a job. One with a task: that task. One without: the task named like its topic, else the
        only task on that topic, else nobody.
        """
        if task:
            return self._names.get(task)
        named = self._names.get(topic)
        if named is not None:
            return named
        here = self._by_topic.get(topic, ())
        return here[0] if len(here) == 1 else None

    def lanes(self, topics: Iterable[str] | None = None, exclude: Collection[str] = ()) -> tuple[Lane, ...]:
        """What a worker of this app can run, narrowed to ``topics`` and without ``exclude``.

        Tasks that are not durable are left out: their jobs are in no store, and run where they were enqueued.

        A topic that is asked for and is home to no task here gets a lane for every task: that is how jobs
        routed there with ``options(topic=…)`` find a worker.
        """
        lanes: dict[Lane, None] = {}  # a set that keeps its order
        durable = {name: task for name, task in self._names.items() if task.durable}
        for name, task in durable.items():
            lanes[Lane(task.topic, name)] = None
            if is_topic(name):
                lanes[Lane(name, "")] = None
                # Jobs enqueued before a rename wait in the topic of the old name, under the old name.
                lanes[Lane(name, name)] = None
        for topic, tasks in self._by_topic.items():
            if len(tasks) == 1 and tasks[0].durable:
                lanes[Lane(topic, "")] = None
        if topics is not None:
            wanted = [check_any_topic(topic) for topic in topics]
            for topic in wanted:
                if topic not in self._by_topic:
                    lanes.update((Lane(topic, name), None) for name in durable)
            lanes = {lane: None for lane in lanes if lane.topic in set(wanted)}
        excluded = {check_any_topic(topic) for topic in exclude}
        return tuple(lane for lane in lanes if lane.topic not in excluded)
