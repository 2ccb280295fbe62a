"""What needs the database itself, and cannot be asked of a server; each with what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn
from uuid import UUID

from tidewheel.core.full_job import WholeJob
from tidewheel.core.model import (
    Claimed,
    Document,
    Enqueued,
    Head,
    JobFilter,
    JobRecord,
    Lease,
    NewDocument,
    NewJob,
    TopicDepth,
    Verdict,
)
from tidewheel.core.reports import Failures, LaneDurations, Repeats
from tidewheel.core.topic_limits import HeldBack
from tidewheel.errors import NotOverHttp, WrongState
from tidewheel.stores.external_transaction import Untold
from tidewheel.stores.protocol import MAX_GROUPS, OpenTransaction


def refuse(what: str, instead: str) -> NoReturn:
    raise NotOverHttp(f"{what} cannot be done over HTTP; {instead}")


_BESIDE = "run it where the database is, with its URL"
_PULLING = "pull jobs beside the database, or run a worker, which works over HTTP"
_QUESTIONS = "the server answers it, at /api/jobs/questions and in its web UI; or " + _BESIDE


class Refusing:
    """The verbs of a store that are no part of the HTTP API."""

    async def migrate(self, *, rls: bool = False) -> list[str]:
        """A server keeps its schema up to date by itself."""
        del rls
        refuse("migrating", _BESIDE)

    async def missing_steps(self) -> list[str]:
        refuse("looking at the schema", _BESIDE)

    async def check(self) -> list[str]:
        refuse("checking the store", f"{_BESIDE}: tidewheel doctor")

    async def begin(
        self,
        lease: Lease,
        *,
        lease_seconds: float,
        seconds: float,
        tenant: str,
        on_timeout: Callable[[], None],
        run_seconds: float = 0.0,
    ) -> OpenTransaction:
        """As in memory: there is no database here to have a transaction in."""
        del lease, lease_seconds, seconds, tenant, on_timeout, run_seconds
        raise WrongState(
            "ctx.transaction needs the database the jobs are in, and this worker reaches that over HTTP "
            "only; run the worker beside the database, or use a connection of yours"
        )

    def expect(self, untold: Untold) -> None:
        del untold
        refuse("enqueueing in a transaction of yours", "leave using out, and give the job a key")

    # -- pulling by hand --------------------------------------------------------------------------------

    async def grant(
        self, job_id: UUID, *, worker: str, lease_seconds: float, tenant: str | None = None
    ) -> Claimed | None:
        del job_id, worker, lease_seconds, tenant
        refuse("reserving a job by its id", _PULLING)

    async def touch(self, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
        del leases, lease_seconds
        refuse("touching a reservation", _PULLING)

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[Verdict]:
        del job_ids, tenant
        refuse("kicking single jobs", "requeue them, if they have failed")

    async def job_ids(self, numbers: Sequence[int], *, tenant: str | None = None) -> list[UUID | None]:
        del numbers, tenant
        refuse("finding jobs by their numbers", "numbers tell of other tenants; find them by id or by key")

    async def peek(self, topic: str, head: Head, *, tenant: str | None = None) -> JobRecord | None:
        del topic, head, tenant
        refuse("peeking", "list the jobs of the topic")

    async def depths(
        self, topics: Sequence[str] | None = None, *, tenant: str | None = None
    ) -> list[TopicDepth]:
        del topics, tenant
        refuse("asking for the depths of topics", "app.topics() and app.stats() tell how many jobs they have")

    # -- documents --------------------------------------------------------------------------------------

    async def write_documents(self, documents: Sequence[NewDocument]) -> list[int | None]:
        del documents
        _refuse_documents()

    async def enqueue_with(self, document: NewDocument, jobs: Sequence[NewJob]) -> list[Enqueued] | None:
        del document, jobs
        _refuse_documents()

    async def document(self, kind: str, document_id: str) -> Document | None:
        del kind, document_id
        _refuse_documents()

    async def documents(
        self, kind: str, *, limit: int, before: tuple[int, str] | None = None
    ) -> list[Document]:
        del kind, limit, before
        _refuse_documents()

    async def remove_document(self, kind: str, document_id: str) -> bool:
        del kind, document_id
        _refuse_documents()

    # -- answering --------------------------------------------------------------------------------------

    async def held_back(self) -> list[HeldBack]:
        refuse("asking which limits hold jobs back", _QUESTIONS)

    async def durations(self, *, tenant: str | None = None) -> list[LaneDurations]:
        del tenant
        refuse("asking how long jobs take", _QUESTIONS)

    async def failures(self, where: JobFilter, *, window_seconds: float, limit: int = MAX_GROUPS) -> Failures:
        del where, window_seconds, limit
        refuse("grouping failures", _QUESTIONS)

    async def repeats(self, *, limit: int = MAX_GROUPS, tenant: str | None = None) -> Repeats:
        del limit, tenant
        refuse("looking for jobs that look alike", _QUESTIONS)

    # -- moving -----------------------------------------------------------------------------------------

    async def whole_jobs(self, *, limit: int, before: int | None = None) -> list[WholeJob]:
        del limit, before
        refuse("copying a store", _BESIDE)

    async def place_jobs(self, jobs: Sequence[WholeJob]) -> list[bool]:
        del jobs
        refuse("copying a store", _BESIDE)


def _refuse_documents() -> NoReturn:
    refuse(
        "reading or writing what is kept beside the jobs (keys, superusers, schedules, bulk operations)",
        f"use the server's own API for it, or {_BESIDE}",
    )
