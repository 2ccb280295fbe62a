"""Everything Tidewheel raises, as one tree.

::

    TidewheelError
    ├── InvalidInput (ValueError)      bad topic, payload, time or option; nothing was written
    │   ├── InvalidFilter              a filter that cannot be read; it says at which character
    │   ├── InvalidPayload             the payload is not storable JSON or does not fit the task
    │   ├── ParentNotFound             a job is to run after one that this tenant does not have
    │   └── LimitExceeded              a configured maximum would be passed
    │       └── TouchLimitExceeded     a reservation was touched too often, too soon or for too long
    ├── Backpressure                   the lane of non-durable tasks is full; nothing was enqueued
    │   └── TooManyWaiters             too many callers wait for a job already
    ├── HandlerNotFound                no task of that name, and unknown tasks are refused
    ├── JobNotFound (LookupError)      no such job, or not one this caller may see
    ├── ScheduleNotFound (LookupError) no schedule of that name
    ├── KeyInUse                       a job that this caller may not see holds the key
    ├── WrongState                     the job is not in a state that allows this
    │   └── NotBuried                  only a buried or delayed job can be kicked
    ├── NotAuthenticated               no key, token or session, or not a good one
    ├── NotPermitted (PermissionError) not for this caller, or about all tenants and asked for one
    ├── TooManyAttempts                too many failed logins; try again later
    ├── JobFailed                      raised by ``job.result()``: the job is in ``failed``
    ├── JobCancelled                   raised by ``job.result()``: the job is in ``cancelled``
    ├── ResultTimeout (TimeoutError)   ``job.result(timeout=…)`` ran out; the job goes on
    ├── ReserveTimeout (TimeoutError)  no job was ready in the time given to ``reserve``
    ├── LeaseLost                      the lease ended; the write was refused
    │   └── NotReserved                the job is not reserved by this caller any more
    ├── TransactionTimeout (TimeoutError)   ``ctx.transaction`` was open too long and was rolled back
    ├── NotOpen                        the app is used before ``async with app``
    ├── ConfigurationError             a setting, URL or task registration that cannot work
    │   └── NotOverHttp                it needs the database, and the app reaches that over HTTP only
    ├── WorkerStuck                    half a worker's slots are held by handlers that do not stop
    └── StoreError                     the database refused or failed
        ├── StoreUnavailable           busy, disconnected, full: try again later
        ├── SchemaTooNew               the database was migrated by a newer Tidewheel
        └── UsedAfterFork              the store was opened before ``fork()``

    Directive                          raised by handlers to say how an attempt ends
    ├── TaskError(message)  the attempt errored, with a code, details and retryability of your own
    ├── RetryAfter(delay)   try again in ``delay`` seconds; counts as an attempt
    ├── Fail(reason)        no more retries
    ├── Snooze(delay)       run again later; not counted
    └── Cancel(reason)      end as cancelled
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unicodedata import combining, east_asian_width

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from tidewheel.core.model import JobError


class TidewheelError(Exception):
    """Base of everything Tidewheel raises on purpose."""

    code = "internal_error"
    retryable = True  # whether an attempt that ends with it may be tried again


class InvalidInput(TidewheelError, ValueError):
    """The caller's input cannot be accepted. Nothing was written."""

    code = "invalid_input"
    retryable = False
    job: int | None = None
    """Which of several jobs that were given together it is about, counted from 0."""


class InvalidFilter(InvalidInput):
    """A filter written as text cannot be read. ``position`` and ``length`` say where, in characters."""

    code = "invalid_filter"

    def __init__(self, reason: str, query: str, position: int, length: int = 1) -> None:
        self.reason = reason
        self.query = query
        self.position = position
        self.length = max(1, length)
        super().__init__(f"{reason}\n{self.pointer}")

    @property
    def pointer(self) -> str:
        """Two lines: the text, and carets under what is meant."""
        start = max(0, self.position - 60)
        shown = self.query[start : self.position + 60]
        before = "…" if start else ""
        after = "…" if self.position + 60 < len(self.query) else ""
        # What moves the cursor of a terminal would move the carets away from what they are under.
        line = "".join(character if character.isprintable() else " " for character in shown)
        at = self.position - start
        carets = "^" * max(1, _columns(line[at : at + self.length]))
        return f"  {before}{line}{after}\n  {' ' * (len(before) + _columns(line[:at]))}{carets}"


