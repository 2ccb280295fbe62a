"""Tidewheel: a durable job queue that lives in the database you already have.

What it offers is imported when it is first asked for, because importing all of it takes a fifth of a second:
``tidewheel beanstalkd`` has to listen before that, and ``tidewheel --help`` needs none of it.
"""

from tidewheel.__about__ import __version__

TYPE_CHECKING = False  # as type checkers know it; importing it takes longer than all of this
if TYPE_CHECKING:
    from typing import Any

    from tidewheel import builtin
    from tidewheel.admin.worker_info import WorkerInfo
    from tidewheel.app import Tidewheel
    from tidewheel.client.handler_transaction import Transaction
    from tidewheel.client.job_handle import Attempt, Job, JobPage, Step
    from tidewheel.client.local_queue import LaneStats
    from tidewheel.core.cron import Cron, Every
    from tidewheel.core.model import (
        BACKFILL,
        DISCOVERED,
        EXPLICIT,
        Count,
        Dependents,
        JobError,
        Progress,
        Relative,
        State,
    )
    from tidewheel.core.reports import Stats, TaskActivity, TaskStats, TopicStats
    from tidewheel.core.retry import Retry
    from tidewheel.core.security_context import SecurityContext, acting_as
    from tidewheel.core.timeline import Happening, TimelineEntry
    from tidewheel.core.topic_limits import LimitsOrigin, Rate, TopicLimits
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
    from tidewheel.pull.queue import Queue
    from tidewheel.pull.queue_stats import JobStats, QueueStats, Recovery, TopicState
    from tidewheel.pull.reserved_job import Reserved
    from tidewheel.schedules.manager import Schedules
    from tidewheel.schedules.schedule import Schedule
    from tidewheel.settings import Settings
    from tidewheel.tasks.annotations import Alias
    from tidewheel.tasks.batches import Batch, BatchContext
    from tidewheel.tasks.context import Context
    from tidewheel.tasks.middleware import CallNext, JobDraft, Middleware
    from tidewheel.tasks.options import BY_PAYLOAD, by_fields
    from tidewheel.tasks.task import BoundTask, Task

_HOMES = {
    "tidewheel": ("builtin",),
    "tidewheel.app": ("Tidewheel",),
    "tidewheel.tasks.batches": ("Batch", "BatchContext"),
    "tidewheel.tasks.context": ("Context",),
    "tidewheel.core.cron": ("Cron", "Every"),
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
    "tidewheel.tasks.annotations": ("Alias",),
    "tidewheel.core.reports": ("Stats", "TaskActivity", "TaskStats", "TopicStats"),
    "tidewheel.admin.worker_info": ("WorkerInfo",),
    "tidewheel.client.job_handle": ("Attempt", "Job", "JobPage", "Step"),
    "tidewheel.client.local_queue": ("LaneStats",),
    "tidewheel.core.topic_limits": ("LimitsOrigin", "Rate", "TopicLimits"),
    "tidewheel.tasks.middleware": ("CallNext", "JobDraft", "Middleware"),
    "tidewheel.core.model": (
        "BACKFILL",
        "DISCOVERED",
        "EXPLICIT",
        "Count",
        "Dependents",
        "JobError",
        "Progress",
        "Relative",
        "State",
    ),
    "tidewheel.tasks.options": ("BY_PAYLOAD", "by_fields"),
    "tidewheel.pull.queue": ("Queue",),
    "tidewheel.pull.reserved_job": ("Reserved",),
    "tidewheel.pull.queue_stats": ("JobStats", "QueueStats", "Recovery", "TopicState"),
    "tidewheel.core.retry": ("Retry",),
    "tidewheel.schedules.schedule": ("Schedule",),
    "tidewheel.schedules.manager": ("Schedules",),
    "tidewheel.core.security_context": ("SecurityContext", "acting_as"),
    "tidewheel.settings": ("Settings",),
    "tidewheel.tasks.task": ("BoundTask", "Task"),
    "tidewheel.core.timeline": ("Happening", "TimelineEntry"),
    "tidewheel.client.handler_transaction": ("Transaction",),
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
    "builtin",
    "by_fields",
]
