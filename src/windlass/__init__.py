"""Windlass: a durable job queue that lives in the database you already have."""

from windlass.__about__ import __version__
from windlass.app import Windlass
from windlass.context import Context
from windlass.errors import (
    Cancel,
    ConfigurationError,
    Directive,
    Fail,
    HandlerNotFound,
    InvalidInput,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobNotFound,
    LeaseLost,
    LimitExceeded,
    NotOpen,
    NotPermitted,
    ResultTimeout,
    RetryAfter,
    SchemaTooNew,
    Snooze,
    StoreError,
    StoreUnavailable,
    UsedAfterFork,
    WindlassError,
    WrongState,
)
from windlass.fleet import WorkerInfo
from windlass.job import Attempt, Job, JobPage
from windlass.model import BACKFILL, DISCOVERED, EXPLICIT, Count, JobError, Progress, State, Stats, TopicStats
from windlass.options import BY_PAYLOAD
from windlass.retry import Retry
from windlass.security import SecurityContext, acting_as
from windlass.settings import Settings
from windlass.task import BoundTask, Task

__all__ = [
    "BACKFILL",
    "BY_PAYLOAD",
    "DISCOVERED",
    "EXPLICIT",
    "Attempt",
    "BoundTask",
    "Cancel",
    "ConfigurationError",
    "Context",
    "Count",
    "Directive",
    "Fail",
    "HandlerNotFound",
    "InvalidInput",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "JobPage",
    "LeaseLost",
    "LimitExceeded",
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
    "StoreError",
    "StoreUnavailable",
    "Task",
    "TopicStats",
    "UsedAfterFork",
    "Windlass",
    "WindlassError",
    "WorkerInfo",
    "WrongState",
    "__version__",
    "acting_as",
]
