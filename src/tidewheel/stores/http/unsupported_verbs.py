"""What needs the database itself, and cannot be asked of a server; each with what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn
from uuid import UUID

from tidewheel.core.full_job import FullJob
from tidewheel.core.model import (
    ActionResult,
    Claimed,
    Document,
    Enqueued,
    JobFilter,
    JobRecord,
    Lease,
    NewDocument,
    NewJob,
    TopicHead,
)
from tidewheel.core.reports import DuplicateJobs, FailureGroups, LaneDurations, TopicDepth
from tidewheel.core.topic_limits import BlockedTopic
from tidewheel.errors import NotOverHttp, WrongState
from tidewheel.stores.bounds import MAX_GROUPS
from tidewheel.stores.external_transaction import UncommittedEnqueue
from tidewheel.stores.protocol import HandlerTransaction


def unsupported_error(what: str, instead: str) -> NoReturn:
    raise NotOverHttp(f"{what} cannot be done over HTTP; {instead}")


_RUN_BESIDE_DATABASE = "run it where the database is, with its URL"
_PULL_ALTERNATIVE = "pull jobs beside the database, or run a worker, which works over HTTP"
_REPORTS_ALTERNATIVE = (
    "the server answers it, at /api/jobs/questions and in its web UI; or " + _RUN_BESIDE_DATABASE
)


class UnsupportedVerbs:
    """The verbs of a store that are no part of the HTTP API."""

    async def migrate(self, *, rls: bool = False) -> list[str]:
        """A server keeps its schema up to date by itself."""
        del rls
        unsupported_error("migrating", _RUN_BESIDE_DATABASE)

    async def pending_migrations(self) -> list[str]:
        unsupported_error("looking at the schema", _RUN_BESIDE_DATABASE)

    async def check(self) -> list[str]:
        unsupported_error("checking the store", f"{_RUN_BESIDE_DATABASE}: tidewheel doctor")

    async def begin_transaction(
        self,
        lease: Lease,
        *,
        lease_seconds: float,
        seconds: float,
        tenant: str,
        on_timeout: Callable[[], None],
        run_seconds: float = 0.0,
    ) -> HandlerTransaction:
        """As in memory: there is no database here to have a transaction in."""
        del lease, lease_seconds, seconds, tenant, on_timeout, run_seconds
        raise WrongState(
            "ctx.transaction needs the database the jobs are in, and this worker reaches that over HTTP "
            "only; run the worker beside the database, or use a connection of yours"
        )

    def notify_on_commit(self, uncommitted: UncommittedEnqueue) -> None:
        del uncommitted
        unsupported_error("enqueueing in a transaction of yours", "leave using out, and give the job a key")

    # -- pulling by hand --------------------------------------------------------------------------------

    async def claim_job(
        self, job_id: UUID, *, worker: str, lease_seconds: float, tenant: str | None = None
    ) -> Claimed | None:
        del job_id, worker, lease_seconds, tenant
        unsupported_error("reserving a job by its id", _PULL_ALTERNATIVE)

    async def touch(self, leases: Sequence[Lease], lease_seconds: float) -> list[float | None]:
        del leases, lease_seconds
        unsupported_error("touching a reservation", _PULL_ALTERNATIVE)

    async def kick_jobs(self, job_ids: Sequence[UUID], *, tenant: str | None = None) -> list[ActionResult]:
        del job_ids, tenant
        unsupported_error("kicking single jobs", "requeue them, if they have failed")

    async def job_ids(self, numbers: Sequence[int], *, tenant: str | None = None) -> list[UUID | None]:
        del numbers, tenant
        unsupported_error(
            "finding jobs by their numbers", "numbers tell of other tenants; find them by id or by key"
        )

    async def peek(self, topic: str, head: TopicHead, *, tenant: str | None = None) -> JobRecord | None:
        del topic, head, tenant
        unsupported_error("peeking", "list the jobs of the topic")

    async def topic_depths(
        self, topics: Sequence[str] | None = None, *, tenant: str | None = None
    ) -> list[TopicDepth]:
        del topics, tenant
        unsupported_error(
            "asking for the depths of topics", "app.topics() and app.stats() tell how many jobs they have"
        )

    # -- documents --------------------------------------------------------------------------------------

    async def write_documents(self, documents: Sequence[NewDocument]) -> list[int | None]:
        del documents
        _refuse_documents()

    async def enqueue_with_document(
        self, document: NewDocument, jobs: Sequence[NewJob]
    ) -> list[Enqueued] | None:
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

    async def blocked_by_limits(self) -> list[BlockedTopic]:
        unsupported_error("asking which limits hold jobs back", _REPORTS_ALTERNATIVE)

    async def durations(self, *, tenant: str | None = None) -> list[LaneDurations]:
        del tenant
        unsupported_error("asking how long jobs take", _REPORTS_ALTERNATIVE)

    async def failures(
        self, where: JobFilter, *, window_seconds: float, limit: int = MAX_GROUPS
    ) -> FailureGroups:
        del where, window_seconds, limit
        unsupported_error("grouping failures", _REPORTS_ALTERNATIVE)

    async def duplicate_jobs(self, *, limit: int = MAX_GROUPS, tenant: str | None = None) -> DuplicateJobs:
        del limit, tenant
        unsupported_error("looking for jobs that look alike", _REPORTS_ALTERNATIVE)

    # -- moving -----------------------------------------------------------------------------------------

    async def export_jobs(self, *, limit: int, before: int | None = None) -> list[FullJob]:
        del limit, before
        unsupported_error("copying a store", _RUN_BESIDE_DATABASE)

    async def import_jobs(self, jobs: Sequence[FullJob]) -> list[bool]:
        del jobs
        unsupported_error("copying a store", _RUN_BESIDE_DATABASE)


def _refuse_documents() -> NoReturn:
    unsupported_error(
        "reading or writing what is kept beside the jobs (keys, superusers, schedules, bulk operations)",
        f"use the server's own API for it, or {_RUN_BESIDE_DATABASE}",
    )
