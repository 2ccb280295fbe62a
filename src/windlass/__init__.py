"""Windlass: a durable job queue that lives in the database you already have.

What it offers is imported when it is first asked for, because importing all of it takes a fifth of a second:
``windlass beanstalkd`` has to listen before that, and ``windlass --help`` needs none of it.
"""

from windlass.__about__ import __version__

TYPE_CHECKING = False  # as type checkers know it; importing it takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from windlass import tasks
    from windlass.app import Windlass
    from windlass.batch import Batch, BatchContext
    from windlass.context import Context
    from windlass.cron import Cron, Every
    from windlass.draft import JobDraft
    from windlass.errors import (
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
        TooManyAttempts,
        TooManyWaiters,
        TouchLimitExceeded,
        TransactionTimeout,
        UsedAfterFork,
        WindlassError,
        WorkerStuck,
        WrongState,
    )
    from windlass.fields import Alias
    from windlass.findings import TaskActivity, TaskStats
    from windlass.fleet import WorkerInfo
    from windlass.job import Attempt, Job, JobPage, Step
    from windlass.lane import LaneStats
    from windlass.limits import LimitsOrigin, Rate, TopicLimits
    from windlass.middleware import CallNext, Middleware
    from windlass.model import (
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
    from windlass.options import BY_PAYLOAD, by_fields
    from windlass.pulling.queue import Queue
    from windlass.pulling.reserved import Reserved
    from windlass.pulling.statistics import JobStats, QueueStats, Recovery, TopicState
    from windlass.retry import Retry
    from windlass.schedules.schedule import Schedule
    from windlass.schedules.schedules import Schedules
    from windlass.security import SecurityContext, acting_as
    from windlass.settings import Settings
    from windlass.task import BoundTask, Task
    from windlass.timeline import Happening, TimelineEntry
    from windlass.transaction import Transaction

_HOMES = {
    "windlass": ("tasks",),
    "windlass.app": ("Windlass",),
    "windlass.batch": ("Batch", "BatchContext"),
    "windlass.context": ("Context",),
    "windlass.cron": ("Cron", "Every"),
    "windlass.draft": ("JobDraft",),
    "windlass.errors": (
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
        "WindlassError",
        "WorkerStuck",
        "WrongState",
    ),
    "windlass.fields": ("Alias",),
    "windlass.findings": ("TaskActivity", "TaskStats"),
    "windlass.fleet": ("WorkerInfo",),
    "windlass.job": ("Attempt", "Job", "JobPage", "Step"),
    "windlass.lane": ("LaneStats",),
    "windlass.limits": ("LimitsOrigin", "Rate", "TopicLimits"),
    "windlass.middleware": ("CallNext", "Middleware"),
    "windlass.model": (
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
    "windlass.options": ("BY_PAYLOAD", "by_fields"),
    "windlass.pulling.queue": ("Queue",),
    "windlass.pulling.reserved": ("Reserved",),
    "windlass.pulling.statistics": ("JobStats", "QueueStats", "Recovery", "TopicState"),
    "windlass.retry": ("Retry",),
    "windlass.schedules.schedule": ("Schedule",),
    "windlass.schedules.schedules": ("Schedules",),
    "windlass.security": ("SecurityContext", "acting_as"),
    "windlass.settings": ("Settings",),
    "windlass.task": ("BoundTask", "Task"),
    "windlass.timeline": ("Happening", "TimelineEntry"),
    "windlass.transaction": ("Transaction",),
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
    "Windlass",
    "WindlassError",
    "WorkerInfo",
    "WorkerStuck",
    "WrongState",
    "__version__",
    "acting_as",
    "by_fields",
    "tasks",
]
