"""Tidewheel: a durable job queue that lives in the database you already have.

What it offers is imported when it is first asked for, because importing all of it takes a fifth of a second:
``tidewheel beanstalkd`` has to listen before that, and ``tidewheel --help`` needs none of it.
"""

from tidewheel.__about__ import __version__

TYPE_CHECKING = False  # as type checkers know it; importing it takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from tidewheel import tasks
    from tidewheel.app import Tidewheel
    from tidewheel.batch import Batch, BatchContext
    from tidewheel.context import Context
    from tidewheel.cron import Cron, Every
    from tidewheel.draft import JobDraft
    from tidewheel.errors import (
        Backpressure,
        Cancel,
        ConfigurationError,
        Directive,
        Fail,
        HandlerNotFound,
        InvalidFilter,
        InvalidInput,
        InvalidPayload,
        JobCancelled,
        JobFailed,
        JobNotFound,
        KeyInUse,
        LeaseLost,
        LimitExceeded,
        NotAuthenticated,
        NotBuried,
        NotOpen,
        NotOverHttp,
        NotPermitted,
        NotReserved,
        ParentNotFound,
        ReserveTimeout,
        ResultTimeout,
        RetryAfter,
        ScheduleNotFound,
        SchemaTooNew,
        Snooze,
        StoreError,
        StoreUnavailable,
        TaskError,
        TidewheelError,
        TooManyAttempts,
        TooManyWaiters,
        TouchLimitExceeded,
        TransactionTimeout,
        UsedAfterFork,
        WorkerStuck,
        WrongState,
    )
    from tidewheel.fields import Alias
    from tidewheel.findings import TaskActivity, TaskStats
    from tidewheel.fleet import WorkerInfo
    from tidewheel.job import Attempt, Job, JobPage, Step
    from tidewheel.lane import LaneStats
    from tidewheel.limits import LimitsOrigin, Rate, TopicLimits
    from tidewheel.middleware import CallNext, Middleware
    from tidewheel.model import (
        BACKFILL,
        DISCOVERED,
        EXPLICIT,
        Count,
        Dependents,
        JobError,
        Progress,
        Relative,
        State,
        Stats,
        TopicStats,
    )
    from tidewheel.options import BY_PAYLOAD, by_fields
    from tidewheel.pulling.queue import Queue
    from tidewheel.pulling.reserved import Reserved
    from tidewheel.pulling.statistics import JobStats, QueueStats, Recovery, TopicState
    from tidewheel.retry import Retry
    from tidewheel.schedules.schedule import Schedule
    from tidewheel.schedules.schedules import Schedules
    from tidewheel.security import SecurityContext, acting_as
    from tidewheel.settings import Settings
    from tidewheel.task import BoundTask, Task
    from tidewheel.timeline import Happening, TimelineEntry
    from tidewheel.transaction import Transaction

