"""The machine: random verbs on every store, every answer compared, every lease ever granted tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec import structs

from tidewheel.core.clock import seconds_to_microseconds
from tidewheel.core.model import (
    FOREVER,
    Claim,
    Claimed,
    ClaimRequest,
    Enqueued,
    JobFilter,
    Lane,
    Lease,
    NewDocument,
    NewJob,
    NewStep,
    Outcome,
    Page,
    Progress,
    Report,
    RescuedJob,
    Settlement,
    TopicHead,
    WorkerRecord,
)
from tidewheel.core.topic_limits import TopicLimits
from tidewheel.errors import KeyInUse, TidewheelError
from tidewheel.stores.bounds import MAX_BATCH
from tidewheel.stores.protocol import Store
from tidewheel.testing.agreement import strategies
from tidewheel.testing.agreement.answer_comparison import AnswerTranslator, describe_difference
from tidewheel.testing.agreement.strategies import shift_times
from tidewheel.testing.clock import FrozenClock

CHANGES_PER_CHECK = 6
"""After so many changes what few verbs touch is compared, and the stores look for problems of their own,
which costs more than the changes."""

Verb = Callable[[Store, AnswerTranslator], Awaitable[Any]]


class StoresAgree(RuleBasedStateMachine):
    """Drives all stores of ``make_stores`` at once, on one frozen clock and one event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FrozenClock()
        self.started_at = self.clock.now()
        self.runner = self.make_runner()
        self.stores = dict(self.make_stores(self.clock))
        self.translators = {name: AnswerTranslator() for name in self.stores}
        self.job_ids: list[UUID] = []
        self.changes = 0
        self.compared = 0  # as of how many changes the stores were found to hold the same
        self.leases: list[Lease] = []  # in common words; never forgotten
        self.held: list[Lease] = []  # the ones nobody has settled yet, ended or not
        self.cursors: tuple[dict[str, Any], dict[str, int]] | None = None
        for store in self.stores.values():
            self.runner.run(store.open())
            self.runner.run(store.migrate())

    def make_runner(self) -> asyncio.Runner:
        """Where everything of one example runs; ``end_runner`` is told when it is over."""
        return asyncio.Runner()

    def end_runner(self, runner: asyncio.Runner) -> None:
        runner.close()

    def make_stores(self, clock: FrozenClock) -> Mapping[str, Store]:
        """The stores to compare by name, the reference first, not yet open."""
        raise NotImplementedError

    def teardown(self) -> None:
        try:
            for job_id in self.job_ids:
                self._look(job_id, None)
            self._compare()
            self._compare_rarely_changed()
            self._check()
        finally:
            for store in self.stores.values():
                self.runner.run(store.close())
            self.end_runner(self.runner)

    def call_all(self, verb: Verb) -> Any:
        """The answer all stores give to a verb that may change something."""
        self.changes += 1
        return self.read_all(verb)

    def read_all(self, verb: Verb) -> Any:
        """The answer all stores give, in common words; an error is an answer, too."""
        told: dict[str, list[RescuedJob]] = {}  # of jobs that were rescued on the way
        # Not ``run``: it takes over Ctrl-C every time, which takes longer than most verbs in memory.
        answers = self.runner.get_loop().run_until_complete(self._ask(verb, told))
        reference, *others = answers
        for other in others:
            if answers[other] != answers[reference]:
                raise AssertionError(
                    f"{other} and {reference} {describe_difference(answers[other], answers[reference])}"
                )
            assert told[other] == told[reference], f"{other} and {reference} tell of other rescued jobs"
        return answers[reference]

    async def _ask(self, verb: Verb, told: dict[str, list[RescuedJob]]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for name, store in self.stores.items():
            translator = self.translators[name]
            rescued: list[RescuedJob] = []
            store.on_rescued = rescued.extend
            try:
                answer = await verb(store, translator)
            except TidewheelError as error:
                answers[name] = type(error)
            else:
                answers[name] = translator.answer(answer)
            told[name] = sorted(rescued)
        return answers

    # -- choosing -----------------------------------------------------------------------------------------

    def some_jobs(self, data: st.DataObject, at_most: int = 3) -> list[UUID]:
        """Known jobs, and now and then one that never was."""
        known = st.sampled_from([*self.job_ids[-20:], UUID(int=1)])
        return data.draw(st.lists(known, min_size=1, max_size=at_most), label="jobs")

    def some_leases(self, data: st.DataObject, at_most: int = 3) -> list[Lease]:
        """Mostly leases that may hold; also old ones, and one that was never granted."""
        stale = st.sampled_from([*self.leases, Lease(self.job_ids[-1], len(self.leases) + 1)])
        choice = (
            st.one_of(st.sampled_from(self.held), st.sampled_from(self.held), stale) if self.held else stale
        )
        return data.draw(st.lists(choice, min_size=1, max_size=at_most), label="leases")

    # -- writing ------------------------------------------------------------------------------------------

    @rule(jobs=st.lists(st.tuples(strategies.new_jobs, strategies.due_offsets), min_size=1, max_size=4))
    def enqueue(self, jobs: list[tuple[NewJob, float | None]]) -> None:
        written = self._named(jobs)
        answers: list[Enqueued] | type = self.call_all(lambda store, _: store.enqueue(written))
        assert answers is KeyInUse or (isinstance(answers, list) and len(answers) == len(written))
        self.job_ids += [new.id for new in written]

    def _named(self, jobs: list[tuple[NewJob, float | None]]) -> list[NewJob]:
        written: list[NewJob] = []
        for new, offset in jobs:
            job_id = UUID(int=(7 << 76) | (2 << 62) | (len(self.job_ids) + len(written) + 1))
            run_at = None if offset is None else self.clock.now() + seconds_to_microseconds(offset)
            written.append(structs.replace(new, id=job_id, run_at=run_at))
        return written

    @rule(
        document=strategies.documents,
        jobs=st.lists(st.tuples(strategies.new_jobs, strategies.due_offsets), max_size=3),
    )
    def enqueue_with(self, document: NewDocument, jobs: list[tuple[NewJob, float | None]]) -> None:
        written = self._named(jobs)
        answers: list[Enqueued] | type | None = self.call_all(
            lambda store, _: store.enqueue_with_document(document, written)
        )
        if answers is not None:
            self.job_ids += [new.id for new in written]

    @rule(data=st.data(), jobs=st.lists(strategies.new_jobs, min_size=1, max_size=3))
    @precondition(lambda self: self.job_ids)
    def enqueue_after(self, data: st.DataObject, jobs: list[NewJob]) -> None:
        """Jobs that run after others: known ones, also of other tenants, or those before them in the call."""
        written: list[NewJob] = []
        for new in jobs:
            known = [*self.job_ids[-8:], *(one.id for one in written)]
            parents = st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True)
            written.append(
                structs.replace(
                    new,
                    id=UUID(int=(7 << 76) | (2 << 62) | (len(self.job_ids) + len(written) + 1)),
                    tenant=data.draw(st.sampled_from(["root", "root", new.tenant])),
                    after=tuple(data.draw(parents, label="after")),
                    after_any=data.draw(strategies.yes_or_no),
                )
            )
        self.call_all(lambda store, _: store.enqueue(written))
        self.job_ids += [new.id for new in written]

    @rule(data=st.data(), tenant=strategies.some_tenant, limit=strategies.limits)
    @precondition(lambda self: self.job_ids)
    def dependents(self, data: st.DataObject, tenant: str | None, limit: int) -> None:
        job_id = data.draw(st.sampled_from(self.job_ids))
        self.call_all(lambda store, _: store.dependents(job_id, limit=limit, tenant=tenant))

    @rule(data=st.data(), new=strategies.new_jobs)
    @precondition(lambda self: self.job_ids)
    def enqueue_a_taken_id(self, data: st.DataObject, new: NewJob) -> None:
        job_id = data.draw(st.sampled_from(self.job_ids))
        # Without a key: with one, whether the key or the id is found first would be anybody's choice.
        self.call_all(lambda store, _: store.enqueue([structs.replace(new, id=job_id, key=None)]))

    @rule(
        worker=st.sampled_from(["anna", "bert"]),
        lanes=st.lists(strategies.lanes, min_size=1, max_size=4),
        limit=st.sampled_from([1, 2, 3, 10]),
        lease_seconds=strategies.lease_lengths,
        topic_limits=strategies.topic_limits,
        free=strategies.free_slots,
        reports_starts=st.booleans(),
    )
    def claim(
        self,
        worker: str,
        lanes: list[Lane],
        limit: int,
        lease_seconds: float,
        topic_limits: dict[str, int],
        free: int | None,
        reports_starts: bool,
    ) -> None:
        request = ClaimRequest(
            worker,
            tuple(lanes),
            limit,
            lease_seconds,
            topic_limits,
            free_slots=free,
            reports_starts=reports_starts,
        )
        claim: Claim = self.call_all(lambda store, _: store.claim(request))
        granted = [job.lease for job in claim.jobs]
        self.leases += granted
        self.held += granted

    @rule(limit=st.sampled_from([1, 3, 10]), reports_starts=st.booleans())
    def claim_anything(self, limit: int, reports_starts: bool) -> None:
        self.claim("carl", [Lane("a"), Lane("b"), Lane("c")], limit, 30.0, {}, None, reports_starts)

    @rule(data=st.data(), run_seconds=strategies.run_times, alone=st.booleans())
    @precondition(lambda self: self.leases)
    def start(self, data: st.DataObject, run_seconds: float | None, alone: bool) -> None:
        leases = self.some_leases(data)
        ago = [] if run_seconds is None else [run_seconds + place for place in range(len(leases))]
        self.call_all(
            lambda store, words: store.mark_started(
                [words.lease(lease) for lease in leases], run_seconds=ago, alone=alone
            )
        )

    @rule(data=st.data(), lease_seconds=strategies.lease_lengths)
    @precondition(lambda self: self.leases)
    def extend(self, data: st.DataObject, lease_seconds: float) -> None:
        leases = self.some_leases(data)
        self.call_all(
            lambda store, words: store.extend([words.lease(lease) for lease in leases], lease_seconds)
        )

    @rule(data=st.data(), lease_seconds=strategies.lease_lengths)
    @precondition(lambda self: self.leases)
    def touch(self, data: st.DataObject, lease_seconds: float) -> None:
        leases = self.some_leases(data)
        self.call_all(
            lambda store, words: store.touch([words.lease(lease) for lease in leases], lease_seconds)
        )

    @rule(data=st.data(), lease_seconds=strategies.lease_lengths, tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def grant(self, data: st.DataObject, lease_seconds: float, tenant: str | None) -> None:
        [job_id] = self.some_jobs(data, at_most=1)
        claimed: Claimed | None = self.call_all(
            lambda store, _: store.claim_job(
                job_id, worker="dora", lease_seconds=lease_seconds, tenant=tenant
            )
        )
        if claimed is not None:
            self.leases.append(claimed.lease)
            self.held.append(claimed.lease)

    @rule(
        data=st.data(),
        how=st.lists(st.tuples(strategies.outcomes, strategies.run_times), min_size=3, max_size=3),
    )
    @precondition(lambda self: self.leases)
    def settle(self, data: st.DataObject, how: list[tuple[Outcome, float | None]]) -> None:
        leases = self.some_leases(data)
        self._settle([(lease, *one) for lease, one in zip(leases, how, strict=False)])

    @rule(how=strategies.outcomes, run_seconds=strategies.run_times)
    @precondition(lambda self: self.held)
    def settle_the_newest(self, how: Outcome, run_seconds: float | None) -> None:
        self._settle([(self.held[-1], how, run_seconds)])

    def _settle(self, settlements: Iterable[tuple[Lease, Outcome, float | None]]) -> None:
        ended = list(settlements)
        answers: list[bool] = self.call_all(
            lambda store, words: store.settle(
                [Settlement(words.lease(lease), outcome, run) for lease, outcome, run in ended]
            )
        )
        for (lease, _, _), answer in zip(ended, answers, strict=True):
            if answer:
                self.held.remove(lease)

    @rule(
        data=st.data(),
        progress=strategies.progresses,
        checkpoint=strategies.checkpoints,
        steps=st.lists(strategies.steps, min_size=3, max_size=3),
        run_seconds=strategies.run_times,
    )
    @precondition(lambda self: self.leases)
    def report(
        self,
        data: st.DataObject,
        progress: Progress | None,
        checkpoint: bytes | None,
        steps: list[NewStep | None],
        run_seconds: float | None,
    ) -> None:
        said = list(zip(self.some_leases(data), steps, strict=False))
        self.call_all(
            lambda store, words: store.report(
                [
                    Report(words.lease(lease), progress, checkpoint, step, run_seconds or 0.0)
                    for lease, step in said
                ]
            )
        )

    @rule(data=st.data())
    @precondition(lambda self: self.leases)
    def read_steps(self, data: st.DataObject) -> None:
        [lease] = self.some_leases(data, at_most=1)
        self.read_all(lambda store, words: store.finished_steps(words.lease(lease)))

    @rule()
    @precondition(lambda self: self.leases)
    def cancel_requests(self) -> None:
        leases = self.leases[-MAX_BATCH:]
        self.read_all(lambda store, words: store.cancel_requests([words.lease(lease) for lease in leases]))

    # -- operating ----------------------------------------------------------------------------------------

    @rule(data=st.data(), tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def requeue(self, data: st.DataObject, tenant: str | None) -> None:
        job_ids = self.some_jobs(data)
        self.call_all(lambda store, _: store.requeue(job_ids, tenant=tenant))

    @rule(tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def requeue_everything(self, tenant: str | None) -> None:
        job_ids = self.job_ids[-MAX_BATCH:]
        self.call_all(lambda store, _: store.requeue(job_ids, tenant=tenant))

    @rule(data=st.data(), tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def cancel(self, data: st.DataObject, tenant: str | None) -> None:
        job_ids = self.some_jobs(data)
        self.call_all(lambda store, _: store.cancel(job_ids, tenant=tenant))

    @rule()
    @precondition(lambda self: self.held)
    def cancel_a_running_job(self) -> None:
        job_id = self.held[-1].job_id
        self.call_all(lambda store, _: store.cancel([job_id]))

    @rule(data=st.data(), tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def take_back(self, data: st.DataObject, tenant: str | None) -> None:
        job_ids = self.some_jobs(data)
        self.call_all(lambda store, _: store.take_back(job_ids, tenant=tenant))

    @rule()
    @precondition(lambda self: self.held)
    def take_a_running_job_back(self) -> None:
        job_id = self.held[-1].job_id
        self.call_all(lambda store, _: store.take_back([job_id]))

    @rule(data=st.data(), tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def delete(self, data: st.DataObject, tenant: str | None) -> None:
        job_ids = self.some_jobs(data)
        self.call_all(lambda store, _: store.delete(job_ids, tenant=tenant))

    @rule(
        topic=strategies.compared_topics,
        limit=strategies.limits,
        tenant=strategies.some_tenant,
        failed_only=st.booleans(),
    )
    def kick(self, topic: str, limit: int, tenant: str | None, failed_only: bool) -> None:
        self.call_all(lambda store, _: store.kick(topic, limit, tenant=tenant, failed_only=failed_only))

    @rule(data=st.data(), tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def kick_jobs(self, data: st.DataObject, tenant: str | None) -> None:
        job_ids = self.some_jobs(data)
        self.call_all(lambda store, _: store.kick_jobs(job_ids, tenant=tenant))

    @rule(limit=strategies.limits)
    def rescue(self, limit: int) -> None:
        self.call_all(lambda store, _: store.rescue(limit))

    @rule(limit=strategies.limits)
    def prune(self, limit: int) -> None:
        self.call_all(lambda store, _: store.prune(limit))

    @rule(
        topic=strategies.compared_topics,
        seconds=st.sampled_from([None, None, -1.0, 0.0, 30.0, 60.0, float("inf")]),
    )
    def pause(self, topic: str, seconds: float | None) -> None:
        until = None
        if seconds is not None:
            until = FOREVER if seconds > 1e9 else self.clock.now() + seconds_to_microseconds(seconds)
        self.call_all(lambda store, _: store.pause(topic, until))

    @rule(topic=strategies.compared_topics, limits=strategies.limits_of_topics)
    def set_limits(self, topic: str, limits: TopicLimits | None) -> None:
        self.call_all(lambda store, _: store.set_limits(topic, limits))

    @rule(worker=strategies.workers)
    def heartbeat(self, worker: WorkerRecord) -> None:
        self.call_all(lambda store, _: store.heartbeat(worker))

    @rule(name=strategies.worker_names, started_at=strategies.worker_starts)
    def deregister_worker(self, name: str, started_at: int) -> None:
        self.call_all(lambda store, _: store.deregister_worker(name, started_at))

    @rule(
        documents=st.lists(
            st.tuples(strategies.documents, strategies.document_lifetimes), min_size=1, max_size=3
        ),
    )
    def write_documents(self, documents: list[tuple[NewDocument, float | None]]) -> None:
        now = self.clock.now()
        new = [
            replace(one, expires_at=None if life is None else now + seconds_to_microseconds(life))
            for one, life in documents
        ]
        self.call_all(lambda store, _: store.write_documents(new))

    @rule(kind=strategies.document_kinds, document_id=strategies.document_ids)
    def remove_document(self, kind: str, document_id: str) -> None:
        self.call_all(lambda store, _: store.remove_document(kind, document_id))

    @rule(seconds=strategies.time_steps)
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.changes += 1  # by itself: leases end, and jobs become due

    # -- reading ------------------------------------------------------------------------------------------

    @rule(data=st.data(), tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def get(self, data: st.DataObject, tenant: str | None) -> None:
        [job_id] = self.some_jobs(data, at_most=1)
        self._look(job_id, tenant)

    def _look(self, job_id: UUID, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.get(job_id, tenant=tenant))

    @rule(data=st.data(), tenant=strategies.some_tenant)
    @precondition(lambda self: self.job_ids)
    def states(self, data: st.DataObject, tenant: str | None) -> None:
        job_ids = self.some_jobs(data)
        self.read_all(lambda store, _: store.states(job_ids, tenant=tenant))

    @rule(rank=st.integers(0, 30), tenant=strategies.some_tenant)
    def find_by_number(self, rank: int, tenant: str | None) -> None:
        self.read_all(
            lambda store, words: store.job_ids([words.number(rank), words.number(1)], tenant=tenant)
        )

    @rule(topic=strategies.compared_topics, head=strategies.heads, tenant=strategies.some_tenant)
    def peek(self, topic: str, head: TopicHead, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.peek(topic, head, tenant=tenant))

    @rule(topics=strategies.some_topics, tenant=strategies.some_tenant)
    def depths(self, topics: list[str] | None, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.topic_depths(topics, tenant=tenant))

    @rule(tenant=strategies.some_tenant)
    def topics(self, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.topics(tenant=tenant))

    @rule(where=strategies.filters, limit=st.sampled_from([1, 2, 5]), offset=st.sampled_from([0, 0, 0, 1, 3]))
    def list_jobs(self, where: dict[str, Any], limit: int, offset: int) -> None:
        condition = self._filter(where)
        page: Page = self.read_all(lambda store, _: store.list_jobs(condition, limit=limit, offset=offset))
        self._remember(where, page)

    @rule(limit=st.sampled_from([1, 2, 5]), offset=st.sampled_from([0, 0, 1]))
    @precondition(lambda self: self.cursors)
    def list_next_page(self, limit: int, offset: int) -> None:
        """The next page, whatever happened since the last."""
        assert self.cursors is not None
        where, cursors = self.cursors
        names = {id(store): name for name, store in self.stores.items()}
        condition = self._filter(where)
        page: Page = self.read_all(
            lambda store, _: store.list_jobs(
                condition, limit=limit, cursor=cursors[names[id(store)]], offset=offset
            )
        )
        self._remember(where, page)

    def _remember(self, where: dict[str, Any], page: Page) -> None:
        cursors = {name: words.cursor for name, words in self.translators.items()}
        known = {name: cursor for name, cursor in cursors.items() if cursor is not None}
        self.cursors = (where, known) if page.cursor is not None else None

    @rule(where=strategies.filters, beyond=strategies.yes_or_no)
    def count(self, where: dict[str, Any], beyond: bool) -> None:
        condition = self._filter(where)
        self.read_all(lambda store, _: store.count(condition, exact=beyond))

    @rule(window_seconds=strategies.windows, tenant=strategies.some_tenant)
    def stats(self, window_seconds: float, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.stats(window_seconds=window_seconds, tenant=tenant))

    @rule(window_seconds=strategies.windows, tenant=strategies.some_tenant)
    def lanes(self, window_seconds: float, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.lanes(window_seconds=window_seconds, tenant=tenant))

    @rule(tenant=strategies.some_tenant)
    def durations(self, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.durations(tenant=tenant))

    @rule(where=strategies.filters, window_seconds=strategies.windows, limit=strategies.limits)
    def failures(self, where: dict[str, Any], window_seconds: float, limit: int) -> None:
        condition = self._filter(where)
        self.read_all(lambda store, _: store.failures(condition, window_seconds=window_seconds, limit=limit))

    @rule(limit=strategies.limits, tenant=strategies.some_tenant)
    def duplicate_jobs(self, limit: int, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.duplicate_jobs(limit=limit, tenant=tenant))

    @rule(limit=strategies.limits, tenant=strategies.some_tenant)
    def longest_running(self, limit: int, tenant: str | None) -> None:
        self.read_all(lambda store, _: store.longest_running(limit, tenant=tenant))

    def _filter(self, where: dict[str, Any]) -> JobFilter:
        times: dict[str, Any] = {
            name: self.started_at + seconds_to_microseconds(where[name])
            for name in ("created_after", "created_before")
            if name in where
        }
        if "condition" in where:
            times["condition"] = shift_times(where["condition"], self.started_at)
        return JobFilter(**(where | times))

    # -- always -------------------------------------------------------------------------------------------

    @invariant()
    def the_stores_hold_the_same(self) -> None:
        """Compared where it can have changed. What a verb changed that only reads is found after the next
        one that writes, or at the end.
        """
        if self.compared == self.changes:
            return
        self._compare()
        self.compared = self.changes
        if self.changes % CHANGES_PER_CHECK == 0:
            self._compare_rarely_changed()
            self._check()

    def _compare(self) -> None:
        async def held(store: Store, _: AnswerTranslator) -> Any:
            return (
                await store.list_jobs(JobFilter(), limit=MAX_BATCH),
                await store.topics(),
                await store.blocked_by_limits(),
            )

        self.read_all(held)

    def _compare_rarely_changed(self) -> None:
        """What few verbs touch: where it differs, it still does a few changes later."""
        self.read_all(lambda store, _: store.limits())
        self.read_all(lambda store, _: store.workers())
        self.read_all(lambda store, _: store.documents("note", limit=MAX_BATCH))

    def _check(self) -> None:
        assert self.read_all(lambda store, _: store.check()) == []
