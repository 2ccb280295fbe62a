"""Windlass: a durable job queue that lives in the database you already have."""

from windlass.__about__ import __version__
from windlass.app import Windlass
from windlass.context import Context
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
    LeaseLost,
    LimitExceeded,
    NotAuthenticated,
    NotOpen,
    NotPermitted,
    ResultTimeout,
    RetryAfter,
    SchemaTooNew,
    Snooze,
    StoreError,
    StoreUnavailable,
    TaskError,
    TooManyAttempts,
    TransactionTimeout,
    UsedAfterFork,
    WindlassError,
    WorkerStuck,
    WrongState,
)
from windlass.findings import TaskActivity, TaskStats
from windlass.fleet import WorkerInfo
from windlass.job import Attempt, Job, JobPage, Step
from windlass.lane import LaneStats
from windlass.model import BACKFILL, DISCOVERED, EXPLICIT, Count, JobError, Progress, State, Stats, TopicStats
from windlass.options import BY_PAYLOAD
from windlass.retry import Retry
from windlass.security import SecurityContext, acting_as
from windlass.settings import Settings
from windlass.task import BoundTask, Task
from windlass.timeline import Happening, TimelineEntry
from windlass.transaction import Transaction

__all__ = [
    "BACKFILL",
    "BY_PAYLOAD",
    "DISCOVERED",
    "EXPLICIT",
    "Attempt",
    "Backpressure",
    "BoundTask",
    "Cancel",
    "ConfigurationError",
    "Context",
    "Count",
    "Directive",
    "Fail",
    "HandlerNotFound",
    "Happening",
    "InvalidFilter",
    "InvalidInput",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "JobPage",
    "LaneStats",
    "LeaseLost",
    "LimitExceeded",
    "NotAuthenticated",
    "NotOpen",
    "NotPermitted",
    "Progress",
    "ResultTimeout",
    "Retry",
    "RetryAfter",
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
    "TopicStats",
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
]