def _columns(text: str) -> int:
    """How many columns of a terminal it takes: wide characters are two, marks on another one none."""
    return sum(
        0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text
    )


class ParentNotFound(InvalidInput):
    """A new job names a job to run after that does not exist, or not in its tenant. Nothing was written."""

    code = "parent_not_found"


class KeyInUse(TidewheelError):
    """The key of a new job is held by a job that the caller's row filter hides. Nothing was written."""

    code = "key_in_use"
    retryable = False


class InvalidPayload(InvalidInput):
    """The payload is not storable JSON, or does not fit the task's signature.

    The message may quote a value, for whoever gave it. ``message_without_value`` is the same without it, for
    the job's errors: more people read those than may see payloads. ``places`` are JSON pointers into the
    payload with what is wrong there, without values, too; without any it is the payload as a whole.
    """

    message_without_value: str | None = None
    places: tuple[tuple[str, str], ...] = ()


class LimitExceeded(InvalidInput):
    """A configured maximum (payload bytes, topics, jobs per topic, …) would be passed."""

    code = "limit_exceeded"
    retryable = True  # jobs in a topic become fewer


class TouchLimitExceeded(LimitExceeded):
    """A reservation was touched too often, too soon after the last time, or for too long altogether."""

    code = "touch_limit_exceeded"


class Backpressure(TidewheelError):
    """The lane of non-durable tasks is full. Nothing was enqueued; trying again later may work."""

    code = "backpressure"


class TooManyWaiters(Backpressure):
    """As many callers wait for a job as ``max_waiters`` allows."""

    code = "too_many_waiters"


class HandlerNotFound(TidewheelError):
    """No task of that name is registered, and this app refuses unknown tasks."""

    code = "handler_not_found"
    retryable = False


class JobNotFound(TidewheelError, LookupError):
    """No such job, or not one the caller may see."""

    code = "job_not_found"
    retryable = False


class ScheduleNotFound(TidewheelError, LookupError):
    """There is no schedule of that name."""

    code = "schedule_not_found"


class WrongState(TidewheelError):
    """The job exists, but its state does not allow what was asked."""

    code = "wrong_state"


class NotBuried(WrongState):
    """The job is neither buried nor delayed, so it cannot be kicked."""

    code = "not_buried"


class NotAuthenticated(TidewheelError):
    """The caller did not prove who it is. It is never said what was wrong with what it showed."""

    code = "not_authenticated"


class NotPermitted(TidewheelError, PermissionError):
    """The caller may not do this: a rule or a scope is against it, or it is about all tenants and the caller
    acts for one (see ``acting_as``).
    """

    code = "not_permitted"


class TooManyAttempts(TidewheelError):
    """Too many logins, for this name, from this address or at once. Wait ``retry_after`` seconds."""

    code = "too_many_attempts"

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(f"too many logins were tried; try again in {max(1, round(retry_after))} s")


class JobFailed(TidewheelError):
    """The awaited job ended in ``failed``. ``error`` says why."""

    code = "job_failed"

    def __init__(self, job_id: UUID, error: JobError | None) -> None:
        self.job_id = job_id
        self.error = error
        why = f"{error.code}: {error.message}" if error else "no error was recorded"
        super().__init__(f"job {job_id} failed: {why}")


class JobCancelled(TidewheelError):
    """The awaited job ended in ``cancelled``. ``error`` carries the reason where one was given."""

    code = "job_canceled"

    def __init__(self, job_id: UUID, error: JobError | None) -> None:
        self.job_id = job_id
        self.error = error
        super().__init__(f"job {job_id} was cancelled" + (f": {error.message}" if error else ""))


