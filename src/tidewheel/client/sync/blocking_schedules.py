"""The twins behind ``.sync``, written by ``scripts/make_blocking_twins.py``: do not edit."""

from __future__ import annotations

from typing import Any, Unpack

from tidewheel.client.sync.blocking_app import BlockingJob
from tidewheel.client.sync.portal import Twin
from tidewheel.core.cron import When
from tidewheel.schedules.manager import Schedules
from tidewheel.schedules.schedule import Schedule
from tidewheel.tasks.options import EnqueueOptions
from tidewheel.tasks.task import Task


class BlockingSchedules(Twin[Schedules]):
    """Blocking twin of :class:`~tidewheel.schedules.manager.Schedules`."""

    def create(
        self,
        name: str,
        task_or_topic: str | Task[..., Any],
        when: When,
        payload: Any = None,
        *,
        replace: bool = False,
        **options: Unpack[EnqueueOptions],
    ) -> Schedule:
        """Make a schedule: a job of this task, or for whoever takes jobs of this topic, at these times.

        Checked as an enqueue is, options included. ``WrongState`` when the name is taken; ``replace`` then
        puts it in the place of the other one, which keeps its counts, and its pause. One that code declares
        is changed in the code.
        """
        return self._portal.run(
            self._inner.create, name, task_or_topic, when, payload, replace=replace, **options
        )

    def all(self) -> list[Schedule]:
        """Every schedule, by name; there are at most 1,000."""
        return self._portal.run(self._inner.all)

    def get(self, name: str) -> Schedule:
        """One schedule, or ``ScheduleNotFound``."""
        return self._portal.run(self._inner.get, name)

    def pause(self, name: str) -> Schedule:
        """Let it make no jobs until ``resume``, whatever restarts meanwhile."""
        return self._portal.run(self._inner.pause, name)

    def resume(self, name: str) -> Schedule:
        """Let it make jobs again, from now on: what passed while it was paused is not made up for."""
        return self._portal.run(self._inner.resume, name)

    def run(self, name: str) -> BlockingJob[Any]:
        """Make a job of it now, also while it is paused. Its own times are not changed by it."""
        return BlockingJob(self._portal.run(self._inner.run, name), self._portal)

    def delete(self, name: str) -> None:
        """Forget it. Its jobs stay. One that code declares comes back with the next worker that starts."""
        self._portal.run(self._inner.delete, name)
