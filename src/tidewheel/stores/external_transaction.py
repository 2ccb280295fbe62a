"""Work in a transaction that is somebody else's, on the connection they hold.

A store tells what it wants done there step by step, as a generator of requests; whoever holds the connection
does each, blocking or awaiting, and sends the answer back. So a store knows nothing of drivers, and what
knows them nothing of jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar
from uuid import UUID

from tidewheel.core.model import Enqueued, JobRecord, NewJob

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PgStatement:
    """For PostgreSQL: a statement with ``{text}`` in one place; the one text it answers, or None."""

    statement: str
    text: str

    def with_placeholder(self, placeholder: str) -> str:
        """The statement as a driver wants it."""
        return self.statement.replace("{text}", placeholder)


@dataclass(frozen=True, slots=True)
class SqliteCall:
    """For SQLite: work on the connection itself, on its own thread; what it returns."""

    work: Callable[[sqlite3.Connection], Any]


TransactionStep = PgStatement | SqliteCall
TransactionSteps = Generator[TransactionStep, Any, T]


@dataclass(frozen=True, slots=True)
class UncommittedEnqueue:
    """A transaction of whose commit those who wait have to be told."""

    transaction: str
    """what the database calls it"""
    lowest_numbers: Mapping[str, int]
    """topics of the new jobs, each with the lowest number"""


@dataclass(frozen=True, slots=True)
class ExternalEnqueueResult:
    """What was written, as part of a transaction that has not ended."""

    enqueued: Sequence[Enqueued]
    key_holders: Mapping[UUID, JobRecord]
    """the jobs that hold the keys of duplicates; not one that was pruned in this very moment"""
    uncommitted: Sequence[UncommittedEnqueue] = ()
    """none where the transaction tells by itself; in autocommit every part is a transaction of its own"""


class ExternalTransaction(Protocol):
    """A store's part in transactions of others. It is not opened, and has no connection of its own."""

    dialect: ClassVar[str]
    """``sqlite`` or ``postgresql``"""

    def enqueue(self, jobs: Sequence[NewJob]) -> TransactionSteps[ExternalEnqueueResult]:
        """Write new jobs, however many. What is refused leaves the transaction as it was."""

    def get(self, job_id: UUID, tenant: str | None) -> TransactionSteps[JobRecord | None]:
        """One job of this tenant (None = any) with its bodies, as seen from inside of the transaction."""


def lowest_numbers_by_topic(jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> dict[str, int]:
    """Where jobs became ready, each topic with its lowest number."""
    places: dict[str, int] = {}
    for job, answer in zip(jobs, answers, strict=True):
        places[job.topic] = min(answer.number, places.get(job.topic, answer.number))
    return places