class ResultTimeout(TidewheelError, TimeoutError):
    """The job did not finish in the time given to ``result``. The job itself goes on."""

    code = "result_timeout"


class LeaseLost(TidewheelError):
    """The lease ended before this write, so the write was refused and changed nothing."""

    code = "lease_lost"


class NotReserved(LeaseLost):
    """The job is not reserved by this caller any more: its time was over, or it was ended before."""

    code = "not_reserved"


class ReserveTimeout(TidewheelError, TimeoutError):
    """No job was ready in the time given to ``reserve``."""

    code = "reserve_timeout"


class TransactionTimeout(TidewheelError, TimeoutError):
    """A handler's transaction was open for longer than ``transaction_seconds``. It was rolled back."""

    code = "transaction_timeout"


class NotOpen(TidewheelError):
    """The app was used before it was opened, or after it was closed."""

    code = "not_open"


class ConfigurationError(TidewheelError):
    """A setting, a URL or a task registration that cannot work."""

    code = "configuration_error"


class NotOverHttp(ConfigurationError):
    """It needs the database itself, or a word that the HTTP API does not have, and the app's URL names a
    server. The message says what to do instead. Nothing was done.
    """

    code = "not_over_http"


class WorkerStuck(TidewheelError):
    """A worker ended because half its slots are held by handlers that were told to stop and go on.

    Everything else it had is settled or given back. ``Tidewheel.run_worker`` and the like put a fresh
    worker in its place and raise this only when that has not helped several times over.
    """

    code = "worker_stuck"


class StoreError(TidewheelError):
    """The database refused or failed. The transaction in question left nothing behind."""

    code = "store_error"
    lacks_rights = False
    """Whether the role or process may not do this: waiting does not help until somebody grants it."""


class StoreUnavailable(StoreError):
    """The database is busy, gone, full or out of reach. Trying again later may work."""

    code = "store_unavailable"


class SchemaTooNew(StoreError):
    """The database was migrated by a newer Tidewheel than this one."""

    code = "schema_too_new"


class UsedAfterFork(StoreError):
    """The store was opened in a parent process; connections do not survive a fork."""

    code = "used_after_fork"


class Directive(Exception):
    """Raised by a handler to say how its attempt ends. Not an error of Tidewheel."""


class TaskError(Directive):
    """The attempt errored, and this is what is kept of it: a code for programs, a message, details.

    Tried again like any other error while attempts are left; ``retryable=False`` fails the job at once.
    ``details`` is an object of JSON, at most 16,000 bytes of it.
    """

    # For subclasses that do not call this constructor: an error half made is an error all the same.
    message: str = "the handler reported an error"
    code: str = "handler_error"
    details: Mapping[str, Any] | None = None
    retryable: bool = True

    def __init__(
        self,
        message: str = message,
        *,
        code: str = "handler_error",
        details: Mapping[str, Any] | None = None,
        retryable: bool = True,
    ) -> None:
        self.message = message
        self.code = code
        self.details = details
        self.retryable = retryable
        super().__init__(message)


class RetryAfter(Directive):
    """Try again in ``delay`` seconds. The attempt counts; the last one fails the job."""

    def __init__(self, delay: float, reason: str = "the handler asked for another try") -> None:
        self.delay = delay
        self.reason = reason
        super().__init__(reason)


class Fail(Directive):
    """End the job as failed, whatever attempts are left."""

    def __init__(self, reason: str = "the handler gave up", *, code: str = "handler_error") -> None:
        self.reason = reason
        self.code = code
        super().__init__(reason)


class Snooze(Directive):
    """Run the job again in ``delay`` seconds. This attempt is not counted."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        super().__init__(f"snoozed for {delay} s")


class Cancel(Directive):
    """End the job as cancelled."""

    def __init__(self, reason: str = "the handler cancelled the job") -> None:
        self.reason = reason
        super().__init__(reason)
