"""A job on its way into the store, as middleware sees it and may change it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Unpack
from uuid import UUID

from msgspec.structs import replace

from tidewheel import headers as texts
from tidewheel import payload as bodies
from tidewheel.clock import to_datetime
from tidewheel.errors import HandlerNotFound, InvalidInput
from tidewheel.model import BodyFormat, NewJob
from tidewheel.names import shorten, suggest
from tidewheel.options import BY_PAYLOAD, ByFields, EnqueueOptions, change_options, key_of

if TYPE_CHECKING:
    from tidewheel.app import Tidewheel
    from tidewheel.task import Task


class _Same(Enum):
    SAME = "same"


_SAME: Final = _Same.SAME


class JobDraft:
    """What is about to be enqueued: read it, ``change`` it, or raise to refuse it. Nothing is written yet."""

    __slots__ = ("_app", "_job")

    def __init__(self, app: Tidewheel, job: NewJob) -> None:
        self._app = app
        self._job = job

    def __repr__(self) -> str:
        return f"<JobDraft {self.id} {self.task or self.topic}>"

    @property
    def app(self) -> Tidewheel:
        return self._app

    @property
    def job(self) -> NewJob:
        """As it will be written."""
        return self._job

    @property
    def id(self) -> UUID:
        """The id it gets, unless its key is taken."""
        return self._job.id

    @property
    def task(self) -> str:
        """The task's name; empty for a job that is for whoever takes jobs of its topic."""
        return self._job.task

    @property
    def topic(self) -> str:
        return self._job.topic

    @property
    def tenant(self) -> str:
        return self._job.tenant

    @property
    def payload(self) -> Any:
        """JSON as plain Python, read anew each time, or bytes; None for a task that is not durable."""
        if not self.durable:
            return None
        if self._job.format is BodyFormat.BYTES:
            return self._job.payload
        return bodies.decode(self._job.payload)

    @property
    def durable(self) -> bool:
        """Whether it goes into the store; else its objects stay in this process, and are not shown."""
        return type(self._job.payload) is bytes

    @property
    def headers(self) -> dict[str, str]:
        """The texts that travel with it; a copy."""
        return texts.read(self._job.headers)

    @property
    def priority(self) -> int:
        return self._job.priority

    @property
    def key(self) -> str | None:
        return self._job.key

    @property
    def delay(self) -> float:
        """Seconds until it is due, where no moment is given."""
        return self._job.delay

    @property
    def run_at(self) -> datetime | None:
        return None if self._job.run_at is None else to_datetime(self._job.run_at)

    @property
    def max_attempts(self) -> int | None:
        return self._job.max_attempts

    @property
    def timeout(self) -> float | None:
        return self._job.timeout

    @property
    def correlation_id(self) -> str | None:
        return self._job.correlation_id

    @property
    def user_id(self) -> str | None:
        return self._job.user_id

    @property
    def service_id(self) -> str | None:
        return self._job.service_id

    def change(
        self,
        *,
        task: str | _Same = _SAME,
        payload: Any = _SAME,
        headers: Mapping[str, str] | _Same = _SAME,
        **options: Unpack[EnqueueOptions],
    ) -> None:
        """Make it another job: everything is checked as if it had been enqueued so. All or nothing.

        ``task`` moves it to the topic of that task, unless ``topic`` is given, and needs a payload that fits.
        ``headers`` are added to those it has. Options are those of ``enqueue``. A key that was made of the
        payload follows it.
        """
        job = self._job
        now = self._task() if task is _SAME else self._named(task)
        if task is not _SAME and now is not None:
            job = replace(job, task=now.name, topic=now.topic)
            payload = self.payload if payload is _SAME else payload
        if payload is not _SAME:
            job = self._with_payload(job, now, payload)
        if options:
            if options.get("topic") is not None and now is not None:
                now.template({"topic": options["topic"]})  # refuses the home of others
            job = change_options(job, options, self._app.settings)
        if headers is not _SAME:
            job = replace(job, headers=texts.write({**texts.read(job.headers), **headers}))
        self._job = job

    def _task(self) -> Task[..., Any] | None:
        return self._app.registry.resolve(self._job.topic, self._job.task)

    def _named(self, name: Any) -> Task[..., Any]:
        known = self._app.registry.tasks
        task = self._app.registry.named(name) if isinstance(name, str) else None
        if task is None:
            raise HandlerNotFound(
                f"there is no task {shorten(name)}{suggest(str(name), known)}; "
                f"the tasks are {', '.join(known) or 'none'}"
            )
        if not task.durable or not self.durable:
            raise InvalidInput(
                f"a job of {self.task or self.topic!r} cannot become one of {name!r}: of the two at least "
                "one is not durable"
            )
        return task

    def _with_payload(self, job: NewJob, task: Task[..., Any] | None, value: Any) -> NewJob:
        from tidewheel.making import untyped_body

        if not self.durable:
            raise InvalidInput(
                f"the arguments of {self.task!r} are objects of this process, which middleware cannot "
                "change: the task is not durable"
            )
        limit = self._app.settings.max_payload_bytes
        if task is None or not job.task:
            body, body_format = untyped_body(value, limit)
        else:
            body, body_format = task.signature.encode_payload(value, limit), task.signature.format
        return replace(job, payload=body, format=body_format, key=self._key_after(task, body, body_format))

    def _key_after(self, task: Task[..., Any] | None, body: bytes, body_format: BodyFormat) -> str | None:
        """Two jobs with the key of the payload before would be the same job, whatever theirs is now."""
        job = self._job
        if job.key is not None:
            of_task = None if task is None else task.defaults.get("key")
            for kind in (of_task, BY_PAYLOAD):
                if (kind is BY_PAYLOAD or isinstance(kind, ByFields)) and job.key == key_of(
                    kind, job.payload, job.format
                ):
                    return key_of(kind, body, body_format)
        return job.key