_HOMES = {
    "tidewheel": ("tasks",),
    "tidewheel.app": ("Tidewheel",),
    "tidewheel.batch": ("Batch", "BatchContext"),
    "tidewheel.context": ("Context",),
    "tidewheel.cron": ("Cron", "Every"),
    "tidewheel.draft": ("JobDraft",),
    "tidewheel.errors": (
        "Backpressure",
        "Cancel",
        "ConfigurationError",
        "Directive",
        "Fail",
        "HandlerNotFound",
        "InvalidFilter",
        "InvalidInput",
        "InvalidPayload",
        "JobCancelled",
        "JobFailed",
        "JobNotFound",
        "KeyInUse",
        "LeaseLost",
        "LimitExceeded",
        "NotAuthenticated",
        "NotBuried",
        "NotOpen",
        "NotOverHttp",
        "NotPermitted",
        "NotReserved",
        "ParentNotFound",
        "ReserveTimeout",
        "ResultTimeout",
        "RetryAfter",
        "ScheduleNotFound",
        "SchemaTooNew",
        "Snooze",
        "StoreError",
        "StoreUnavailable",
        "TaskError",
        "TooManyAttempts",
        "TooManyWaiters",
        "TouchLimitExceeded",
        "TransactionTimeout",
        "UsedAfterFork",
        "TidewheelError",
        "WorkerStuck",
        "WrongState",
    ),
    "tidewheel.fields": ("Alias",),
    "tidewheel.findings": ("TaskActivity", "TaskStats"),
    "tidewheel.fleet": ("WorkerInfo",),
    "tidewheel.job": ("Attempt", "Job", "JobPage", "Step"),
    "tidewheel.lane": ("LaneStats",),
    "tidewheel.limits": ("LimitsOrigin", "Rate", "TopicLimits"),
    "tidewheel.middleware": ("CallNext", "Middleware"),
    "tidewheel.model": (
        "BACKFILL",
        "DISCOVERED",
        "EXPLICIT",
        "Count",
        "Dependents",
        "JobError",
        "Progress",
        "Relative",
        "State",
        "Stats",
        "TopicStats",
    ),
    "tidewheel.options": ("BY_PAYLOAD", "by_fields"),
    "tidewheel.pulling.queue": ("Queue",),
    "tidewheel.pulling.reserved": ("Reserved",),
    "tidewheel.pulling.statistics": ("JobStats", "QueueStats", "Recovery", "TopicState"),
    "tidewheel.retry": ("Retry",),
    "tidewheel.schedules.schedule": ("Schedule",),
    "tidewheel.schedules.schedules": ("Schedules",),
    "tidewheel.security": ("SecurityContext", "acting_as"),
    "tidewheel.settings": ("Settings",),
    "tidewheel.task": ("BoundTask", "Task"),
    "tidewheel.timeline": ("Happening", "TimelineEntry"),
    "tidewheel.transaction": ("Transaction",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> "Any":
    from importlib import import_module

    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home == __name__:  # a package of this one, which becomes an attribute by being imported
        return import_module(f"{home}.{name}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> "list[str]":
    return sorted(__all__)


__all__ = [
    "BACKFILL",
    "BY_PAYLOAD",
    "DISCOVERED",
    "EXPLICIT",
    "Alias",
    "Attempt",
    "Backpressure",
    "Batch",
    "BatchContext",
    "BoundTask",
    "CallNext",
    "Cancel",
    "ConfigurationError",
    "Context",
    "Count",
    "Cron",
    "Dependents",
    "Directive",
    "Every",
    "Fail",
    "HandlerNotFound",
    "Happening",
    "InvalidFilter",
    "InvalidInput",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobDraft",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "JobPage",
    "JobStats",
    "KeyInUse",
    "LaneStats",
    "LeaseLost",
    "LimitExceeded",
    "LimitsOrigin",
    "Middleware",
    "NotAuthenticated",
    "NotBuried",
    "NotOpen",
    "NotOverHttp",
    "NotPermitted",
    "NotReserved",
    "ParentNotFound",
    "Progress",
    "Queue",
    "QueueStats",
    "Rate",
    "Recovery",
    "Relative",
    "ReserveTimeout",
    "Reserved",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
    "Schedule",
    "ScheduleNotFound",
    "Schedules",
    "SchemaTooNew",
    "SecurityContext",
    "Settings",
    "Snooze",
    "State",
    "Stats",
    "Step",
    "StoreError",
    "StoreUnavailable",
    "Task",
    "TaskActivity",
    "TaskError",
    "TaskStats",
    "Tidewheel",
    "TidewheelError",
    "TimelineEntry",
    "TooManyAttempts",
    "TooManyWaiters",
    "TopicLimits",
    "TopicState",
    "TopicStats",
    "TouchLimitExceeded",
    "Transaction",
    "TransactionTimeout",
    "UsedAfterFork",
    "WorkerInfo",
    "WorkerStuck",
    "WrongState",
    "__version__",
    "acting_as",
    "by_fields",
    "tasks",
]
